"""Results as JUnit XML: ``python -P -m softmark.exports.junit OUT``.

OUT is what ``softmark grade --out`` has written; the file is OUT/junit.xml, which GitLab, Jenkins and
others show. A submission is a test suite, an item of the rubric a test case of it. For the instructor:
all that is in a result is in it.
"""

from __future__ import annotations

import sys
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from softmark.files import write_whole
from softmark.result import ItemResult, Result

_KINDS = {
    "partial": "failure",
    "failed": "failure",
    "error": "error",
    "invalid": "error",
    "not_graded": "skipped",
}
"""The element for each status of an item; one that is passed has none."""


def write_junit(out: Path) -> Path:
    """Write OUT/junit.xml from OUT/results/<id>.json. Raises OSError and ValueError."""
    path = out / "junit.xml"
    write_whole(path, as_junit(read_results(out)))
    return path


def read_results(out: Path) -> list[Result]:
    """All results in OUT/results, by name. Raises OSError and ValueError."""
    paths = sorted((out / "results").glob("*.json"))
    return [Result.from_json(path.read_text(encoding="utf-8")) for path in paths]


def as_junit(results: Sequence[Result]) -> bytes:
    """The document, in UTF-8. A submission that could not be run is a suite of one case, an error."""
    root = ET.Element("testsuites", name="softmark")
    for result in results:
        name = _plain(f"{result.topic}.{result.student}")
        suite = ET.SubElement(root, "testsuite", name=name)
        cases = [_case(item) for item in result.items]
        if result.status != "graded":
            whole = ET.Element("testcase", name=result.status)
            _say(whole, "error", result.status, result.message)
            cases = [whole]
        for case in cases:
            case.set("classname", name)
        suite.extend(cases)
        suite.set("tests", str(len(cases)))
        for kind in ("failure", "error", "skipped"):
            count = sum(case.find(kind) is not None for case in cases)
            suite.set(kind if kind == "skipped" else f"{kind}s", str(count))
        suite.set("time", f"{result.seconds:.3f}")
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(item: ItemResult) -> ET.Element:
    case = ET.Element("testcase", name=_plain(f"{item.id}: {item.title}"))
    if item.status in _KINDS:
        points = "open" if item.score is None else f"{item.score:g}"
        lines = [item.message, *(f"Hint: {hint}" for hint in item.hints)]
        lines.append(f"{points} of {item.max_score:g} points")
        _say(case, _KINDS[item.status], item.status, "\n".join(line for line in lines if line))
    return case


def _say(case: ET.Element, kind: str, status: str, text: str) -> None:
    """What became of a case: some readers show the attribute, others what is inside."""
    first = text.splitlines()[0] if text else status
    told = ET.SubElement(case, kind, type=status, message=_plain(first))
    told.text = _plain(text)


def _plain(text: str) -> str:
    """Text without the characters that XML cannot hold or that steer a terminal."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs", "Cn") else "\ufffd"
        for c in text
    )


if __name__ == "__main__":
    try:
        print(write_junit(Path(sys.argv[1])))
    except (OSError, ValueError, LookupError) as error:
        sys.exit(f"{' '.join(sys.argv[1:])}: {error}")
