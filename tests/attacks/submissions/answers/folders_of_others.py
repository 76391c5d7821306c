"""Goes through the open files and working folders of all processes for the course and the results."""

# loses: scale.values
import os


def scale(x, k):
    ground, last = os.path.dirname("@course@"), LookupError("nothing")
    parents, pid = [os.getppid()], os.getppid()
    try:
        while pid > 1:
            pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
            parents.append(pid)
    except OSError as error:
        last = error
    for pid in [*parents, *range(1, 1000), int("@victim@")]:
        links = [f"/proc/{pid}/{name}" for name in ("cwd", "root", "exe")]
        links += [f"/proc/{pid}/fd/{number}" for number in range(20)]
        for link in links[:3] if pid not in parents else links:
            try:
                place = os.readlink(link)
                if place.startswith(ground):
                    os.listdir(link) if link.endswith("cwd") else os.open(link, os.O_RDONLY)
            except OSError as error:
                last = error
            else:
                if place.startswith(ground):
                    reached(f"{link} is {place}")
    raise last
