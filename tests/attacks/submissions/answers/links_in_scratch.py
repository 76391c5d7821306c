"""Makes links, hard links and moved copies of the solution in its own folder and opens those."""

# loses: scale.values
import os
import shutil

SECRETS = ("@course@/solutions/00_target/target.py", "@out@/results/earlier.json", "@home@")


def through(make, path):
    link = os.path.join(os.getcwd(), f"link-{os.getpid()}")
    try:
        make(path, link)
        return open(link).read()
    finally:
        if os.path.lexists(link):
            os.unlink(link)


def relative(path, link):
    os.symlink("../" * 12 + path[1:], link)


def scale(x, k):
    last = None
    for path in SECRETS:
        for make in (os.symlink, relative, os.link, shutil.copyfile):
            try:
                text = through(make, path)
            except OSError as error:
                last = error
            else:
                reached(f"{path} by {make.__name__}: {len(text)} characters")
    raise last
