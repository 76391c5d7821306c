"""Opens the solution relative to every descriptor it has or can get, also those that only name a place."""
# loses: scale.values
import os

TARGET = "@course@/solutions/00_target/target.py"


def doors():
    yield from range(1024)
    for folder in (
        "/",
        "/..",
        "/tmp",
        ".",
        "@course@",
        os.path.dirname(TARGET),
        TARGET,
        os.__file__,
    ):
        for flags in (os.O_PATH, os.O_RDONLY | os.O_DIRECTORY):
            try:
                yield os.open(folder, flags)
            except OSError as error:
                yield error


def scale(x, k):
    last = None
    for door in doors():
        if isinstance(door, OSError):
            last = door if door.errno != 20 else last
            continue
        ways = [
            (way, door) for way in (TARGET[1:], "target.py", "../../../../../../../.." + TARGET)
        ]
        for way, folder in [*ways, (f"/proc/self/fd/{door}", None), (f"/dev/fd/{door}", None)]:
            try:
                found = os.read(os.open(way, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder), 9999)
            except NotADirectoryError:
                continue
            except OSError as error:
                last = error
            else:
                if b"CANARY" in found:
                    reached(f"{way} from {door}")
    raise last
