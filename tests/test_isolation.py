"""What a submission can reach: nothing, at every tier this machine gives; and the layers are why."""

from __future__ import annotations

import functools
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from softmark.isolation import sandbox, tiers, wire
from softmark.isolation.host import Caps, Worker, Zygote
from softmark.isolation.tiers import GUARANTEES, TIERS, IsolationRefused, Level
from softmark.script import Output, Script

SUBMISSION_CALLS = {"look": (Output("found", "list"),)}
ENVIRONMENT = {
    "PATH",
    "HOME",
    "CUDA_VISIBLE_DEVICES",
    "TMPDIR",
    "LC_ALL",
    "PYTHONHASHSEED",
    "PYTHONDONTWRITEBYTECODE",
    "OMP_NUM_THREADS",
    "TRITON_INTERPRET",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
}


@functools.cache
def _levels() -> dict[str, Level | str]:
    return tiers.survey()


def _level(tier: str) -> Level:
    level = _levels()[tier]
    if isinstance(level, str):
        pytest.skip(f"no tier '{tier}' here: {level}")
    return level


def _start(level: Level, minus: tuple[str, ...] = ()) -> Zygote:
    layers = [layer for layer in level.layers if layer not in minus]
    return Zygote(layers, ["numpy"], Caps(seconds=30, memory_mb=256), level.seccomp)


@functools.cache
def _breaches(tier: str, minus: tuple[str, ...]) -> list[str]:
    """What the probe reaches at a tier without some of its layers."""
    with _start(_level(tier), minus) as zygote:
        return tiers._probe(zygote, [])


@pytest.fixture(scope="module", params=TIERS)
def level(request: pytest.FixtureRequest) -> Level:
    return _level(request.param)


@pytest.fixture(scope="module")
def zygote(level: Level) -> Iterator[Zygote]:
    with _start(level) as zygote:
        yield zygote


@dataclass
class Loaded:
    """A live worker with a submission in it."""

    worker: Worker

    def look(self, *args: object) -> list:
        script = Script(SUBMISSION_CALLS)
        found = script.call("look", *args)
        trace = self.worker.run(script, wire.pack_script(script), 20)
        assert (trace.raised, trace.cause) == (None, None)
        return trace[found]


@pytest.fixture
def load(zygote: Zygote) -> Iterator:
    workers = []

    def load(source: str) -> Loaded:
        workers.append(zygote.spawn())
        assert workers[-1].load({"main.py": source}, "main", 20) is None
        return Loaded(workers[-1])

    yield load
    for worker in workers:
        worker.close()


# ---- the guarantees, and what they rest on ---------------------------------------------------------


def test_nothing_is_reached(level: Level) -> None:
    if level.notes and "seccomp" not in level.layers:
        pytest.skip(level.notes[0])
    assert level.breaches == ()
    assert level.holds == dict.fromkeys(GUARANTEES, True)


CONTROLS = {
    "root, reads": ("root", ("private_root", "landlock"), "files: could read /"),
    "plain, reads": ("plain", ("seccomp", "landlock"), "files: could read /"),
    "root, writes": ("root", ("private_root", "landlock"), "files: could write to"),
    "plain, imports": ("plain", ("seccomp", "landlock"), "files: could import"),
    "root, TCP": ("root", ("namespaces", "landlock", "seccomp"), "network: could connect over TCP"),
    "root, sockets": (
        "root",
        ("namespaces", "landlock", "seccomp"),
        "network: could connect over an",
    ),
    "root, fork": ("root", ("seccomp",), "memory: could fork"),
    "userns, fork": ("userns", ("seccomp",), "memory: could fork"),
    "container, fork": ("container", ("seccomp",), "processes: could fork"),
    "plain, fork": ("plain", ("seccomp",), "processes: could fork"),
    "plain, F_SETOWN": ("plain", ("seccomp", "landlock"), "processes: could direct signals"),
    "plain, kill": ("plain", ("seccomp", "landlock"), "processes: could signal"),
    "plain, sight": ("plain", ("seccomp", "landlock"), "processes: could see"),
    "plain, memory": ("plain", ("seccomp", "landlock"), "memory: could look into"),
    "plain, exec": ("plain", ("seccomp", "landlock"), "processes: could start"),
}


@pytest.mark.parametrize("tier, minus, breach", CONTROLS.values(), ids=CONTROLS)
def test_without_its_layers_the_probe_finds_the_breach(
    tier: str, minus: tuple[str, ...], breach: str
) -> None:
    if breach.startswith("memory") and os.geteuid() == 0:
        pytest.skip("the grader's capabilities protect it, too")
    found = _breaches(tier, minus)
    assert any(f.startswith(breach) for f in found), found


@pytest.mark.parametrize("layer", TIERS["root"])
def test_no_single_layer_of_the_strongest_tier_is_the_only_one(layer: str) -> None:
    level = _level("root")
    if level.layers != TIERS["root"]:
        pytest.skip("some layer is missing already")
    # that a submission has one process, and so one cap, is seccomp's alone
    found = [b for b in _breaches("root", (layer,)) if not b.startswith("memory: could fork")]
    assert found == []


def test_the_probe_sees_memory_that_is_not_capped() -> None:
    with _start(tiers.reach()) as zygote:
        zygote.caps = replace(zygote.caps, memory_mb=16)  # it has more
        assert "memory: could take 16 MB more than it has" in tiers._probe(zygote, [])


def test_the_probe_sees_a_canary_in_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zygote that knew the secret would hand it to every child; here the submission brings it."""
    halves = iter(["0123456789abcdef0123456789abcdef", "x", "y"])
    source = Path(tiers.__file__).parent / "probe.py"
    planted = f'KEPT = {{"answer": ["0123456789abcdef" "0123456789abcdef"]}}\n{source.read_text()}'
    with _start(tiers.reach()) as zygote:
        monkeypatch.setattr(secrets, "token_hex", lambda _: next(halves))
        monkeypatch.setattr(Path, "read_text", lambda *_, **__: planted)
        assert any("canary" in breach for breach in tiers._probe(zygote, []))


# ---- what a submission finds -----------------------------------------------------------------------

FILES = """
import os

def look(places, names):
    found = []
    for place in places:
        for root in ("", "/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../../../../../.."):
            try:
                found.append(open(root + place).read())
            except OSError:
                pass
    for folder, folders, files in os.walk("/"):
        found += [os.path.join(folder, f) for f in (*folders, *files) if f in names]
    return found
"""


def test_no_file_of_the_grader(load, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as open_folder:  # one that every user may enter
        Path(open_folder).chmod(0o755)
        places = []
        for name in (
            "solution_q.py",
            "test_grader_q.py",
            "expected_q.npz",
            "other_submission_q.py",
        ):
            for folder in (Path(open_folder), tmp_path):
                (folder / name).write_text("secret")
                places.append(str(folder / name))
        names = [Path(place).name for place in places] + ["graders", "solutions", "softmark"]
        assert load(FILES).look(places, names) == []


MEMORY = """
import gc, sys

def look(start, end):
    seen, todo, found = set(), [sys.modules, *gc.get_objects()], []
    frame = sys._getframe()
    while frame:
        todo += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, (str, bytes)):
            text = thing if isinstance(thing, str) else thing.decode("latin-1")
            if start in text and end in text:
                found.append(text[:80])
        else:
            todo += gc.get_referents(thing)
    return found
"""


def test_no_other_submission_and_no_expected_value_among_its_objects(load) -> None:
    start, end = secrets.token_hex(16), secrets.token_hex(16)
    expected = {"values": [start + end]}
    load(f'ANSWER = "{start}{end}"\ndef look(): return [ANSWER]').look()
    assert load(MEMORY).look(start, end) == []
    # the search finds what is there
    assert load(f'KEPT = ["{start}{end}"]\n{MEMORY}').look(start, end) != []
    assert expected


def test_the_fixed_environment_only(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_TOKEN", "secret")
    source = """
import ctypes, os, sys

def look():
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    raw = [n for n in ("GRADER_TOKEN", "USER", "VIRTUAL_ENV", "HOSTNAME") if getenv(n.encode())]
    return [sorted(os.environ), raw, sys.argv[1:2] == ["secret"]]
"""
    names, raw, _ = load(source).look()
    assert set(names) <= ENVIRONMENT
    assert raw == []


def test_the_grader_s_environment_does_not_reach_the_zygote(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_TOKEN", "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    source = "import os\ndef look(): return sorted(os.environ)"
    with _start(level) as zygote:
        worker = zygote.spawn()
        try:
            assert worker.load({"main.py": source}, "main", 20) is None
            assert set(Loaded(worker).look()) <= ENVIRONMENT
        finally:
            worker.close()


def test_only_the_runtime_is_importable(load) -> None:
    source = """
import importlib, sys

def look(names, paths):
    sys.path += paths
    found = []
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError):
            if paths:  # it is seen, but cannot be read
                continue
        found.append(name)
    return found
"""
    names = ["torch", "pytest", "_pytest", "pydantic", "yaml", "rich", "typer"]
    paths = [p for p in sys.path if "site-packages" in p]
    assert load(source).look(names, []) == []
    assert load(source).look([*names, "softmark.session"], paths) == []


@pytest.mark.parametrize("name", ["numpy.ma", "numpy.fft", "numpy.linalg", "statistics", "random"])
def test_numpy_and_the_standard_library_are(load, name: str) -> None:
    source = f"import {name}\nimport numpy as np\ndef look(): return [str(np.ma.array([1]).sum())]"
    assert load(source).look() == ["1"]


def test_late_imports_work_where_the_runtime_is_readable(zygote: Zygote, load) -> None:
    if zygote.closed:
        pytest.skip(f"only root may enter {zygote.closed}")
    source = "def look():\n import colorsys, xml.dom, email.mime.text, numpy.f2py\n return ['fine']"
    assert load(source).look() == ["fine"]


def test_the_null_device_can_be_written_to(load) -> None:
    source = (
        "import os\ndef look(): return [open(os.devnull, 'w').write('x'), open('/dev/null').read()]"
    )
    assert load(source).look() == [1, ""]


def test_what_one_submission_writes_the_next_does_not_find(level: Level) -> None:
    """Also where the file layer is the private root alone."""
    source = """
import os, sys

def look():
    places = [*sys.path, os.path.dirname(os.__file__), "/", "/dev", "/dev/shm", "/tmp", "/var/tmp"]
    places += [p + "/site-packages" for p in places] + ["/scratch", "/scratch/tmp", os.getcwd()]
    paths = {os.path.join(place, "planted-by-a-test") for place in places}
    found = sorted(path for path in paths if os.path.exists(path))
    for path in paths:
        try:
            open(path, "w").close()
        except OSError:
            pass
    return found
"""
    minus = ("landlock",) if "private_root" in level.layers else ()
    with _start(level, minus) as zygote:
        for _ in range(2):
            worker = zygote.spawn()
            try:
                assert worker.load({"main.py": source}, "main", 20) is None
                assert Loaded(worker).look() == []
            finally:
                worker.close()


def test_no_descriptor_but_its_own(load) -> None:
    source = """
import os

def look():
    found = []
    for number in range(4, 256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found
"""
    assert load(source).look() == []


SIBLING = """
import os

def look(*args):
    return [os.getpid(), os.getuid()]
"""
REACH_OUT = """
import ctypes, os, signal, socket

def look(pids):
    libc = ctypes.CDLL(None, use_errno=True)
    found = []
    tries = {
        "kill": lambda pid: os.kill(pid, 0),
        "killpg": lambda pid: os.killpg(pid, 0),
        "pidfd": lambda pid: os.close(os.pidfd_open(pid)),
        "sched": lambda pid: os.sched_setaffinity(pid, {0}),
        "ptrace": lambda pid: 1 / (libc.ptrace(16, pid, 0, 0) + 1),
        "exec": lambda pid: os.posix_spawn("/bin/sh", ["sh", "-c", "true"], {}),
        "fork": lambda pid: os._exit(0) if os.fork() == 0 else None,
        "setuid": lambda pid: os.setuid(1) or os.setuid(0),
        "unshare": lambda pid: 1 / (libc.unshare(0x10000000) + 1),
        "mount": lambda pid: 1 / (libc.mount(b"none", b"/dev", b"tmpfs", 0, None) + 1),
        "chroot": lambda pid: os.chroot("/"),
        "socket": lambda pid: socket.socket(),
        "netlink": lambda pid: socket.socket(16, 3, 0),
        "environ": lambda pid: open(f"/proc/{pid}/environ").read(),
        "list": lambda pid: os.listdir("/proc"),
        "shm": lambda pid: 1 / (libc.shmget(1, 4096, 0o1666) + 1),
        "rlimit": lambda pid: __import__("resource").setrlimit(0, (1, 1)),
    }
    for name, action in tries.items():
        for pid in pids:
            try:
                action(pid)
            except (OSError, ZeroDivisionError, ImportError, ValueError):
                continue
            found.append(f"{name} {pid}")
    return found
"""


def test_no_process_and_no_way_to_one(load, level: Level, zygote: Zygote) -> None:
    if "seccomp" not in level.layers:
        pytest.skip(level.notes[0])
    sibling = load(SIBLING)
    inside, uid = sibling.look()
    outside = _descendants(zygote.pid)
    found = load(REACH_OUT).look([os.getpid(), os.getppid(), *outside])
    assert found == []
    assert sibling.look() == [inside, uid]
    if "user" in level.layers:
        assert uid not in (0, os.getuid())


OWN_PROC = """
import ctypes, os

def look(pids):
    found = [open("/proc/self/status").readline().split()[0]]
    for pid in pids:
        for name in ("cmdline", "environ", "stat", "maps", "root/etc/passwd", "fd", "task"):
            path = f"/proc/{pid}/{name}"
            for reach in (os.listdir, lambda path: open(path, "rb").read()):
                try:
                    reach(path)
                except OSError:
                    continue
                found.append(path)
    if ctypes.CDLL(None).umount2(b"/proc", 2) == 0:
        found.append("umount")
    try:
        seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        seen = []
    return found + [str(pid) for pid in seen if pid != os.getpid()]
"""


def test_with_a_proc_no_process_but_its_own_is_in_it(level: Level, zygote: Zygote) -> None:
    """As a GPU's driver needs it."""
    outside = [os.getpid(), os.getppid(), zygote.pid, *_descendants(zygote.pid)]
    with Zygote([*level.layers, "proc"], ["numpy"], Caps(seconds=30), level.seccomp) as other:
        sibling, worker = other.spawn(), other.spawn()
        try:
            outside += [other.pid, *_descendants(other.pid)]
            assert worker.load({"main.py": OWN_PROC}, "main", 20) is None
            within = [worker.pid] if "private_root" not in level.layers else [1]
            others = sorted(set(outside) - set(within))
            assert Loaded(worker).look(others) == ["Name:"]
        finally:
            worker.close(), sibling.close()


# ---- what is left, and what others see -------------------------------------------------------------


def _descendants(pid: int) -> list[int]:
    """The processes below ``pid``, parents first."""
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


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def _open() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_nothing_is_left(level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = """
import os, threading, time

def look():
    for _ in range(3):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    for action in (
        lambda: open("left-behind", "w").write("x"),
        lambda: os.fork() or time.sleep(1000),
        lambda: os.mkdir("/tmp/softmark-left-behind"),
    ):
        try:
            action()
        except OSError:
            pass
    return []
"""
    mounts, descriptors = _mounts(), len(_open())
    with _start(level) as zygote:
        before = _descendants(zygote.pid)
        worker = zygote.spawn()
        assert worker.load({"main.py": source}, "main", 20) is None
        Loaded(worker).look()
        assert len(_descendants(zygote.pid)) > len(before)
        worker.close()
        assert _descendants(zygote.pid) == before
        pids = [zygote.pid, *before]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert _mounts() == mounts
    assert len(_open()) == descriptors
    assert list(tmp_path.iterdir()) == []
    assert not Path("/tmp/softmark-left-behind").exists()


def _holds(pid: int, needle: bytes) -> bool:
    """Whether the memory of a process contains ``needle``, as root sees it."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            if "r" not in rights or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            try:
                memory.seek(start)
                if needle in memory.read(end - start):
                    return True
            except (OSError, OverflowError):
                continue
    return False


def test_a_secret_of_the_grader_is_in_no_worker_s_memory(load, zygote: Zygote) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may read the memory of a worker")
    secret, sent = secrets.token_hex(24), secrets.token_hex(24)
    expected = {"values": secret}  # what a grader knows
    sender = load(f'SENT = "{sent}"\n{SIBLING}')
    sender.look()
    processes = [zygote.pid, *_descendants(zygote.pid)]
    sending = set(processes)
    other = load(SIBLING)
    other.look([1])
    processes = [zygote.pid, *_descendants(zygote.pid)]
    assert len(processes) > len(sending)
    assert not [pid for pid in processes if _holds(pid, expected["values"].encode())]
    # the search finds a text where it is: in the one worker that it was sent to, not in the zygote
    assert len([pid for pid in processes if _holds(pid, sent.encode())]) == 1
    assert _holds(os.getpid(), secret.encode())


# ---- refusals --------------------------------------------------------------------------------------


def _python(code: str, seconds: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reach_gives_the_strongest_tier_with_what_it_is_worth() -> None:
    reached = [tier for tier, level in _levels().items() if isinstance(level, Level)]
    level = tiers.reach()
    assert level.tier == reached[0]
    assert level.summary() == {"tier": level.tier, **dict(level.holds)}


def test_a_private_umask_costs_no_tier() -> None:
    code = "import os; os.umask(0o077); from softmark.isolation import tiers; print(tiers.reach().tier)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == tiers.reach().tier


def test_below_the_tier_asked_for_it_refuses_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # as an ordinary user: no root, no container
    with pytest.raises(
        IsolationRefused, match=r"'root' or stronger \(root: not root\).*run as root"
    ):
        tiers.reach("root")


def test_a_course_inside_the_runtime_is_refused(tmp_path: Path) -> None:
    folder = Path(os.__file__).parent / "json"
    with pytest.raises(IsolationRefused, match="could read the solutions \\(files: "):
        tiers.reach(secret=[folder])
    level = tiers.reach("none", [folder])
    assert not level.holds["files"]
    assert any(str(folder) in breach for breach in level.breaches)


@pytest.mark.parametrize("least", ["none", "plain", None])
def test_where_no_tier_starts_it_refuses(
    least: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "_try", lambda *_: "the kernel says no")
    with pytest.raises(IsolationRefused, match="the kernel says no"):
        tiers.reach(least)


def test_a_tier_that_does_not_exist_is_refused() -> None:
    with pytest.raises((IsolationRefused, ValueError), match="fortress"):
        tiers.reach("fortress")


def test_without_libseccomp_the_tiers_start_and_say_how_to_get_it() -> None:
    out = _python(
        "import sys; sys.modules['pyseccomp'] = None\n"
        "from softmark.isolation import tiers\n"
        "for tier, level in tiers.survey().items():\n"
        "    if isinstance(level, str): print(tier, 'none', level); continue\n"
        "    assert 'seccomp' not in level.layers and level.seccomp == b''\n"
        "    assert any('apt install libseccomp2' in note for note in level.notes)\n"
        "    assert level.holds['files'], level.breaches\n"
        "    print(tier, level.holds['processes'])\n"
        "try: tiers.reach()\n"
        "except tiers.IsolationRefused as error: assert 'apt install' in str(error), error\n"
        "else: raise SystemExit('not refused')\n"
    )
    said = dict(line.split(maxsplit=1) for line in out.splitlines())
    for tier, level in _levels().items():
        if isinstance(level, Level):
            # a PID namespace ends whatever a submission forks; without one it says so
            assert said[tier] == str("namespaces" in level.layers)


def test_without_landlock_the_plain_tier_is_refused_unless_named() -> None:
    if not isinstance(_levels()["plain"], Level):
        pytest.skip("no plain tier here")
    out = _python(
        "from softmark.isolation import sandbox, tiers\n"
        "sandbox.landlock_version = lambda: 0\n"
        "tiers.TIERS = {'plain': tiers.TIERS['plain']}\n"
        "level = tiers.reach('none')\n"
        "tiers._try = lambda *_: level\n"
        "try: tiers.reach()\n"
        "except tiers.IsolationRefused as error: print(error)\n"
        "print(level.tier, level.layers, level.holds['files'], level.notes)\n"
    )
    refused, accepted = out.splitlines()
    assert "read the solutions" in refused and "--isolation none" in refused
    assert accepted.startswith("plain ('seccomp',) False") or accepted.startswith("plain () False")
    assert "no Landlock" in accepted


def test_without_landlock_a_private_root_is_enough() -> None:
    assert not [b for b in _breaches("userns", ("landlock",)) if b.startswith("files")]


def test_landlock_rules_of_files_do_not_narrow_those_of_folders(tmp_path: Path) -> None:
    if sandbox.landlock_version() == 0:
        pytest.skip("no Landlock in this kernel")
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    out = _python(
        "import os\n"
        "from softmark.isolation import sandbox\n"
        f"sandbox.landlock_restrict(sandbox.landlock_ruleset("
        f"[{str(tmp_path / 'a.txt')!r}, {str(tmp_path / 'folder')!r}], []))\n"
        f"print(open({str(tmp_path / 'a.txt')!r}).read(), os.listdir({str(tmp_path / 'folder')!r}))\n"
        "try: os.listdir('/')\n"
        "except PermissionError: print('no more')\n"
    )
    assert out.split("\n") == ["x []", "no more", ""]


def test_an_unknown_layer_or_distribution_is_an_error_of_the_grader() -> None:
    with pytest.raises(tiers.ZygoteFailed, match="no-such-distribution"):
        Zygote(tiers.reach().layers, ["no-such-distribution"], Caps(), b"")


def test_where_the_probe_dies_the_tier_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with _start(tiers.reach()) as zygote:
        monkeypatch.setattr(Path, "read_text", lambda *_, **__: "def probe(*a): raise OSError(1)")
        with pytest.raises(tiers.ProbeFailed, match="OSError: 1"):
            tiers._probe(zygote, [])
