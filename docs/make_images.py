"""Make docs/images/*.svg: the real commands on a pseudo-terminal of 100 columns, as pictures.

    python docs/make_images.py

Inputs come from a fixed seed, so that scores and messages are the same each time; what is left to
differ is the machine: its versions and tiers, and the seconds that grading took.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
COLUMNS = 100
EXAMPLES = "examples/class_02_lstm"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        grade = f"grade {EXAMPLES} --topic 02_lstm --workers 2 --seed 1 --out"
        draw("grade", f"{grade} out", [*grade.split(), str(scratch / "out")], ROOT)
        draw("doctor", "doctor", ["doctor"], ROOT)
        topic = scratch / "02_lstm"
        shutil.copytree(ROOT / "starter" / "02_lstm", topic)
        shutil.copy(ROOT / EXAMPLES / "wrong_shape.py", topic / "lstm.py")
        draw("check", "check", ["check"], topic)
        draw("pack", "pack", ["pack"], topic)


def draw(name: str, shown: str, arguments: Sequence[str], folder: Path) -> None:
    """Run ``softmark`` with ``arguments`` in ``folder``; the picture's first line is ``shown``."""
    output = on_terminal([sys.executable, "-m", "softmark", *arguments], folder)
    # without the scratch folder's own name
    output = re.sub(r"(?<=Results: )\S*/(?=out/)", "", output)
    output = re.sub(rf"(?<=  )\S*/(?={folder.name}/)", "", output)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (f"softmark {shown}", "bold")))
    console.print(Text.from_ansi(output.rstrip()))
    console.print()  # the picture would cut the tails off the last line's letters
    svg = console.export_svg(title=f"softmark {arguments[0]}", unique_id=f"softmark-{name}")
    # no fonts from elsewhere: a picture in a page may not load them, and any monospaced one will do
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    path = IMAGES / f"{name}.svg"
    path.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")
    print(path.relative_to(ROOT))


def on_terminal(command: Sequence[str], folder: Path) -> str:
    """What ``command`` prints where standard output is a terminal; colours included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    # as where the environment is activated, so that commands name no folder of this machine
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # no progress bar: standard error is no terminal
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 1 << 16):
            printed += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    _, complaints = process.communicate()
    if complaints:
        sys.exit(f"{' '.join(command)}: {complaints.decode()}")
    return printed.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
