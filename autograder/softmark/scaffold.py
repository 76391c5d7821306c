"""``softmark new``: a small topic that works as it stands, to be rewritten into another.

What it is made of lies in ``templates/topic``, with ``$topic`` and ``$module`` for the two names.
"""

from __future__ import annotations

import re
import string
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from softmark.builders.starter import build_starter
from softmark.course import COURSE_FILE, Course, CourseError, TopicEntry, load_course
from softmark.yamlfile import is_identifier

_TEMPLATES = Path(__file__).parent / "templates" / "topic"
# where each of them goes: public, solution or graders, and its name there
_PLACES = {
    "handout.md": ("assignments", "handout.md"),
    "assignment.yaml": ("assignments", "assignment.yaml"),
    "questions.yaml": ("assignments", "questions.yaml"),
    "public_tests.py.txt": ("assignments", "test_public.py"),
    "reference.py.txt": ("solutions", "$module.py"),
    "answers.yaml": ("solutions", "answers.yaml"),
    "mistakes.yaml": ("solutions", "mistakes.yaml"),
    "variant.py.txt": ("solutions", "variants/by_difference/$module.py"),
    "graders.py.txt": ("graders", "test_$module.py"),
}
_TAKEN = sys.stdlib_module_names | {"numpy", "torch", "pytest", "softmark"}


@dataclass(frozen=True, slots=True)
class New:
    """A new topic: its files, and the line that the author is to add to course.yaml; "" if it is
    there."""

    files: tuple[Path, ...]
    line: str


def new_topic(course: Course, id: str) -> New:
    """Write the topic ``id``, list it last in course.yaml, and build its starter.

    Raises CourseError, before anything is written, where ``id`` cannot be a topic or is one, and
    BuildError where the starter of another topic cannot be built.
    """
    module = _module(id)
    root = course.private
    folders = {
        "assignments": course.folder / "assignments" / id,
        "solutions": (root or course.folder) / "solutions" / id,
        "graders": (root / "graders" if root else course.folder / "autograder/graders") / id,
    }
    if id in [topic.id for topic in course.topics]:
        raise CourseError(f"{COURSE_FILE}: topics: '{id}' is there already; choose another name")
    for folder in folders.values():
        if folder.exists():
            raise CourseError(f"{folder}: is there already; move it away or choose another name")
    files: list[Path] = []
    for source, (place, name) in _PLACES.items():
        path = folders[place] / string.Template(name).substitute(module=module)
        text = string.Template((_TEMPLATES / source).read_text(encoding="utf-8"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.substitute(topic=id, module=module), encoding="utf-8", newline="\n")
        files.append(path)
    listed = _list_topic(course.folder / COURSE_FILE, id)
    if listed:
        build_starter(load_course(course.folder), course.folder / "starter")
    return New(tuple(files), "" if listed else f"- id: {id}")


def _module(id: str) -> str:
    """The name of the topic's module, such as ``lstm`` of 02_lstm."""
    try:
        TopicEntry(id=id)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise CourseError(said) from None
    module = re.sub(r"\A\d+_", "", id)
    if not is_identifier(module):
        raise CourseError(
            f"'{id}' leaves '{module}' as the name of the file students write, which Python cannot "
            "import; take a number and a word, as in 02_lstm"
        )
    if module in _TAKEN:
        raise CourseError(
            f"'{id}' makes students write a file {module}.py, which would stand in the way of the "
            f"module {module} that Python has; choose another word"
        )
    return module


def _list_topic(path: Path, id: str) -> bool:
    """Add the topic's line below the last one of course.yaml, all else left as it is.

    Whether it could: not where ``topics`` is written in brackets.
    """
    text = path.read_text(encoding="utf-8")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a course
    topics = next(value for key, value in root.value if key.value == "topics")
    if topics.flow_style:
        return False
    lines = text.splitlines(keepends=True)
    last = max(_last_line(node) for node in topics.value)
    if not lines[last].endswith("\n"):
        lines[last] += "\n"
    lines.insert(last + 1, f"{' ' * topics.start_mark.column}- id: {id}\n")
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return True


def _last_line(node: yaml.Node) -> int:
    """The last line, from 0, that holds something of a node; where a block ends is not told, since
    comments and empty lines after it count as its own."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        inner = node.value[-1]
        return _last_line(inner[1] if isinstance(inner, tuple) else inner)
    return node.end_mark.line
