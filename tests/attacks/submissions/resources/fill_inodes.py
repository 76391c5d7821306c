"""Makes files and folders without content, as many as there can be."""
# loses: scale.values
import os


def scale(x, k):
    made, said = 0, []
    for folder in ("/tmp", "/dev/shm", "/run/lock", "/scratch/tmp"):
        try:
            while made < 2000:
                os.mkdir(f"{folder}/folder{made}")
                open(f"{folder}/folder{made}/file", "w").close()
                made += 2
        except OSError as error:
            said.append(error.strerror)
    if made >= 2000:
        reached(f"{made} files")
    raise OSError(f"{made} files: {said[::-1]}")
