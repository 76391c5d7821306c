"""A course cut down to one topic, for a platform that grades this one."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from softmark.course import COURSE_FILE, TOPIC_FILE, Course, CourseError, Topic
from softmark.mistakes import MISTAKES_FILE
from softmark.questions import ANSWERS_FILE, QUESTIONS_FILE

_CACHES = frozenset({"__pycache__", ".pytest_cache"})


def course_files(course: Course, topic: Topic) -> Iterator[tuple[str, bytes]]:
    """A course of this topic alone: its files by name, no more of them than grading reads.

    Both halves are in it, the private one in its usual place. Raises CourseError where a file is
    missing.
    """
    whole = yaml.safe_load((course.folder / COURSE_FILE).read_text(encoding="utf-8"))
    whole["topics"] = [entry for entry in whole["topics"] if entry["id"] == topic.id]
    whole.pop("private", None)
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
    yield COURSE_FILE, text.encode()

    for name in (TOPIC_FILE, QUESTIONS_FILE):
        if name == TOPIC_FILE or topic.questions:
            yield f"assignments/{topic.id}/{name}", (topic.folder / name).read_bytes()

    for name, text in topic.given.items():
        yield f"assignments/{topic.id}/{name}", text.encode()

    solution = course.solution(topic.id)
    answers = [ANSWERS_FILE] if topic.questions else []
    for name in (*topic.files, *answers):
        if not (solution / name).is_file():
            raise CourseError(f"{solution / name}: no such file; {topic.id} is graded with it")
    for name in (*topic.files, *answers, MISTAKES_FILE):
        if (solution / name).is_file():
            yield f"solutions/{topic.id}/{name}", (solution / name).read_bytes()

    graders = course.graders(topic.id)
    found = [path for path in sorted(graders.rglob("*")) if path.is_file()]
    found = [path for path in found if _CACHES.isdisjoint(path.relative_to(graders).parts)]
    if not any(path.name.startswith("test_") for path in found):
        raise CourseError(f"{graders}: no test_*.py in it; {topic.id} is graded with them")
    for path in found:
        place = path.relative_to(graders).as_posix()
        yield f"autograder/graders/{topic.id}/{place}", path.read_bytes()
