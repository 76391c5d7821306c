"""Leaves a note for the process that follows it, in files, memory and the environment, and ends."""
# loses: scale.values, total.value
import ctypes
import os
import threading

libc = ctypes.CDLL(None, use_errno=True)
NAME = "softmark-note"
FOLDERS = (
    "/scratch/tmp",
    "/scratch",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/run",
    "/",
    ".",
    "/proc/self",
)


def notes():
    found = [os.environ.get(NAME)]
    for folder in FOLDERS:
        try:
            found.append(open(os.path.join(folder, NAME)).read())
        except OSError:
            pass
    for number in range(64):
        try:
            found.append(f'descriptor {number}' if NAME in os.pread(number, 99, 0).decode() else None)
        except (OSError, UnicodeDecodeError):
            pass
    found += [f'call {get}' for get in (29, 68) if libc.syscall(get, 7, 4096, 0) >= 0]  # shmget, msgget
    found += [NAME for thread in threading.enumerate() if thread.name == NAME]
    return [note for note in found if note]


def scale(x, k):
    if left := notes():
        reached(left)
    os.environ[NAME] = NAME
    for folder in FOLDERS:
        try:
            with open(os.path.join(folder, NAME), "w") as file:
                file.write(NAME)
        except OSError:
            pass
    for number in (1, 2):
        os.write(number, NAME.encode())
    for get in (29, 68):
        libc.syscall(get, 7, *((4096, 0o1666) if get == 29 else (0o1666,)))
    libc.syscall(248, b"user", NAME.encode(), b"note", 4, -4)  # add_key
    threading.Thread(target=threading.Event().wait, name=NAME).start()
    os._exit(0)


def total(x):
    if left := notes():
        reached(left)
    return "nothing was found"
