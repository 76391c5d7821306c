"""Fills every disk that it may write to."""
# loses: scale.values
import tempfile

_FOLDERS = ["", "/scratch/tmp/", "/tmp/", "/var/tmp/", "/dev/shm/", "/run/lock/", "@out@/"]


def scale(x, k):
    written, said = 0, []
    for place, folder in enumerate([*_FOLDERS, tempfile.gettempdir() + "/"]):
        try:
            for number in range(50):
                with open(f"{folder}more{place}_{number}", "wb", buffering=0) as file:
                    written += file.write(bytes((1 << 20) - 1))
        except OSError as error:
            said.append(error.strerror)
    if written > 20 << 20:
        reached(f"{written >> 20} MB")
    raise OSError(f"{written >> 20} MB, then {said}")
