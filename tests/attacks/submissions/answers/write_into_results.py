"""Writes into the results: over an earlier one, and one of its own with full marks."""

# loses: scale.values
import os


def scale(x, k):
    last = None
    results = "@out@/results"
    for way in (
        lambda: open(f"{results}/earlier.json", "a").write(" "),
        lambda: open(f"{results}/forged.txt", "w").write('{"status": "graded", "score": 20}'),
        lambda: os.open(f"{results}/earlier.json", os.O_WRONLY | os.O_TRUNC),
        lambda: os.open(results, os.O_RDWR | os.O_TMPFILE),
        lambda: os.symlink("/dev/null", f"{results}/forged.txt"),
        lambda: os.link("@home@", f"{results}/forged.txt"),
        lambda: os.mkdir(f"{results}/forged"),
        lambda: os.rename(f"{results}/earlier.json", f"{results}/later.txt"),
        lambda: os.unlink(f"{results}/earlier.json"),
        lambda: os.truncate(f"{results}/earlier.json", 1),
        lambda: os.utime(f"{results}/earlier.json"),
        lambda: os.chmod(f"{results}/earlier.json", 0),
        lambda: os.setxattr(f"{results}/earlier.json", "user.mark", b"1"),
        lambda: np.save(f"{results}/forged", x),
    ):
        try:
            way()
        except OSError as error:
            last = error
        else:
            reached("the results")
    raise last
