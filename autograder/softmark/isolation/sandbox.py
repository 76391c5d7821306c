"""The layers of Linux isolation, one function each, over libc; which of them hold is the caller's plan.

No system call is named by a number that differs between architectures: libc wraps most of them, and
Landlock's numbers are the same everywhere. Every function raises OSError naming the layer that
failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
SCRATCH = "/scratch/tmp"
"""The one writable folder inside a private root: a small tmpfs of each child's own."""

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_RDONLY = 2, 4, 8, 1
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_UMOUNT_DETACH = 2
_MOUNT_SETATTR = 442
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 1, 22, 38, 4
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
OWN_PROCESS = tuple(
    f"/proc/{name}"
    for name in ("self", "driver", "sys", "devices", "modules", "cpuinfo", "meminfo")
)
"""What a GPU's driver reads of a /proc that other processes are in, too."""
_DRIVER_FILES = ("/sys/bus/pci", "/sys/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
_libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _prctl(option: int, value: int = 0, more: int = 0) -> None:
    _check(_libc.prctl(option, value, more, 0, 0), f"prctl({option})")


# ---- namespaces --------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    """Leave the namespaces in ``flags``; for NEW_PIDS it is the next child that is in the new one."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def rejoin(descriptor: int, kind: int) -> None:
    """Go back to the namespace behind an open ``/proc/self/ns`` file."""
    _check(_libc.setns(descriptor, kind), "setns")


def become_root_inside() -> None:
    """A user namespace of one's own in which this process's user is root; also NEW_PIDS."""
    uid, gid = os.getuid(), os.getgid()
    unshare(NEW_USER | NEW_PIDS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


# ---- files -------------------------------------------------------------------------------------


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    done = _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode())
    _check(done, f"mount {target}")


def enter_private_root(
    visible: Sequence[str],
    hidden: Iterable[str],
    devices: Sequence[str] = (),
    processes: bool = False,
) -> None:
    """Make a mount namespace whose root holds ``visible`` (read-only), ``devices`` and nothing else.

    ``hidden`` are folders inside the visible ones that are covered by an empty one, unless they, or
    something in them, are visible by name. The new root grows over /proc, which holds nothing that is
    bound, so that no folder has to be made and removed on the host. With ``processes`` it has a /proc
    of this process's PID namespace, for each child to cover by one of its own.
    """
    unshare(NEW_MOUNTS)
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    devices = (*_DEVICES, *devices)
    sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (*visible, *devices)}
    staging = "/proc"
    here = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _mount("tmpfs", staging, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    covered = [path for path in hidden if any(_inside(path, v) for v in visible)]
    # outer folders first, so that what is visible by name comes to lie on top of what hides it
    for path in sorted([*sources, *covered], key=lambda p: p.count("/")):
        target = staging + path
        if path in sources:
            _make_place(target, Path(path).is_dir())
            _bind(here, sources[path], target)
            read_only = _ATTR_RDONLY | _ATTR_NOSUID | (0 if path in devices else _ATTR_NODEV)
            _set_attributes(target, read_only)
        else:
            _mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for descriptor in (here, *sources.values()):
        os.close(descriptor)
    Path(staging + SCRATCH).mkdir(parents=True)
    if processes:
        # in a user namespace one may be mounted only where another is in sight: now, and this one later
        Path(staging + "/proc").mkdir()
        mount_processes(staging + "/proc")
    os.chdir(staging)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _UMOUNT_DETACH), "umount of the old root")
    os.chdir("/")
    _set_attributes("/", _ATTR_RDONLY | _ATTR_NOSUID)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _make_place(target: str, folder: bool) -> None:
    place = Path(target)
    if folder:
        place.mkdir(parents=True, exist_ok=True)
    elif not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()


def _bind(descriptors: int, source: int, target: str) -> None:
    # through an open descriptor: a source under the staging folder would be out of sight by now
    os.fchdir(descriptors)
    _mount(str(source), target, "", _MS_BIND | _MS_REC)


def _set_attributes(path: str, attributes: int) -> None:
    """Add mount attributes at ``path`` and to every mount below it."""
    wanted = struct.pack("QQQQ", attributes, 0, 0, 0)
    # by number: glibc wraps it since 2.36 only, and the number is the same everywhere
    done = _libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, wanted, len(wanted)
    )
    _check(done, f"mount_setattr {path}")


def mount_processes(place: str = "/proc") -> None:
    """A /proc that shows this process's PID namespace alone."""
    _mount("proc", place, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def mount_scratch(megabytes: int, owner: int) -> None:
    """This child's own small tmpfs at SCRATCH, in a mount namespace of its own."""
    options = f"size={megabytes}m,nr_inodes=256,mode=700,uid={owner},gid={owner}"
    _mount("tmpfs", SCRATCH, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
    os.chdir(SCRATCH)


def landlock_version() -> int:
    """The kernel's Landlock ABI; 0 where there is none."""
    return int(max(0, _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)))


def landlock_ruleset(
    readable: Iterable[str], writable: Iterable[str], devices: Iterable[str] = ()
) -> int:
    """A descriptor of a ruleset: read below ``readable``, all but execute below ``writable``, use
    ``devices``, no TCP, no abstract sockets or signals outwards where the kernel knows how. Made once,
    inherited."""
    version = landlock_version()
    access = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        if version >= since:
            access |= 1 << bit
    attributes = struct.pack("QQQ", access, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _check(_libc.syscall(_LANDLOCK_CREATE, attributes, size, 0), "Landlock ruleset")
    execute, write_file, read_file, read_folder, truncate = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
    control = 1 << 15
    in_file = read_file | write_file | truncate
    for paths, allowed, of_file in (
        (readable, read_file | read_folder, in_file),
        (writable, access & ~execute, in_file),
        (devices, in_file | control, in_file | control),
    ):
        for path in paths:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            fitting = access if Path(path).is_dir() else of_file
            rule = struct.pack("=Qi", allowed & access & fitting, descriptor)
            try:
                _check(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0), f"Landlock rule {path}")
            finally:
                os.close(descriptor)
    return ruleset


def landlock_restrict(ruleset: int) -> None:
    """Hold this thread to ``ruleset``, for good."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")


# ---- limits and privileges ---------------------------------------------------------------------


def set_limits(
    *,
    cpu_seconds: int,
    memory_bytes: int | None,
    file_bytes: int,
    open_files: int,
    processes: int | None,
) -> None:
    """Resource limits of this process. ``processes`` binds only a user id that nobody else has."""
    wanted = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if memory_bytes is not None:
        wanted[resource.RLIMIT_AS] = memory_bytes
    if processes is not None:
        wanted[resource.RLIMIT_NPROC] = processes
    for what, limit in wanted.items():
        resource.setrlimit(what, (limit, limit))


def address_space() -> int:
    """Bytes of address space that this process has mapped, as the memory limit counts them."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def become_user(uid: int) -> None:
    """Be ``uid`` and nobody else, without groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """No capability in any set, and none to be had by executing anything."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.capset(header, struct.pack("6I", *[0] * 6)), "capset")


def die_with_parent() -> None:
    """SIGKILL when the zygote ends. After a change of user, which would clear it."""
    _prctl(_PR_SET_PDEATHSIG, 9)


def first_to_go() -> None:
    """Where the machine runs out of memory, this process and its children are ended first."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def undumpable() -> None:
    """No core, no ptrace and no /proc/<pid>/mem for other processes of the same user."""
    _prctl(_PR_SET_DUMPABLE, 0)


def load_filter(program: bytes) -> None:
    """Load a compiled seccomp filter, for good."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    holder = ctypes.create_string_buffer(header, len(header))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(holder))


# ---- what a GPU needs ----------------------------------------------------------------------------


def load_driver() -> tuple[list[str], list[str]]:
    """Load CUDA's driver library, without touching a GPU: its devices, and the files that it reads.

    Raises OSError where it is not installed.
    """
    ctypes.CDLL("libcuda.so.1")  # mapped now, so that its folder is one of ``runtime_paths``
    devices = [str(path) for path in sorted(Path("/dev").glob("nvidia*")) if path.is_char_device()]
    devices += [str(path) for path in sorted(Path("/dev").glob("nvidia-caps/*"))]
    files = [path for path in _DRIVER_FILES if Path(path).exists()]
    return devices, files


# ---- what an interpreter needs -----------------------------------------------------------------


def runtime_paths(distributions: Sequence[str]) -> tuple[list[str], list[str]]:
    """What a started interpreter with these distributions still needs, and what to hide within it.

    Visible: the standard library, the distributions' own files, and the folders of the shared
    libraries now mapped. Hidden: every folder of installed packages.
    """
    import sysconfig

    stdlib = {str(Path(os.__file__).parent), str(sysconfig.get_config_var("DESTSHARED"))}
    hidden = {p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")}
    hidden |= {f"{p}/{name}" for p in stdlib for name in ("site-packages", "dist-packages")}
    visible = {p for p in stdlib if Path(p).is_dir()}
    visible |= _distribution_paths(distributions)
    for library in _mapped_libraries():
        folder = str(Path(library).parent)
        if not any(_inside(library, p) for p in (*visible, *hidden)):
            visible.add(folder)
    visible |= {p for p in ("/etc/ld.so.cache", "/etc/localtime") if Path(p).exists()}
    minimal = {p for p in visible if not any(p != q and _inside(p, q) for q in visible - hidden)}
    in_hidden = {p for p in visible if any(_inside(p, q) for q in hidden)}
    return sorted(minimal | in_hidden), sorted(p for p in hidden if Path(p).is_dir())


def _distribution_paths(names: Sequence[str]) -> set[str]:
    """The folders and modules of installed distributions and of all that they require."""
    from importlib import metadata

    found = {name: metadata.distribution(name) for name in names}
    todo = list(found.values())
    while todo:
        for requirement in todo.pop().requires or ():
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            if "extra ==" in requirement or name in found:
                continue
            try:
                found[name] = metadata.distribution(name)
            except metadata.PackageNotFoundError:  # for another platform
                continue
            todo.append(found[name])
    paths = set()
    for name, distribution in found.items():
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        tops = tops or {name, f"{name}.libs"}
        places = [Path(str(distribution.locate_file(top))) for top in tops]
        paths |= {str(p) for p in places if p.is_dir() and p.suffix != ".dist-info"}
        paths |= {str(p) for p in places if p.is_file() and p.suffix in (".py", ".so")}
    return paths


def _mapped_libraries() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = (line.split(maxsplit=5)[5:] for line in lines if not line.endswith(" (deleted)"))
    return {f[0] for f in files if f and f[0].startswith("/") and ".so" in Path(f[0]).name}


def closed_to_others(paths: Iterable[str]) -> str | None:
    """The first folder above or at ``paths`` that other users may not enter."""
    for path in paths:
        for folder in reversed([Path(path), *Path(path).parents]):
            if folder.is_dir() and not folder.stat().st_mode & 0o001:
                return str(folder)
    return None


def without(folder: str, hidden: Sequence[str]) -> list[str]:
    """``folder`` as a list of paths that leaves out the hidden ones, for rules that only add."""
    if folder in hidden:
        return []
    if not any(_inside(h, folder) for h in hidden):
        return [folder]
    children = sorted(str(child) for child in Path(folder).iterdir())
    return [path for child in children for path in without(child, hidden)]
