"""Which isolation this machine reaches: four tiers, four guarantees, each tested by trying.

A tier is a plan of layers; what it is worth is found out by running ``probe.py`` as a submission would
be run. ``reach`` takes the strongest tier that starts and refuses below what is asked for.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softmark.isolation import wire
from softmark.isolation.host import Caps, Zygote, ZygoteFailed
from softmark.script import Output, Raised, Script, Trace

TIERS: Mapping[str, tuple[str, ...]] = {
    "root": ("namespaces", "private_root", "user", "landlock", "seccomp"),
    "userns": ("user_namespace", "namespaces", "private_root", "landlock", "seccomp"),
    "container": ("user", "landlock", "seccomp"),
    "plain": ("landlock", "seccomp"),
}
"""The layers of each tier, strongest tier first."""

UNPROTECTED = "none"
"""What an operator has to say to grade where a guarantee does not hold."""

GUARANTEES: Mapping[str, str] = {
    "files": "sees the runtime and the submission only, writes to a private scratch folder at most",
    "network": "reaches no host and no other process's socket",
    "processes": "sees, signals and leaves behind no process",
    "memory": "is capped, and holds no answer",
}

_MORE = {
    "root": "run as root on a machine or VM of your own",
    "userns": (
        "allow unprivileged user namespaces (Ubuntu 24.04: "
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    ),
    "container": "run as root in the container, with its default capabilities",
    "plain": "use Linux 5.13 or newer with Landlock",
}


class IsolationRefused(Exception):
    """This machine does not give what is asked for; the message says what is missing and what to do."""


class ProbeFailed(Exception):
    """A worker of this tier could not even be probed."""


@dataclass(frozen=True, slots=True)
class Level:
    """A tier as this machine gives it. ``holds`` tells which guarantees were kept when tried;
    ``breaches`` what was reached where one was not."""

    tier: str
    layers: tuple[str, ...]
    seccomp: bytes
    holds: Mapping[str, bool]
    breaches: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, str | bool]:
        """As it is recorded in every result."""
        missing = {"missing": "; ".join(self.notes)} if self.notes else {}
        return {"tier": self.tier, **self.holds, **missing}


def supported() -> str | None:
    """None where hidden grading can run; else why not, and what to use instead."""
    if sys.platform == "linux":
        return None
    return (
        f"hidden grading needs Linux; this is {sys.platform}. Use a Linux machine, WSL 2, a container "
        "or CI. 'softmark check' works here."
    )


def survey(secret: Sequence[Path] = ()) -> dict[str, Level | str]:
    """Every tier: the level this machine gives, or why it does not start."""
    return {tier: _try(tier, secret) for tier in TIERS}


def reach(least: str | None = None, secret: Sequence[Path] = ()) -> Level:
    """The strongest level here. ``least`` names a tier below which to refuse, or UNPROTECTED to
    accept anything; ``secret`` are folders that no worker may see.

    Raises IsolationRefused.
    """
    reason = supported()
    if reason:
        raise IsolationRefused(reason)
    order = list(TIERS)
    if least not in (None, UNPROTECTED, *order):
        raise ValueError(f"'{least}' is no tier; allowed: {', '.join([*order, UNPROTECTED])}")
    failures = []
    for tier in order:
        level = _try(tier, secret)
        if isinstance(level, str):
            failures.append(f"{tier}: {level}")
            if tier == least:
                break
            continue
        if least != UNPROTECTED and not all(level.holds.values()):
            raise IsolationRefused(_unsafe(level))
        return level
    wanted = order[: order.index(least) + 1] if least and least in TIERS else order
    advice = "; ".join(f"{tier}: {_MORE[tier]}" for tier in wanted)
    asked = f"tier '{least}' or stronger" if least else "any isolation"
    raise IsolationRefused(
        f"this machine does not give {asked} ({'; '.join(failures)}). To get it: {advice}. "
        "'softmark doctor' shows what there is."
    )


def _unsafe(level: Level) -> str:
    """Why grading at this level is refused, and what to do."""
    lost = [name for name, held in level.holds.items() if not held]
    danger = {
        "files": "read the solutions",
        "network": "send out what it is asked",
        "processes": "disturb other processes or outlive its grading",
        "memory": "take this machine's memory",
    }
    missing = f" Missing: {'; '.join(level.notes)}." if level.notes else ""
    return (
        f"at tier '{level.tier}' a submission could {' and '.join(danger[name] for name in lost)} "
        f"({'; '.join(level.breaches[:3])}).{missing} To do better, {_MORE[level.tier]}; or grade "
        f"unprotected with --isolation {UNPROTECTED}."
    )


def _try(tier: str, secret: Sequence[Path]) -> Level | str:
    """Start the tier and probe it: its level, or why it does not start."""
    # not at the top: they load what Linux alone has, and 'softmark check' runs everywhere
    from softmark.isolation import sandbox
    from softmark.isolation.seccomp import Unavailable, build_filter

    if tier in ("root", "container") and os.geteuid() != 0:
        return "not root"
    notes: list[str] = []
    layers, seccomp = TIERS[tier], b""
    try:
        seccomp = build_filter()
    except Unavailable as error:
        layers = tuple(layer for layer in layers if layer != "seccomp")
        notes.append(str(error))
    if sandbox.landlock_version() == 0:
        layers = tuple(layer for layer in layers if layer != "landlock")
        notes.append("no Landlock in this kernel")
    try:
        with Zygote(layers, ["numpy"], Caps(seconds=30), seccomp) as zygote:
            shown = [
                s for s in secret if any(s.resolve().is_relative_to(v) for v in zygote.visible)
            ]
            breaches = [f"files: {path} lies within the Python runtime" for path in shown]
            breaches += _probe(zygote, secret)
            if zygote.closed:
                notes.append(
                    f"Python lies in {zygote.closed}, which only root may enter: submissions can import "
                    "common modules only; install Python elsewhere"
                )
    except (ZygoteFailed, ProbeFailed, wire.BadFrame) as error:
        return str(error)
    holds = {name: not any(b.startswith(name + ":") for b in breaches) for name in GUARANTEES}
    return Level(tier, layers, seccomp, holds, tuple(breaches), tuple(notes))


def _probe(zygote: Zygote, secret: Sequence[Path]) -> list[str]:
    """Run the probe in a worker, with real things to find; what it reached."""
    source = (Path(__file__).parent / "probe.py").read_text()
    canary = secrets.token_hex(16)
    abstract = f"softmark-{secrets.token_hex(8)}"
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        hidden = Path(folder) / "solution.py"
        hidden.write_text(canary)
        hidden.chmod(0o644)
        Path(folder).chmod(0o755)
        listener.bind(f"\0{abstract}")
        listener.listen()
        script = Script({"probe": (Output("breaches", "list"),)})
        places = [str(hidden), __file__, *map(str, secret)]
        ids = [os.getpid(), zygote.pid]
        port = server.getsockname()[1]
        breaches = script.call(
            "probe", places, ids, port, abstract, zygote.caps.memory_mb, canary[:16], canary[16:]
        )
        worker = zygote.spawn()
        try:
            loaded = worker.load({"probe.py": source}, "probe", 20)
            trace = worker.run(script, wire.pack_script(script), 20) if loaded is None else loaded
        finally:
            worker.close()
    if isinstance(trace, Trace) and trace.raised is None and trace.cause is None:
        return [str(breach) for breach in trace[breaches]]
    raise ProbeFailed(f"its probe did not finish: {_reason(trace)}")


def _reason(answer: Raised | Trace) -> str:
    if isinstance(answer, Trace):
        return _reason(answer.raised) if answer.raised else str(answer.cause)
    return f"{answer.type}: {answer.message}"
