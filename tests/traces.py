"""What processes hold and what they leave on this machine, as /proc and the file system tell it."""

from __future__ import annotations

from pathlib import Path


def descendants(pid):
    """The processes below ``pid``."""
    children = [
        int(child)
        for task in entries(f"/proc/{pid}/task")
        for child in read(task / "children").split()
    ]
    return [*children, *(p for child in children for p in descendants(child))]


def resident(pid):
    """Its memory, in kB; None where it has ended."""
    lines = read(f"/proc/{pid}/status").decode().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), None)


def descriptors(pid):
    """How many it has open; None where this user may not look, or it has ended."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return None


def mounts(pid):
    return len(read(f"/proc/{pid}/mountinfo").splitlines())


def strangers(*folders):
    """Files of users that only workers run as."""
    return [str(path) for folder in folders for path in entries(folder) if _of_a_worker(path)]


def _of_a_worker(path):
    try:
        return 60_000 <= path.lstat().st_uid < 65_000
    except OSError:
        return False


def is_zygote(pid):
    """A zygote, or a fork of one."""
    return b"softmark.isolation.zygote" in read(f"/proc/{pid}/cmdline")


def orphans():
    """Zygotes and their forks that outlived the one who started them."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return sum(is_zygote(pid) and b"\nPPid:\t1\n" in read(f"/proc/{pid}/status") for pid in pids)


def entries(folder):
    """What a folder holds; nothing where there is none, or none any more."""
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []


def read(path):
    """What stands in a file of /proc, which may vanish at any time."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
