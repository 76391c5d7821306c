"""However a submission ends, the cause is told, the zygote serves on, and nothing piles up."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from softmark.course import Limits
from softmark.implementation import Implementation, Question
from softmark.isolation import sandbox, tiers, wire
from softmark.isolation.host import Caps, Worker, Zygote, ZygoteFailed
from softmark.isolation.tiers import TIERS, Level
from softmark.isolation.wire import BadFrame
from softmark.script import Output, Script, Trace

CALLS = {"go": (Output("result", "scalar"),)}
FINE = "def go(): return 7"
SLACK = 1.0
"""Seconds that a busy machine may add to a limit."""


@functools.cache
def _best() -> Level:
    if sandbox.landlock_version() == 0 and os.geteuid() != 0:
        pytest.skip("neither Landlock nor root here")
    return tiers.reach()


def _start(layers: tuple[str, ...], seccomp: bytes) -> Zygote:
    return Zygote(layers, ["numpy"], Caps(seconds=30, memory_mb=256), seccomp)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with _start(_best().layers, _best().seccomp) as zygote:
        yield zygote


def _run(zygote: Zygote, source: str, seconds: float = 10) -> tuple[Trace | BadFrame, Worker]:
    """Load ``source`` and call ``go``; what came of it, and the closed worker."""
    script = Script(CALLS)
    script.call("go")
    worker = zygote.spawn()
    try:
        assert worker.load({"main.py": source}, "main", 10) is None
        return worker.run(script, wire.pack_script(script), seconds), worker
    except BadFrame as error:
        return error, worker
    finally:
        worker.close()


def _serves(zygote: Zygote) -> bool:
    trace, _ = _run(zygote, FINE)
    return isinstance(trace, Trace) and list(trace.values.values()) == [7]


LOOPS = {
    "loop": "while True: pass",
    "loop in C": "return sum(range(10**18))",
    "loop that catches everything": """
    while True:
        try:
            while True: pass
        except BaseException: pass""",
    "sleep": "import time; time.sleep(100)",
    "ignored signals": """
    import signal, time
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: time.sleep(1)""",
    "regular expression": "import re; re.match('(a*)*b', 'a' * 100)",
    "waiting for a lock": "import threading; threading.Lock().acquire() and threading.Event().wait()",
    "a frame that never comes": """
    import os, struct, time
    os.write(3, struct.pack('<Q', 1 << 20))
    time.sleep(100)""",
    "reading the next question": "import os\n    while True: os.read(3, 1)",
}


@pytest.mark.parametrize("body", LOOPS.values(), ids=LOOPS)
def test_what_does_not_end_is_ended_by_the_clock(zygote: Zygote, body: str) -> None:
    started = time.monotonic()
    trace, worker = _run(zygote, f"def go():\n    {body}", 0.3)
    assert isinstance(trace, Trace) and trace.cause == "timeout" and trace.values == {}
    assert time.monotonic() - started < 0.3 + 2 * SLACK
    assert 0.3 <= trace.seconds < 0.3 + SLACK
    assert worker.end is not None and worker.end.code in (0, -signal.SIGKILL)
    assert _serves(zygote)


@pytest.mark.parametrize("pause", [0, 2e-4])
def test_an_answer_that_trickles_does_not_stop_the_clock(zygote: Zygote, pause: float) -> None:
    source = f"""
import os, struct, threading, time
def trickle():
    end = time.monotonic() + 6
    while time.monotonic() < end:
        os.write(3, b"x")
        time.sleep({pause})
def go():
    os.write(3, struct.pack("<Q", 60 << 20))
    for _ in range(16): threading.Thread(target=trickle).start()
    trickle()
"""
    trace, _ = _run(zygote, source, 0.5)
    assert isinstance(trace, Trace) and trace.cause == "timeout"
    assert trace.seconds < 0.5 + SLACK
    assert _serves(zygote)


WORKS_AND_WAITS = """
import time
def works():
    end = time.process_time() + 1
    while time.process_time() < end: pass
    return 7
def waits(until):
    time.sleep(max(0, until - time.time()))
    return 7
"""


@pytest.mark.parametrize(("seconds", "cause"), [(1.5, None), (4.0, "timeout")])
def test_what_hardly_had_a_processor_is_asked_once_more(
    zygote: Zygote, seconds: float, cause: str | None
) -> None:
    """However much it worked before. From outside a sleeper looks like one whom the machine stalls."""

    def ask(name: str, limit: float, *args: float) -> Trace:
        script = Script(dict.fromkeys(("works", "waits"), CALLS["go"]))
        script.call(name, *args)
        question = Question(script, wire.pack_script(script), name.encode())
        return submission.trace(question, limit)

    submission = Implementation(zygote, {"main.py": WORKS_AND_WAITS}, "main.py", Limits())
    try:
        assert ask("works", 10.0).cause is None
        assert ask("waits", 1.0, time.time() + seconds).cause == cause
    finally:
        submission.close()


CRASHES = {
    "os._exit(0)": ("import os; os._exit(0)", 0),
    "os._exit(3)": ("import os; os._exit(3)", 3),
    "a thread that exits": (
        "import os, threading, time\n"
        "    threading.Thread(target=os._exit, args=(5,)).start()\n"
        "    time.sleep(9)",
        5,
    ),
    "null pointer": ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
    "recursion in C": (
        "import sys; sys.setrecursionlimit(10**9)\n    f = lambda: f()\n    class A: pass\n"
        "    A.__repr__ = lambda self: repr(self)\n    return repr(A())",
        None,
    ),
    "closes the connection": ("import os; os.close(3)", None),
    "closes everything": ("import os; os.closerange(0, 64)", None),
    "replaces the connection": ("import os; os.dup2(os.open('/dev/null', 0), 3)", None),
}


@pytest.mark.parametrize("body, code", CRASHES.values(), ids=CRASHES)
def test_a_crash_is_told_with_its_exit_code(zygote: Zygote, body: str, code: int | None) -> None:
    trace, worker = _run(zygote, f"def go():\n    {body}")
    assert isinstance(trace, Trace) and trace.values == {}
    assert trace.cause == "crashed" or (code is None and trace.raised is not None)
    if code is not None:
        assert worker.end is not None and worker.end.code == code
    assert _serves(zygote)


RAISES = {
    "sys.exit": ("import sys; sys.exit()", "SystemExit"),
    "exit": ("raise SystemExit(0)", "SystemExit"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "GeneratorExit": ("raise GeneratorExit", "GeneratorExit"),
    "recursion": ("return go()", "RecursionError"),
    "fork": ("import os; os.fork()", "PermissionError"),
    "fork bomb": ("import os\n    while True: os.fork()", "PermissionError"),
    "system": ("import subprocess; subprocess.run(['/bin/sh', '-c', 'true'])", "*"),
    "a shell": ("import os; os.execv('/bin/sh', ['sh'])", "*"),
    "multiprocessing": ("import multiprocessing as m; m.Process(target=print).start()", "*"),
    "thread bomb": (
        "import threading, time\n"
        "    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "RuntimeError",
    ),
    "a huge file": ("open('/scratch/tmp/x', 'wb').write(bytes(50 << 20))", "*"),
    "many files": (
        "for i in range(10**6): open(f'/scratch/tmp/{i}', 'w').close()",
        "*",
    ),
    "many files at once": ("return len([open('/dev/null') for _ in range(10**5)])", "OSError"),
    "a full disk": (
        "for i in range(10**6): open(f'/scratch/tmp/{i}', 'wb').write(bytes(1 << 20))",
        "*",
    ),
    "output past its file": ("import os\n    while True: os.write(1, bytes(1 << 20))", "OSError"),
}


@pytest.mark.parametrize("body, kind", RAISES.values(), ids=RAISES)
def test_what_is_refused_or_raised_is_the_submission_s_error(
    zygote: Zygote, body: str, kind: str
) -> None:
    if "seccomp" not in _best().layers:
        pytest.skip(_best().notes[0])
    trace, _ = _run(zygote, f"def go():\n    {body}")
    assert isinstance(trace, Trace) and trace.cause is None
    assert trace.raised is not None and kind in ("*", trace.raised.type)
    assert _serves(zygote)


MEMORY = {
    "one array": "import numpy as np; return np.ones(1 << 30).sum()",
    "many": "x = []\n    while True: x.append(bytearray(1 << 20))",
    "a string": "return len('a' * (1 << 40))",
    "a map": "import mmap; return len(mmap.mmap(-1, 1 << 31))",
}


@pytest.mark.parametrize("body", MEMORY.values(), ids=MEMORY)
def test_memory_is_capped(zygote: Zygote, body: str) -> None:
    trace, worker = _run(zygote, f"def go():\n    {body}")
    assert isinstance(trace, Trace) and trace.values == {} and trace.raised is not None
    if trace.raised.type == "MemoryError":
        assert trace.cause == "out_of_memory"
    else:
        assert trace.raised.type == "OSError"  # mmap says ENOMEM
    assert worker.end is not None and worker.end.peak_kb < 300 << 10
    assert _serves(zygote)


# ---- memory that the grader watches, as it does where the address space cannot be limited -----------

WATCHED_MB = 256


@pytest.fixture(scope="module")
def watched() -> Iterator[Zygote]:
    caps = Caps(seconds=30, memory_mb=16, resident_mb=WATCHED_MB)
    with Zygote(_best().layers, ["numpy"], caps, _best().seccomp) as zygote:
        yield zygote


FILL = """
import os, struct, threading, time
import numpy as np
kept = []
def fill():
    while len(kept) < 200:
        kept.append(np.ones(2 << 20))
        time.sleep(0.005)
"""
GREEDY = {
    "in the call": "fill()",
    "in a thread": "threading.Thread(target=fill).start(); time.sleep(9)",
    "as an answer trickles": """
    threading.Thread(target=fill).start()
    os.write(3, struct.pack("<Q", 60 << 20))
    while True: os.write(3, b"x")""",
}


@pytest.mark.parametrize("body", GREEDY.values(), ids=GREEDY)
def test_what_takes_more_memory_than_it_may_is_ended_by_the_grader(
    watched: Zygote, body: str
) -> None:
    trace, worker = _run(watched, f"{FILL}def go():\n    {body}", 20)
    assert isinstance(trace, Trace) and trace.cause == "out_of_memory" and trace.values == {}
    assert worker.end is not None and worker.end.code == -signal.SIGKILL
    assert worker.end.peak_kb < 2000 << 10
    assert _serves(watched)


def test_what_takes_memory_between_two_questions_is_ended_at_the_second(watched: Zygote) -> None:
    script = Script(CALLS)
    result = script.call("go")
    worker = watched.spawn()
    try:
        source = f"{FILL}def go():\n    threading.Thread(target=fill).start(); return 7"
        assert worker.load({"main.py": source}, "main", 10) is None
        assert worker.run(script, wire.pack_script(script), 10)[result] == 7
        deadline = time.monotonic() + 10
        while _resident_kb(worker.pid) <= WATCHED_MB << 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert worker.run(script, wire.pack_script(script), 10).cause == "out_of_memory"
    finally:
        worker.close()


def test_address_space_that_is_not_in_use_costs_nothing_where_the_grader_watches(
    watched: Zygote,
) -> None:
    source = """
import mmap, time
def go():
    room = mmap.mmap(-1, 2 << 30)
    room[:1] = b"x"
    time.sleep(0.3)
    return 7
"""
    trace, _ = _run(watched, source)
    assert isinstance(trace, Trace) and list(trace.values.values()) == [7]


def test_a_gigabyte_of_output_costs_little(zygote: Zygote) -> None:
    source = """
def go():
    line = "x" * (1 << 20)
    for _ in range(1 << 10): print(line)
    return 7
"""
    script = Script(CALLS)
    result = script.call("go")
    worker = zygote.spawn()
    try:
        assert worker.load({"main.py": source}, "main", 10) is None
        assert worker.run(script, wire.pack_script(script), 20)[result] == 7
        text, size = worker.printed()
        assert size == zygote.caps.output_kb << 10
        assert set(text) == {"x"} and len(text) <= 2000
    finally:
        worker.close()


def test_output_is_kept_apart_and_its_end_is_shown(zygote: Zygote) -> None:
    worker = zygote.spawn()
    try:
        source = "import sys\nprint('out')\nprint('\\udcff err', file=sys.stderr)\n"
        assert worker.load({"main.py": source}, "main", 10) is None
        assert worker.printed() == ("out\n? err\n", 10)
    finally:
        worker.close()


FRAMES = {
    "garbage": b"garbage that is no frame at all",
    "a huge length": b"\xff" * 8 + b"x",
    "a length of 65 MB": (65 << 20).to_bytes(8, "little"),
    "another message": (1).to_bytes(8, "little") + b"\xc0",
    "text": (3).to_bytes(8, "little") + b"\xa2ok",
    "empty": (0).to_bytes(8, "little"),
    "a pickle": (4).to_bytes(8, "little") + b"\x80\x04N.",
}


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES)
def test_what_no_honest_worker_sends_is_a_bad_frame(zygote: Zygote, data: bytes) -> None:
    source = f"import os, time\ndef go():\n    os.write(3, {data!r})\n    time.sleep(20)"
    error, worker = _run(zygote, source)
    assert isinstance(error, BadFrame)
    assert worker.end is not None and worker.end.code in (0, -signal.SIGKILL)
    assert _serves(zygote)


BOMBS = {
    "empty dicts": "b'\\xdd' + struct.pack('>I', 1 << 24) + b'\\x80' * (1 << 24)",
    "empty lists": "b'\\xdd' + struct.pack('>I', 1 << 24) + b'\\x90' * (1 << 24)",
    "nothings": "b'\\xdd' + struct.pack('>I', 1 << 25) + b'\\xc0' * (1 << 25)",
    "lists of lists announced": "(b'\\xdd' + struct.pack('>I', 1 << 24)) * 500 + b'\\xc0' * (1 << 24)",
    "deep": "b'\\x91' * (1 << 22)",
    "a map": (
        "b'\\xdf' + struct.pack('>I', 1 << 22)"
        " + b''.join(b'\\xce' + struct.pack('>I', i) + b'\\x80' for i in range(1 << 18))"
    ),
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_a_bomb_costs_the_grader_neither_memory_nor_time(body: str) -> None:
    """In a process of its own, which may take 400 MB more than it has at the start."""
    level = _best()
    _run_python(
        f"""
import resource, time
from pathlib import Path
from softmark.isolation import wire
from softmark.isolation.host import Caps, Zygote
from softmark.script import Output, Script
script = Script({{"go": (Output("result", "scalar"),)}})
script.call("go")
source = r'''import os, struct, time
def go():
    body = {body}
    view = memoryview(struct.pack("<Q", len(body)) + body)
    while view: view = view[os.write(3, view):]
    time.sleep(20)
'''
with Zygote({level.layers!r}, ["numpy"], Caps(), {level.seccomp!r}) as zygote:
    worker = zygote.spawn()
    assert worker.load({{"main.py": source}}, "main", 10) is None
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (400 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    started = time.process_time()
    try:
        worker.run(script, wire.pack_script(script), 20)
    except wire.BadFrame:
        pass
    else:
        raise SystemExit("no BadFrame")
    taken = time.process_time() - started
    worker.close()
    assert taken < 2, f"took {{taken:.1f}} s"
    # ru_maxrss would still count what started this process
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) >> 10
    assert peak < 350, f"took {{peak}} MB"
"""
    )


def _run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


# ---- at every tier ---------------------------------------------------------------------------------


def _layers(tier: str) -> tuple[str, ...]:
    """The layers of ``tier`` that every machine of its kind has."""
    if tier in ("root", "container") and os.geteuid() != 0:
        pytest.skip("not root")
    missing = set() if _best().seccomp else {"seccomp"}
    missing |= set() if sandbox.landlock_version() else {"landlock"}
    return tuple(layer for layer in TIERS[tier] if layer not in missing)


def _start_tier(tier: str) -> Zygote:
    try:
        return _start(_layers(tier), _best().seccomp)
    except ZygoteFailed as error:
        pytest.skip(f"no tier '{tier}' here: {error}")


@pytest.mark.parametrize("tier", TIERS)
def test_at_every_tier_the_clock_a_crash_and_the_cap(tier: str) -> None:
    with _start_tier(tier) as zygote:
        ends = {"while True: pass": "timeout", "import os; os._exit(0)": "crashed"}
        ends |= {"import ctypes; ctypes.string_at(0)": "crashed"}
        ends |= {"return bytes(1 << 40)": "out_of_memory"}
        for body, cause in ends.items():
            trace, _ = _run(zygote, f"def go():\n    {body}", 0.3)
            assert isinstance(trace, Trace) and trace.cause == cause, body
            assert _serves(zygote)


# ---- loading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source, cause",
    {"while True: pass": "timeout", "import os; os._exit(0)": "crashed"}.items(),
)
def test_a_submission_that_cannot_be_imported_to_the_end(
    zygote: Zygote, source: str, cause: str
) -> None:
    worker = zygote.spawn()
    try:
        trace = worker.load({"main.py": source}, "main", 0.3)
        assert isinstance(trace, Trace) and trace.cause == cause
        assert not worker.alive
    finally:
        worker.close()
    assert _serves(zygote)


def test_a_bad_frame_in_place_of_the_first_answer(zygote: Zygote) -> None:
    source = "import os, struct\nos.write(3, struct.pack('<Q', 2) + b'\\xa1x')"
    worker = zygote.spawn()
    try:
        with pytest.raises(BadFrame):
            worker.load({"main.py": source}, "main", 10)
    finally:
        worker.close()
    assert worker.end is not None
    assert _serves(zygote)


# ---- the grader's own end, and the zygote's --------------------------------------------------------


def test_a_zygote_that_was_killed_is_the_grader_s_fault() -> None:
    zygote = _start(_best().layers, _best().seccomp)
    with zygote:
        assert _serves(zygote)
        below = _descendants(zygote.pid)
        os.kill(zygote.pid, signal.SIGKILL)
        while any(map(_alive, [zygote.pid, *below])):
            time.sleep(0.01)
        with pytest.raises(ZygoteFailed, match="the zygote has died"):
            zygote.spawn()


def test_a_zygote_killed_under_a_call_is_no_crash_of_the_submission() -> None:
    with _start(_best().layers, _best().seccomp) as zygote:
        threading.Timer(0.3, os.kill, (zygote.pid, signal.SIGKILL)).start()
        with pytest.raises(ZygoteFailed):
            _run(zygote, "def go():\n    while True: pass", 10)


def test_a_worker_that_cannot_be_confined_is_the_grader_s_fault() -> None:
    """An empty filter is refused by the kernel, in the child."""
    with _start((*_best().layers, "seccomp"), b"") as zygote, pytest.raises(ZygoteFailed):
        worker = zygote.spawn()
        try:
            worker.load({"main.py": FINE}, "main", 10)
        finally:
            worker.close()


@pytest.mark.parametrize("tier", TIERS)
def test_when_the_grader_is_killed_no_process_stays(tier: str) -> None:
    _start_tier(tier).close()
    code = f"""
import time
from softmark.isolation.host import Caps, Zygote
from softmark.isolation.wire import frame, pack
zygote = Zygote({_layers(tier)!r}, ["numpy"], Caps(), {_best().seccomp!r})
workers = []
for source in ("while True: pass", "import time; time.sleep(1000)"):
    workers.append(zygote.spawn())
    workers[-1]._connection.sendall(frame(pack([{{"main.py": source}}, "main", []])))
print(zygote.pid, flush=True)
time.sleep(1000)
"""
    grader = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE)
    with grader:
        assert grader.stdout is not None
        zygote = int(grader.stdout.readline())
        deadline = time.monotonic() + 60
        while len(below := [zygote, *_descendants(zygote)]) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(below) >= 3
        grader.kill()
    deadline = time.monotonic() + 5
    while (alive := [p for p in below if _alive(p)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive == []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _descendants(pid: int) -> list[int]:
    """The processes below ``pid``."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    below, found = [pid], []
    while below:
        below = [child for child, parent in parents.items() if parent in below]
        found += below
    return found


def _resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_a_hundred_workers_leave_everything_where_it_was(zygote: Zygote) -> None:
    def state() -> tuple[int, list[int], list[str], set[str]]:
        scratch = {p.name for p in Path("/tmp").iterdir() if "softmark" in p.name}
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return len(list(Path("/proc/self/fd").iterdir())), _descendants(zygote.pid), mounts, scratch

    inner = [zygote.pid, *_descendants(zygote.pid)][-1]

    def descriptors_of_the_zygote() -> int:
        return len(list(Path(f"/proc/{inner}/fd").iterdir()))

    for _ in range(5):
        assert _serves(zygote)
    before, memory = state(), _resident_kb(os.getpid())
    opened, theirs = descriptors_of_the_zygote(), _resident_kb(inner)
    for round in range(100):
        if round % 4 == 0:
            _run(zygote, "def go():\n    import os; os._exit(1)")
        elif round % 4 == 1:
            zygote.spawn().close()
        else:
            assert _serves(zygote)
    assert state() == before
    assert descriptors_of_the_zygote() == opened
    assert _resident_kb(os.getpid()) - memory < 4 << 10
    assert _resident_kb(inner) - theirs < 4 << 10


def test_many_workers_at_once(zygote: Zygote) -> None:
    workers = [zygote.spawn() for _ in range(12)]
    try:
        for number, worker in enumerate(workers):
            assert worker.load({"main.py": f"def go(): return {number}"}, "main", 10) is None
        script = Script(CALLS)
        result = script.call("go")
        for number, worker in reversed(list(enumerate(workers))):
            assert worker.run(script, wire.pack_script(script), 10)[result] == number
            worker.kill()
    finally:
        for worker in workers:
            worker.close()
    assert _serves(zygote)
