"""Makes files and folders without content, as many as there can be."""
# loses: scale.values
import os


def scale(x, k):
    made = 0
    for folder in ("/tmp", "/dev/shm", "/scratch/tmp", "."):
        try:
            while made < 2000:
                os.mkdir(f"{folder}/folder{made}")
                open(f"{folder}/folder{made}/file", "w").close()
                made += 2
        except OSError as error:
            last = error
    if made >= 2000:
        reached(f"{made} files")
    raise last
