"""Many submissions through one Session, some of them badly behaved, leave nothing behind.

``SOFTMARK_ENDURANCE`` is how many; ``benchmarks/throughput.py --endurance`` sets it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from softmark.course import load_course
from softmark.intake import read_submission
from softmark.isolation.tiers import reach
from softmark.session import Session
from traces import descendants, descriptors, is_zygote, mounts, orphans, resident, strangers

COUNT = int(os.environ.get("SOFTMARK_ENDURANCE", "30"))
COURSE = Path(__file__).parents[1]
TOPIC = "02_lstm"
# what an allocator may add in the long run without anything being kept
SLACK_KB = 3_000

# What each submission does, and what must become of it: edits of the reference, at most this score.
WAYS = {
    "right": ("", "", 105),
    "wrong_bias": ("b[:H] = forget_bias", "b[H : 2 * H] = forget_bias", 102),
    "wrong_sigmoid": ("np.exp(-np.abs(z))", "np.exp(np.abs(z))", 60),
    "loops": ("def zero_grad(self):", "def zero_grad(self):\n        while True: pass", 105),
    "exits": ("def zero_grad(self):", "def zero_grad(self):\n        os._exit(0)", 105),
    "aborts": ("def zero_grad(self):", "def zero_grad(self):\n        os.abort()", 105),
    "forks": ("import numpy as np", "import numpy as np\nif os.fork() == 0: time.sleep(600)", 105),
    "threads": (
        "import numpy as np",
        "import numpy as np\n"
        "for _ in range(4): threading.Thread(target=time.sleep, args=[600], daemon=True).start()",
        105,
    ),
    "litters": (
        "import numpy as np",
        "import numpy as np\n"
        "for place in (tempfile.gettempdir(), '/tmp', '/var/tmp', '/dev/shm', '.'):\n"
        "    try: open(f'{place}/litter-{os.getpid()}', 'w').write('x' * 100_000)\n"
        "    except OSError: pass\n"
        "print('x' * 1_000_000)",
        105,
    ),
    "not_python": ("import numpy as np", "import numpy as", 0),
}
MODULES = "import os, tempfile, threading, time\n"


@pytest.fixture
def course(tmp_path):
    """The course with a shorter time limit, so that loops end soon."""
    copy = tmp_path / "course"
    for part in ("assignments", "solutions", "autograder/graders"):
        shutil.copytree(COURSE / part / TOPIC, copy / part / TOPIC)
    (copy / "course.yaml").write_text(f"title: Endurance\ntopics:\n  - id: {TOPIC}\n")
    settings = copy / "assignments" / TOPIC / "assignment.yaml"
    text = settings.read_text()
    assert "call_seconds: 2.0" in text
    settings.write_text(text.replace("call_seconds: 2.0", "call_seconds: 0.5"))
    return load_course(copy)


def test_nothing_is_left_behind(course, tmp_path, monkeypatch, capsys):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    topic = course.topic(TOPIC)
    submissions = [(read_submission(path, topic), most) for path, most in written(course, tmp_path)]
    level = reach(secret=[course.solution(TOPIC), course.graders(TOPIC)])
    own = set(Path("/proc/self/fd").iterdir())
    with Session(course, topic, 5, level) as session:
        before = after = {}
        for number in range(len(submissions) + COUNT):
            if number == len(submissions):  # by now everything has happened once
                before = traces_of(session.pid, temporary)
            submission, most = submissions[number % len(submissions)]
            result = session.grade(submission)
            assert result.score is not None, f"{submission.id}: {result.items}"
            assert result.score <= most, submission.id
            if submission.id in ("right", "threads", "litters"):
                assert result.score == 105, f"{submission.id}: {result}"
        after = traces_of(session.pid, temporary)
    with capsys.disabled():
        for name, value in before.items():
            print(f"\n{name}: {value} -> {after[name]}", end="")
        print(f"\nafter {COUNT} submissions, isolation {level.tier}")
    memory = "memory of session and zygote (kB)"
    for old, new in zip(before.pop(memory), after.pop(memory), strict=True):
        assert new <= old + SLACK_KB
    assert after == before
    assert len(set(Path("/proc/self/fd").iterdir()) - own) == 0
    assert not [p for p in descendants(os.getpid()) if is_zygote(p)]


def written(course, folder):
    """Each way's submission, as a file, and the most it may score."""
    reference = (course.solution(TOPIC) / "lstm.py").read_text()
    for name, (old, new, most) in WAYS.items():
        assert old in reference, name
        path = folder / name / "lstm.py"
        path.parent.mkdir()
        source = reference.replace(old, new, 1)
        # after the docstring, with the other imports
        path.write_text(source.replace("import numpy", f"{MODULES}import numpy", 1))
        yield path.parent, most


def traces_of(pid, temporary):
    """All that a Session could leave behind on this machine."""
    processes = [pid, *descendants(pid)]
    return {
        "memory of session and zygote (kB)": [resident(p) for p in processes],
        "processes": len(processes),
        "descriptors": [descriptors(p) for p in processes],
        "mounts": [mounts(p) for p in (os.getpid(), *processes)],
        "temporary files": sorted(str(p) for p in temporary.rglob("*")),
        "files of workers": sorted(strangers("/tmp", "/var/tmp", "/dev/shm")),
        "zygotes without a parent": orphans(),
    }
