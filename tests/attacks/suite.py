"""Hostile submissions, graded by the ordinary command at a level of isolation, and what came of them.

    python tests/attacks/suite.py                  every level of this machine, a table on the terminal
    python tests/attacks/suite.py root plain       these levels
    python tests/attacks/suite.py --write          every level; the table goes to docs/threat-model.md

An attack is a file in ``submissions/<family>/``: a docstring of one line that says what it tries, then
comments that say what must come of it, then code. It is handed in as the right solution of ``course/``
with the attack's code at its end. The comments:

    # loses: scale.values, layer.grads     the items that its honest part does not earn; or: all
    # status: rejected                     how it ends; graded, if nothing is said
    # flag: imports os                     what a person is told of it
    # claim: softmax.quiet                 an item it earns by a false claim, as the threat model admits
    # reached: container, plain            the levels that do not stop it, as the threat model admits
    # file: target_torch.py                the file that the code goes into, here the twin's
    # beside: numpy.py, conftest.py        the code is handed in as these files, too

An attack that finds what it looks for says so by a call of ``reached(what)``, which raises. It may
know everything that an attacker could learn: ``@course@``, ``@out@`` (the folder of results),
``@neighbour@`` (another submission), ``@home@`` and ``@victim@`` (a file and a process of the
grader's user), ``@port@``, ``@udp@``, ``@socket@`` and ``@abstract@`` (servers of this machine) stand
for the real ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from softmark.isolation import sandbox

HERE = Path(__file__).resolve().parent
TOPIC = "00_target"
TWIN = "target_torch.py"

_COMMAND = Path(sys.executable).with_name("softmark")
_HEADER = re.compile(r"# (loses|status|flag|claim|reached|file|beside): (.+)")
_SECRETS = ("solution", "grader", "neighbour", "earlier", "home", "environment")
_KEPT = ("course", "class", "home")
_MOST_SECONDS = 20
"""What one may take: the 4 s of a submission, a second try of it, and a busy machine."""
_END = """

# ---- the attack


def reached(what):
    raise RuntimeError("REA" "CHED " + str(what)[:300])


"""


@dataclass(frozen=True)
class Attack:
    """One file of ``submissions/``; ``tries`` is its docstring."""

    family: str
    name: str
    tries: str
    code: str
    loses: tuple[str, ...] = ()
    status: str = "graded"
    flag: str = ""
    claim: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    file: str = "target.py"
    beside: tuple[str, ...] = ()


def read_attacks() -> list[Attack]:
    """All of them, in the order of their families and names."""
    return [_read(path) for path in sorted((HERE / "submissions").rglob("*.py"))]


def _read(path: Path) -> Attack:
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    tries = re.fullmatch(r'r?"""(.+)"""', first)
    if not tries:
        raise ValueError(f'{path}: the first line should say what it tries: """..."""')
    said = {}
    while lines and (not lines[0] or (match := _HEADER.fullmatch(lines[0]))):
        if lines.pop(0):
            said[match[1]] = match[2]
    listed = {
        key: tuple(part.strip() for part in said.pop(key, "").split(",") if part.strip())
        for key in ("loses", "claim", "reached", "beside")
    }
    code = "\n".join(lines) + "\n"
    return Attack(path.parent.name, path.stem, tries[1], code, **listed, **said)


# ---- levels --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Level:
    """How to run a command so that this is the strongest tier that it finds."""

    capabilities: tuple[int, ...] | None = ()
    """Which of root's it is run with; None: all."""
    denied: tuple[str, ...] = ()
    """System calls that the machine is made to refuse."""
    option: str | None = None
    """What ``--isolation`` says."""


_CAPABILITIES, _CAP_SETFCAP, _PR_CAPBSET_DROP = 64, 31, 24
_NO_NAMESPACES = ("unshare", "setns", "mount", "pivot_root")
LEVELS: Mapping[str, Level] = {
    "root": Level(None),
    # without it root itself, unlike other users, may not be mapped into a namespace
    "userns": Level((_CAP_SETFCAP,)),
    # as Docker does by default
    "container": Level(None, denied=_NO_NAMESPACES),
    "plain": Level(denied=_NO_NAMESPACES),
}
"""The tiers of ``softmark.isolation.tiers``, strongest first."""

UNPROTECTED = "none"
_UNPROTECTED = Level((), (*_NO_NAMESPACES, "landlock_create_ruleset"), UNPROTECTED)
"""No layer at all: what the attacks do where nothing stops them."""


def why_not(level: str) -> str:
    """Why this level cannot be tried here; "" where it can."""
    wanted = _UNPROTECTED if level == UNPROTECTED else LEVELS[level]
    if wanted.capabilities is None and os.geteuid() != 0:
        return "not root"
    return ""


def _become(level: Level) -> None:
    """In the new process, before the command: give up what the level does not have."""
    if level.capabilities is not None and os.geteuid() == 0:
        # what is left after the next exec is a user who owns root's files, and has no other right
        for capability in set(range(_CAPABILITIES)) - set(level.capabilities):
            sandbox._libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if level.denied:
        import errno

        import pyseccomp as seccomp

        rules = seccomp.SyscallFilter(seccomp.ALLOW)
        for name in level.denied:
            # as a kernel without Landlock says it, and as one without the right says it
            code = errno.ENOSYS if name.startswith("landlock") else errno.EPERM
            rules.add_rule(seccomp.ERRNO(code), name)
        rules.load()


# ---- one class of submissions, graded ------------------------------------------------------------


@dataclass
class Ground:
    """Where the attacks take place: course, submissions, results, and what is to be kept from them."""

    folder: Path
    canaries: dict[str, str]
    places: dict[str, str]
    kept: dict[Path, str] = field(default_factory=dict)
    """The files that no attack may change, and their digests."""
    connections: list[socket.socket] = field(default_factory=list)

    @property
    def place(self) -> Path:
        """The folder that the command is given in: that of a submission with most files beside it."""
        return max((self.folder / "class").iterdir(), key=lambda one: len(list(one.iterdir())))

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def spoiled(self) -> list[str]:
        """What was reached from outside of the results: files changed, servers called."""
        found = [
            f"{path} was changed"
            for path, digest in self.kept.items()
            if not path.is_file() or _digest(path) != digest
        ]
        for server in self.connections:
            with contextlib.suppress(BlockingIOError):
                if server.type == socket.SOCK_DGRAM:
                    server.recv(1)
                else:
                    server.accept()[0].close()
                found.append(f"a server was called: {server.getsockname()}")
        if not _alive(int(self.places["victim"])):
            found.append("a process was stopped or killed")
        made = {p for place in _KEPT for p in (self.folder / place).rglob("*") if p.is_file()}
        return [*found, *(f"{path} was made" for path in made - set(self.kept))]

    def leaked(self, printed: str) -> list[str]:
        """The canaries in what the command printed and wrote, for anybody to read."""
        texts = [printed, *(p.read_text("utf-8", "replace") for p in self.out.rglob("*.*"))]
        kept = {kind: value for kind, value in self.canaries.items() if kind != "earlier"}
        return [f"the {kind} canary is out" for kind, value in kept.items() if value in str(texts)]


@contextlib.contextmanager
def prepare(attacks: Sequence[Attack], every: int = 2) -> Iterator[Ground]:
    """A class in which each attack sits beside right and wrong submissions: it is one of ``every``."""
    with tempfile.TemporaryDirectory(prefix="attacked-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        canaries = {kind: f"canary{secrets.token_hex(12)}" for kind in _SECRETS}
        shutil.copytree(HERE / "course", folder / "course")
        course = folder / "course"
        _plant(course / f"solutions/{TOPIC}/target.py", canaries["solution"])
        _plant(course / f"autograder/graders/{TOPIC}/test_target.py", canaries["grader"])
        (folder / "home").mkdir()
        (folder / "home/secret.txt").write_text(canaries["home"])
        (folder / "out/results").mkdir(parents=True)
        (folder / "out/results/earlier.json").write_text(json.dumps(canaries["earlier"]))
        servers = _servers(folder)
        for server in servers:
            stack.enter_context(server)
        victim = stack.enter_context(_victim())
        ground = Ground(
            folder,
            canaries,
            {
                "course": str(course),
                "out": str(folder / "out"),
                "neighbour": str(folder / "class/000_neighbour_0_right/target.py"),
                "home": str(folder / "home/secret.txt"),
                "victim": str(victim),
                "port": str(servers[0].getsockname()[1]),
                "udp": str(servers[1].getsockname()[1]),
                "socket": str(folder / "socket"),
                "abstract": servers[3].getsockname()[1:].decode(),
            },
            connections=servers,
        )
        for number, attack in enumerate(attacks):
            for one in range(every - 1):
                kind = ("right", "wrong")[(number + one) % 2]
                kind += "_twin" if attack.file == TWIN and one == 0 else ""
                _hand_in_neighbour(ground, kind, f"{number:03}_neighbour_{one}_{kind}")
            _hand_in(ground, f"{number:03}_{attack.family}_{attack.name}", attack)
        for kind in ("right", "wrong", "right_twin", "wrong_twin"):
            _hand_in_neighbour(ground, kind, kind, "alone")
        for path in sorted(folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        folder.chmod(0o755)
        ground.kept = {p: _digest(p) for p in folder.rglob("*") if p.is_file()}
        yield ground


def _plant(path: Path, canary: str) -> None:
    """Where a reader of the file or of the process that loads it would find it."""
    path.write_text(f'{path.read_text()}\n\nCANARY = ["{canary}"]\n')


def _servers(folder: Path) -> list[socket.socket]:
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unix.bind(str(folder / "socket"))
    abstract.bind(f"\0attacked-{secrets.token_hex(8)}")
    for server in (unix, abstract):
        server.listen()
    servers = [tcp, udp, unix, abstract]
    for server in servers:
        server.setblocking(False)
    return servers


@contextlib.contextmanager
def _victim() -> Iterator[int]:
    """A process of the user who grades."""
    with subprocess.Popen(["sleep", "3600"], preexec_fn=sandbox.die_with_parent) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _hand_in(ground: Ground, id: str, attack: Attack) -> None:
    place = ground.folder / "class" / id
    place.mkdir(parents=True)
    code = re.sub(r"@(\w+)@", lambda match: ground.places[match[1]], attack.code)
    for name in {"target.py", attack.file}:
        (place / name).write_text(_reference(name))
    with (place / attack.file).open("a") as file:
        file.write(_END + code)
    for name in attack.beside:
        (place / name).write_text(code)


def _hand_in_neighbour(ground: Ground, kind: str, id: str, folder: str = "class") -> None:
    place = ground.folder / folder / id
    place.mkdir(parents=True)
    text = _reference("target.py")
    text = text.replace("return k * x", "return k + x") if "wrong" in kind else text
    (place / "target.py").write_text(f"{text}\n\nCANARY = '{ground.canaries['neighbour']}'\n")
    if "twin" in kind:
        (place / TWIN).write_text(_reference(TWIN))


def _reference(name: str) -> str:
    return (HERE / f"course/solutions/{TOPIC}/{name}").read_text()


@dataclass(frozen=True)
class Graded:
    """What the command left: results by id, what it printed, how long it took."""

    results: Mapping[str, dict]
    printed: str
    code: int
    seconds: float


def grade(ground: Ground, level: str, folder: str = "class", workers: int = 2) -> Graded:
    """Grade a folder of the ground by the ordinary command, at this level and no better one."""
    setup = _UNPROTECTED if level == UNPROTECTED else LEVELS[level]
    out = ground.out if folder == "class" else ground.folder / f"out_{folder}"
    out.mkdir(exist_ok=True)
    temporary = ground.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(ground.folder / "home"),
        "TMPDIR": str(temporary),
        "COLUMNS": "140",
        "CANARY": ground.canaries["environment"],
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if level == UNPROTECTED:
        without = ground.folder / "without"
        without.mkdir(exist_ok=True)
        (without / "pyseccomp.py").write_text("raise ImportError\n")
        environment["PYTHONPATH"] = str(without)
    options = ["--topic", TOPIC, "--course", str(ground.folder / "course"), "--out", str(out)]
    options += ["--workers", str(workers), "--seed", "7"]
    options += ["--isolation", setup.option] if setup.option else []
    started = time.monotonic()
    done = subprocess.run(
        [_COMMAND, "grade", str(ground.folder / folder), *options],
        env=environment,
        cwd=ground.place,
        preexec_fn=lambda: _become(setup),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=900,
        check=False,
    )
    paths = [p for p in (out / "results").glob("*.json") if p.name != "earlier.json"]
    results = {path.stem: json.loads(path.read_text()) for path in paths}
    return Graded(results, done.stdout, done.returncode, time.monotonic() - started)


# ---- what came of an attack ----------------------------------------------------------------------


def problems(ground: Ground, attack: Attack, id: str, level: str, graded: Graded) -> list[str]:
    """What is not as it should be with this attack: nothing, where it was held."""
    result = graded.results.get(id)
    if result is None:
        return ["no result"]
    found = []
    if result["status"] != attack.status:
        found.append(f"status {result['status']}: {result['message']}")
    for item in result["items"]:
        core = item["tier"] == "core"
        honest = (core or attack.file == TWIN) and not {"all", item["id"]} & set(attack.loses)
        due = item["max_score"] if honest else 0
        if item["score"] != due:
            found.append(f"{item['id']}: {item['score']}, not {due}: {item['message']}")
    if attack.flag and not any(attack.flag in flag for flag in result["flags"]):
        found.append(f"not flagged: {result['flags']}")
    tier = result["isolation"].get("tier", level)
    if tier != level != UNPROTECTED:
        found.append(f"graded at '{tier}'")
    if result["seconds"] > _MOST_SECONDS:
        found.append(f"took {result['seconds']:.0f} s")
    text = json.dumps(result)
    found += [f"knows the {k} canary" for k, v in ground.canaries.items() if v in text]
    if ("REACHED" in text) != (level in attack.reached):
        found.append("reached: " + "; ".join(re.findall(r"REACHED[^\"]{0,120}", text)))
    return found


def disturbed(ground: Ground, graded: Graded, alone: Graded) -> list[str]:
    """The neighbours that got another result than the same submission graded alone, or none; and
    results that are nobody's."""
    handed_in = {path.name for path in (ground.folder / "class").iterdir()}
    found = [f"{id}: no result" for id in handed_in - set(graded.results)]
    found += [f"{id}: nobody's result" for id in set(graded.results) - handed_in]
    for id, result in graded.results.items():
        _, is_neighbour, kind = id.partition("_neighbour_")
        if not is_neighbour:
            continue
        same = alone.results[kind[2:]]
        keys = ("status", "score", "items", "message", "notes", "flags")
        if any(result[key] != same[key] for key in keys):
            found.append(f"{id}: {[result[k] for k in keys if result[k] != same[k]]}")
    return found


# What an attack met, as its first lost item or its status tells it, in the words of the table.
_MET = (
    (r"REACHED", "**not stopped**"),
    (r"time that a submission has is used up|Not finished after|did not end", "clock"),
    (r"out of memory|MemoryError|Unable to allocate|DefaultCPUAllocator", "memory cap"),
    (r"grader's own channel", "rejected: forged frame"),
    (r"forbidden system call", "not permitted"),
    (r"stopped the grading process", "its own process ended"),
    (r"can't start new thread|Resource temporarily unavailable", "thread limit"),
    (r"No space left|Disk quota|File too large|Too many open files", "scratch limits"),
    (r"Operation not permitted|EPERM", "not permitted"),
    (r"Permission denied|EACCES", "access denied"),
    (r"No such (file|process)|ModuleNotFoundError|FileNotFoundError|ProcessLookup", "not there"),
    (r"Function not implemented|Inappropriate ioctl|Invalid argument|Bad file desc", "refused"),
    (r"Read-only file system", "read-only"),
    (r"is not to be used here", "a stand-in for it"),
    (r"(LookupError|RuntimeError): nothing", "nothing to find"),
    (r"far more than it should", "too large, and told so"),
    (r" raised ", "its own error"),
)


def met(attack: Attack, result: dict) -> str:
    """What stopped an attack, in a few words."""
    if attack.claim:
        points = sum(i["max_score"] for i in result["items"] if i["id"] in attack.claim)
        return f"**a claim**: {points:g} point{'s' if points != 1 else ''}"
    lost = [item for item in result["items"] if {"all", item["id"]} & set(attack.loses)]
    said = [result["message"], *(item["message"] for item in lost)]
    for pattern, words in _MET:
        if any(re.search(pattern, text) for text in said):
            return words
    if result["status"] == "rejected":
        return "rejected: forbidden name"
    if result["status"] == "import_error":
        return "import fails"
    if lost:
        return "raw data, compared"
    return "**flagged**" if attack.flag else "no effect"


def table(columns: Mapping[str, Mapping[str, str]], attacks: Sequence[Attack]) -> str:
    """Attack x level as Markdown; ``columns``: of each level, what each attack met."""
    lines = []
    for family in dict.fromkeys(attack.family for attack in attacks):
        lines += [
            f"**{family.replace('_', ' ').capitalize()}**",
            "",
            "| a submission that | " + " | ".join(f"`{level}`" for level in columns) + " |",
            "| --- |" + " --- |" * len(columns),
        ]
        for attack in attacks:
            if attack.family == family:
                cells = [columns[level].get(attack.name, "–") for level in columns]
                lines.append(f"{row(attack)} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def row(attack: Attack) -> str:
    """How its row of the table begins."""
    tries = attack.tries.rstrip(".").replace("|", "\\|")
    return f"| {tries[0].lower()}{tries[1:]}"


def ids(attacks: Sequence[Attack]) -> list[tuple[str, Attack]]:
    """The ids under which they are handed in."""
    return [(f"{n:03}_{attack.family}_{attack.name}", attack) for n, attack in enumerate(attacks)]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZXTt"
    except OSError:
        return False


def main() -> int:
    """Every attack at the levels named, or at all; 1 where one was not held."""
    arguments = sys.argv[1:]
    write = "--write" in arguments
    only = [a for a in arguments if "/" in a]
    levels = [a for a in arguments if a in (*LEVELS, UNPROTECTED)] or list(LEVELS)
    attacks = [
        a
        for a in read_attacks()
        if not only or any(f"{a.family}/{a.name}".startswith(o) for o in only)
    ]
    columns: dict[str, dict[str, str]] = {}
    good = True
    for level in levels:
        if reason := why_not(level):
            print(f"{level}: not here: {reason}")
            continue
        with prepare(attacks) as ground:
            alone = grade(ground, level, "alone", workers=1)
            tiers = {r["isolation"]["tier"] for r in alone.results.values()}
            if level != UNPROTECTED and tiers and tiers != {level}:
                print(f"{level}: not here: the best that can be had is {', '.join(tiers)}")
                continue
            graded = grade(ground, level)
            if not graded.results or not alone.results:
                print(f"{level}: {graded.printed or alone.printed}")
                good = False
                continue
            found = {a.name: problems(ground, a, id, level, graded) for id, a in ids(attacks)}
            columns[level] = {
                attack.name: met(attack, graded.results[id])
                for id, attack in ids(attacks)
                if id in graded.results
            }
            spoiled = [*ground.spoiled(), *ground.leaked(graded.printed)]
            spoiled += disturbed(ground, graded, alone)
        for name, said in found.items():
            print(
                f"  {name}: {columns[level].get(name, '')}" + "".join(f"\n     ! {s}" for s in said)
            )
        for said in spoiled:
            print(f"  ! {said}")
        held = sum(not said for said in found.values())
        print(f"{level}: {held} of {len(attacks)} held, {graded.seconds:.0f} s")
        good = good and held == len(attacks) and not spoiled
    if write and (only or not good or set(columns) != set(LEVELS)):
        print("not written: the table takes every attack, held at every level")
    elif write:
        page = HERE.parents[1] / "docs/threat-model.md"
        start, end = "<!-- attacks: begin -->", "<!-- attacks: end -->"
        before, rest = page.read_text().split(start)
        text = table(columns, attacks)
        page.write_text(f"{before}{start}\n\n{text}\n{end}{rest.split(end)[1]}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
