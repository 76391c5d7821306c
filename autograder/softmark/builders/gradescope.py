"""An autograder for Gradescope: a .zip with the engine and what one topic's grading needs.

On the platform ``setup.sh`` installs the engine, and ``run_autograder`` has
``softmark.exports.gradescope_run`` grade each hand-in. The .zip holds the solution and the hidden
graders of the topic: it is for Gradescope and for nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from softmark.builders.one_topic import course_files
from softmark.builders.wheel import archive, engine_wheel
from softmark.course import Course
from softmark.exports.gradescope import NOT_GRADED
from softmark.files import write_whole

_SCRIPTS = Path(__file__).parent / "gradescope_zip"


def build_gradescope(
    course: Course, topic_id: str, out: Path, isolation: str | None = None
) -> None:
    """Write the autograder of a topic as the .zip file ``out``.

    ``isolation`` is the least tier to accept on the platform, as ``softmark grade`` takes it. Raises
    CourseError where a file that grading needs is missing, and OSError.
    """
    topic = course.topic(topic_id)
    files = {f"course/{name}": text for name, text in course_files(course, topic)}
    wheel, content = engine_wheel()
    files[wheel] = content
    torch = topic.worker == "torch" or topic.twin is not None
    if torch:
        files["needs_torch"] = b""
    files["constraints.txt"] = "".join(f"{pin}\n" for pin in sorted(_pins(torch))).encode()
    files["not_graded.json"] = (json.dumps(NOT_GRADED, indent=2) + "\n").encode()
    for script in ("setup.sh", "run_autograder"):
        text = (_SCRIPTS / script).read_text(encoding="utf-8")
        files[script] = text.replace(" @ISOLATION@", f" {isolation}" if isolation else "").encode()
    write_whole(out, archive(files, executable=("setup.sh", "run_autograder")))


def _pins(torch: bool) -> Iterator[str]:
    """The versions installed here of all that the engine needs, so that grading there is as here."""
    todo = [("softmark", "torch" if torch else "")]
    seen: set[str] = set()
    while todo:
        name, extra = todo.pop()
        for text in metadata.distribution(name).requires or ():
            wanted = Requirement(text)
            key = wanted.name.lower().replace("_", "-")
            if key in seen or (wanted.marker and not wanted.marker.evaluate({"extra": extra})):
                continue
            try:
                version = metadata.version(wanted.name)
            except metadata.PackageNotFoundError:
                continue  # not installed here: the newest that is allowed
            seen.add(key)
            # the build for CPUs and the one of the registry are one version
            yield f"{key}=={version.partition('+')[0]}"
            todo.append((wanted.name, ""))
