"""Looks into shared memory, queues and semaphores of all kinds, and makes some."""

# loses: scale.values
import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)


def system_v(name, *arguments):
    number = getattr(LIBC, name)(*arguments)
    if number < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    control = name.replace("get", "ctl")
    getattr(LIBC, control)(number, 0, 0) if name != "semget" else LIBC.semctl(number, 0, 0)
    return name


def others():
    for number in range(64):
        if LIBC.shmctl(number, 13, ctypes.create_string_buffer(256)) >= 0:
            return number
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def posix():
    from multiprocessing import shared_memory

    made = shared_memory.SharedMemory("attacked", True, 4096)
    made.unlink()
    return made.name


def in_folder(folder):
    os.close(os.open(f"{folder}/attacked", os.O_CREAT | os.O_RDWR))
    os.unlink(f"{folder}/attacked")
    return folder


def queue():
    if LIBC.mq_open(b"/attacked", 66, 0o600, None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    LIBC.mq_unlink(b"/attacked")
    return "a queue"


def scale(x, k):
    last = None
    for way in (
        lambda: system_v("shmget", 0x41747461, 4096, 0o1666),
        lambda: system_v("semget", 0x41747461, 1, 0o1666),
        lambda: system_v("msgget", 0x41747461, 0o1666),
        others,
        posix,
        queue,
        lambda: in_folder("/dev/shm"),
        lambda: in_folder("/dev/mqueue"),
        lambda: os.listdir("/dev/shm"),
        lambda: open("/proc/sysvipc/shm").read(),
    ):
        try:
            found = way()
        except (OSError, ImportError) as error:
            last = error
        else:
            reached(found)
    raise last
