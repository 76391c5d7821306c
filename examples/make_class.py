"""Write a made-up class for each topic, class_<topic>/, each submission named after what it does.

The right ones are made from the reference solution and its variants, the wrong ones from its known
mistakes. That of 02_lstm has more: edits below make most of its hostile submissions, and those in
WRITTEN are written by hand and left as they are. Nothing depends on the machine or the day, so that a
second run changes nothing::

    python examples/make_class.py
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from softmark.bench import reference_files
from softmark.builders.stub import stub
from softmark.course import Course, Topic, find_course, load_course
from softmark.mistakes import load_mistakes
from softmark.questions import blank_answers, load_answers
from softmark.verify import load_variants

HERE = Path(__file__).resolve().parent
SOME_WRONG = 5
TOPIC, FILE, TWIN, ANSWERS = "02_lstm", "lstm.py", "lstm_torch.py", "answers.yaml"
CLASS = HERE / f"class_{TOPIC}"
WRITTEN = ("forges_a_pass.py", "looks_for_the_solutions.py")
BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"

WRONG = {
    "wrong_dc_from_next_step_dropped": "dc_from_next_step_dropped",
    "wrong_output_gate_gets_c": "output_gate_gets_c",
    "wrong_db_averaged": "db_averaged_over_the_batch",
    "wrong_dc_last_ignored": "dc_last_ignored",
    "wrong_h_before_x": "h_before_x",
}
"""Submissions with one mistake, and the known one that each of them makes."""

EDITS = {
    "infinite_loop": (
        "        h = o * np.tanh(c)\n",
        "        h = o * np.tanh(c)\n"
        "        while not np.all(h > 1):  # never: tanh stays below 1\n"
        "            h = o * np.tanh(c)\n",
    ),
    "memory_hog": (
        "    h, c = h0, c0\n",
        "    h, c = h0, c0\n"
        "    history = [np.zeros((4096, 8192)) for _ in range(10_000)]  # 256 MB each\n",
    ),
    "exits_with_code_0": (
        "    h, c = h0, c0\n",
        "    import os\n\n    os._exit(0)\n    h, c = h0, c0\n",
    ),
    "syntax_error": (
        "def lstm_forward(cell, x, h0, c0, mask=None):\n",
        "def lstm_forward(cell, x, h0, c0, mask=None)\n",
    ),
    "wrong_shape": ("np.stack(hs, axis=1), c,", "np.stack(hs, axis=0), c,"),
}
"""Submissions that are the reference with one edit: what is replaced, and what takes its place."""


def small_class(course: Course, topic: Topic) -> dict[str, bytes]:
    """A class of one topic: right, untouched, half done, and a few with one known mistake each."""
    reference = reference_files(course, topic)
    main = topic.files[0]
    right = {name: _without_markers(text) for name, text in reference.items()}
    right[ANSWERS] = _right_answers(course, topic)
    parts = sum(line.strip() == BEGIN for line in reference[main].splitlines())
    half = stub(_without_markers(reference[main], first=parts // 2), main)
    blank = blank_answers(topic.questions)
    people = {
        "right_as_taught": right,
        "right_without_answers": {main: right[main]},
        "stub_untouched": {main: stub(reference[main], main), ANSWERS: blank},
        "half_done": {main: half, ANSWERS: blank},
    }
    for name, variant in load_variants(course, topic, reference).items():
        people[f"right_{name}"] = {**right, **variant}
    mistakes = [m for m in load_mistakes(course, topic, reference) if m.file == main]
    for mistake in mistakes[:: len(mistakes) // SOME_WRONG + 1]:
        wrong = _without_markers(mistake.files[main])
        people[f"wrong_{mistake.id}"] = {main: wrong, ANSWERS: right[ANSWERS]}
    return {
        f"{person}/{name}": text.encode()
        for person, files in sorted(people.items())
        for name, text in sorted(files.items())
    }


def submissions(course: Course, topic: Topic) -> dict[str, bytes]:
    """Every file of the class of 02_lstm, by its path within class_02_lstm/."""
    reference = reference_files(course, topic)
    source = reference[FILE]
    right = _without_markers(source)
    variants = load_variants(course, topic, reference)
    mistakes = {m.id: m.files[FILE] for m in load_mistakes(course, topic, reference)}
    answers = _right_answers(course, topic)
    texts = {
        f"right_as_taught/{FILE}": right,
        f"right_with_einsum/{FILE}": variants["einsum_closures"][FILE],
        f"right_with_everything/{FILE}": right,
        f"right_with_everything/{TWIN}": _without_markers(reference[TWIN]),
        f"stub_untouched/{FILE}": stub(source, FILE),
        f"stub_untouched/{ANSWERS}": blank_answers(topic.questions),
        f"half_done/{FILE}": stub(_without_markers(source, first=3), FILE),
        "right_without_answers.py": right,
        "missing_function.py": right[: right.index("def lstm_backward(")].rstrip() + "\n",
        "right_in_a_notebook.ipynb": _notebook(right, answers),
    }
    texts |= {f"{name}/{FILE}": _without_markers(mistakes[id]) for name, id in WRONG.items()}
    texts |= {f"{name}.py": _edited(right, *edit) for name, edit in EDITS.items()}
    texts |= {name: (CLASS / name).read_text() for name in WRITTEN}
    answered = [name for name in texts if name.startswith(("right", "wrong")) and "/" in name]
    texts |= {f"{name.split('/')[0]}/{ANSWERS}": answers for name in answered}
    texts[f"exits_with_code_0/{FILE}"] = texts.pop("exits_with_code_0.py")
    files = {name: text.encode() for name, text in texts.items()}
    files["right_in_a_zip.zip"] = _zip(variants["gate_by_gate"][FILE], answers)
    return dict(sorted(files.items()))


def _right_answers(course: Course, topic: Topic) -> str:
    answers = load_answers(course.solution(topic.id) / ANSWERS, ANSWERS, topic.questions)
    return "".join(f"{name}: {answer}\n" for name, answer in answers.items())


def _without_markers(source: str, first: int | None = None) -> str:
    """Without the lines around what students write, or those around the first few parts only."""
    kept, seen = [], 0
    for line in source.splitlines(keepends=True):
        is_marker = line.strip() in (BEGIN, END)
        if is_marker and (first is None or seen < 2 * first):
            seen += 1
        else:
            kept.append(line)
    return "".join(kept)


def _edited(source: str, old: str, new: str) -> str:
    if source.count(old) != 1:
        count = source.count(old)
        raise SystemExit(f"the reference must hold this once, and holds it {count} times: {old}")
    return source.replace(old, new)


def _notebook(source: str, answers: str) -> str:
    """The solution as a notebook: a cell for each function, with text and a magic in between."""
    head, sigmoid, cell, *rest = _cut(source, ("def sigmoid", "class LSTMCell", "def lstm_"))
    cells = [
        _cell(0, "markdown", "# LSTM by hand\n\nMy solution. Run all cells from the top."),
        _cell(1, "code", "%matplotlib inline\n" + head),
        _cell(2, "code", sigmoid),
        _cell(3, "markdown", "## One step\n\nThe gates are $f$, $i$, $o$; the candidate is $g$."),
        _cell(4, "code", cell),
        _cell(5, "markdown", "## A sequence"),
        *(_cell(6 + i, "code", part) for i, part in enumerate(rest)),
        _cell(6 + len(rest), "code", "# a look at the shapes\nsigmoid?\n"),
        _cell(7 + len(rest), "code", f"%%writefile {ANSWERS}\n{answers}"),
    ]
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cut(source: str, starts: tuple[str, ...]) -> list[str]:
    """The source in parts, a new one at each line that begins with one of ``starts``."""
    parts = [""]
    for line in source.splitlines(keepends=True):
        if line.startswith(starts):
            parts.append("")
        parts[-1] += line
    return [part.strip() for part in parts]


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    lines = text.strip().splitlines(keepends=True)
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    cell["source"] = lines
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell


def _zip(source: str, answers: str) -> bytes:
    """A folder as a Mac packs it: the file, and what nobody meant to hand in."""
    entries = {
        "lstm homework/": b"",
        "lstm homework/lstm.py": source.encode(),
        "lstm homework/answers.yaml": answers.encode(),
        "lstm homework/.DS_Store": b"\0\0\0\1Bud1",
        "__MACOSX/lstm homework/._lstm.py": b"\0\5\x16\7\0\2\0\0Mac OS X",
    }
    packed = io.BytesIO()
    # stored, since compressed bytes differ between versions of zlib
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 12, 0, 0))
            info.create_system = 3
            info.external_attr = (0o40755 if name.endswith("/") else 0o100644) << 16
            archive.writestr(info, data)
    return packed.getvalue()


def main() -> None:
    """Write the classes anew."""
    course = load_course(find_course(HERE))
    for topic in course.topics:
        make = submissions if topic.id == TOPIC else small_class
        made = make(course, course.topic(topic.id))
        folder = HERE / f"class_{topic.id}"
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in made.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        print(f"{folder.relative_to(HERE.parent)}: {len(made)} files")


if __name__ == "__main__":
    main()
