"""What lies in ci/: workflows, the image, the Slurm array, the check of a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
CI = ROOT / "ci"
GITHUB = CI / "github-gpu.yml"
GITLAB = CI / "gitlab-gpu.yml"
IMAGE = CI / "gpu.Dockerfile"
TOPIC = "08_gpu_attention"

if not shutil.which("bash"):
    pytest.skip("needs bash", allow_module_level=True)


def read(path: Path) -> Any:
    """A workflow; YAML 1.1 takes the key ``on`` for a truth value."""
    return yaml.safe_load(path.read_text(encoding="utf-8").replace("\non:", '\n"on":'))


def step(job: str, name: str, workflow: Path = GITHUB) -> str:
    """The shell lines of a step, as GitHub would run them on the second of three shards."""
    (found,) = [s for s in read(workflow)["jobs"][job]["steps"] if name in s.get("name", "")]
    lines = found["run"].replace("${{ matrix.shard }}", "2")
    return str(lines.replace("${{ strategy.job-total }}", "3"))


def bash(
    *command: str, cwd: Path, path: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run bash; the programs in ``path`` come first."""
    first = f"{path}{os.pathsep}" if path else ""
    return subprocess.run(
        ["bash", *command],
        cwd=cwd,
        env={**os.environ, "PATH": first + os.environ["PATH"], "TOPIC": TOPIC, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def stand_in(folder: Path, name: str, lines: str) -> Path:
    """A program of this name; the folder that it is in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/usr/bin/env bash\n{lines}\n", encoding="utf-8")
    (folder / name).chmod(0o755)
    return folder


def test_the_readme_tells_of_every_file() -> None:
    text = (CI / "README.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([\w.-]+)` \|", text, re.MULTILINE)
    there = {path.name for path in CI.iterdir()}
    assert set(told) - {"COLLECT_TOKEN", "GIVE_BACK_TOKEN", "SOFTMARK_SEED"} == there - {
        "README.md"
    }


# ---- linted --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["vendor.github-workflows", str(GITHUB)],
        ["vendor.gitlab-ci", "--data-transform", "gitlab-ci", str(GITLAB)],
    ],
    ids=["github", "gitlab"],
)
def test_workflows_are_valid(words: list[str]) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def tool(name: str) -> list[str]:
    """A linter that is installed beside Python or anywhere; the test is skipped without."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed")
    return [found]


def test_actionlint_finds_nothing() -> None:
    paths = [str(GITHUB), str(CI / "github-grade.yml")]
    # a runner's label is the instructor's own
    ignore = ["-ignore", 'label "gpu" is unknown']
    done = subprocess.run(
        [*tool("actionlint"), *ignore, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_shell_scripts_are_sound() -> None:
    scripts = sorted(CI.glob("*.sh"))
    assert len(scripts) == 2
    for script in scripts:
        assert os.access(script, os.X_OK)
        assert bash("-n", str(script), cwd=ROOT).returncode == 0
    done = subprocess.run(
        [*tool("shellcheck"), *map(str, scripts)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


# ---- GitHub --------------------------------------------------------------------------------------


def test_no_job_does_more_than_it_must() -> None:
    """Actions are GitHub's own, by commit; no checkout leaves a token or takes another repository; what
    GitHub puts into a program is a number."""
    workflow = read(GITHUB)
    assert workflow["permissions"] == {} and list(workflow["on"]) == ["workflow_dispatch"]
    for job in workflow["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        for each in job["steps"]:
            assert re.fullmatch(
                r"actions/[\w-]+@[0-9a-f]{40}", each.get("uses", f"actions/a@{0:040}")
            )
            if each.get("uses", "").startswith("actions/checkout@"):
                assert each["with"] == {"persist-credentials": False}
            inside = set(re.findall(r"\$\{\{\s*(.*?)\s*\}\}", each.get("run", "")))
            assert inside <= {"matrix.shard", "strategy.job-total"}


def test_students_code_and_tokens_never_meet() -> None:
    jobs = read(GITHUB)["jobs"]
    secrets = {name: re.findall(r"secrets\.(\w+)", json.dumps(job)) for name, job in jobs.items()}
    assert secrets == {"collect": ["COLLECT_TOKEN"], "grade": ["SOFTMARK_SEED"], "tell": []}
    assert [name for name, job in jobs.items() if "self-hosted" in job["runs-on"]] == ["grade"]
    lines = step("grade", "grade")
    assert "--network none" in lines
    # nothing of the job's environment, nor Docker's socket, goes into the container
    assert not re.search(r"--env|-e |docker\.sock|--privileged", lines)
    assert lines.count("--volume") == 2 and "$PWD:/course:ro" in lines


GH = """
case "$*" in
  */one/lstm/commits/tags/hand-in-08_gpu_attention*) echo 1111 ;;
  */two/lstm/commits/tags/*) echo 2222 ;;
  */commits/tags/*) exit 1 ;;
  *one/lstm/tarball/1111) printf archive ;;
  *two/lstm/tarball/2222) head -c 64000100 /dev/zero ;;
  *) echo "$*" >&2; exit 9 ;;
esac
"""


def test_archives_are_fetched_as_tagged_and_cut_where_they_are_too_large(tmp_path: Path) -> None:
    gh = stand_in(tmp_path / "bin", "gh", GH)
    students = "# id repository\ns1 a/one/lstm\ns2 a/two/lstm\n\ns3 a/three/lstm\n"
    (tmp_path / "students.txt").write_text(students, encoding="utf-8")
    done = bash("-e", "-c", step("collect", "fetch"), cwd=tmp_path, path=gh)
    assert done.returncode == 0, done.stderr
    sizes = {p.name: p.stat().st_size for p in (tmp_path / "batch/submissions").iterdir()}
    assert sizes == {"s1.tar.gz": len("archive"), "s2.tar.gz": 64_000_000}
    told = (tmp_path / "batch/commits.txt").read_text(encoding="utf-8")
    assert told == "s1 a/one/lstm 1111\ns2 a/two/lstm 2222\n"
    shutil.rmtree(tmp_path / "batch")
    (tmp_path / "students.txt").write_text("s3 a/three/lstm\n", encoding="utf-8")
    done = bash("-e", "-c", step("collect", "fetch"), cwd=tmp_path, path=gh)
    assert done.returncode == 1 and "no repository has the tag" in done.stdout


def test_students_words_are_no_commands_and_the_exit_code_is_kept(tmp_path: Path) -> None:
    said = '#!/bin/sh\nprintf "%s " "$@" >"$SAW"; echo "::error::by a student"; exit 3'
    docker = stand_in(tmp_path / "bin", "docker", said)
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch/commits.txt").write_text("s1 a 1\ns2 b 2\n", encoding="utf-8")
    secret = {"SOFTMARK_SEED": "long text", "GITHUB_RUN_ID": "7", "SAW": str(tmp_path / "saw")}
    done = bash("-e", "-c", step("grade", "grade"), cwd=tmp_path, path=docker, **secret)
    assert done.returncode == 3
    begin, student, end = done.stdout.splitlines()
    assert student == "::error::by a student"
    assert re.fullmatch(r"::stop-commands::[0-9a-f]{32}", begin)
    assert end == f"::{begin.removeprefix('::stop-commands::')}::"
    asked = (tmp_path / "saw").read_text(encoding="utf-8")
    assert "--shard 2/3" in asked and "--require-gpu" in asked and "long text" not in asked
    assert int(re.findall(r"--seed (\d+) ", asked)[0]) < 2**63
    (tmp_path / "batch/commits.txt").write_text("s1 a 1\n", encoding="utf-8")
    done = bash("-e", "-c", step("grade", "grade"), cwd=tmp_path, path=docker, **secret)
    assert (done.returncode, done.stdout) == (0, "")  # nothing for this shard


def test_nor_are_they_where_no_gpu_is_asked_for(tmp_path: Path) -> None:
    said = 'if [ "$1" != chown ]; then echo "::error::by a student"; exit 3; fi'
    sudo = stand_in(tmp_path / "bin", "sudo", said)
    stand_in(tmp_path / ".venv/bin", "python", "echo exported")
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch/commits.txt").write_text("s1 a 1\ns2 b 2\n", encoding="utf-8")
    lines = step("grade", "grade", CI / "github-grade.yml")
    done = bash("-e", "-c", lines, cwd=tmp_path, path=sudo, SOFTMARK_SEED="s", GITHUB_RUN_ID="7")
    assert done.returncode == 3, done.stderr
    begin, student, end, exported = done.stdout.splitlines()
    assert student == "::error::by a student" and exported == "exported"
    assert end == f"::{begin.removeprefix('::stop-commands::')}::"


# ---- GitLab --------------------------------------------------------------------------------------


def test_on_gitlab_the_token_is_of_another_job_and_environment() -> None:
    jobs = read(GITLAB)
    assert "COLLECT_TOKEN" in json.dumps(jobs["collect"])
    assert jobs["collect"]["environment"]["name"] == "collect"
    assert "COLLECT_TOKEN" not in json.dumps(jobs["grade"]) and "environment" not in jobs["grade"]
    script = jobs["grade"]["script"]
    first = next(n for n, line in enumerate(script) if "softmark grade" in line)
    before = "\n".join(script[:first])
    assert "CI_JOB_TOKEN" in before and "rm -f .git/config" in before
    assert all(
        job["artifacts"]["access"] == "developer" for job in (jobs["collect"], jobs["grade"])
    )


CURL = """
url=${*: -1}
while [ $# -gt 1 ]; do [ "$1" = --output ] && file=$2; shift; done
case "$url" in
  https://lab/api/projects/a%2Fone/repository/archive.tar.gz\\?sha=hand-in-08_gpu_attention)
    printf archive >"$file" ;;
  *) printf half >"$file"; exit 22 ;;
esac
"""


def test_on_gitlab_archives_are_fetched_as_tagged(tmp_path: Path) -> None:
    (lines,) = [line for line in read(GITLAB)["collect"]["script"] if "students.txt" in line]
    curl = stand_in(tmp_path / "bin", "curl", CURL)
    (tmp_path / "students.txt").write_text("s1 a/one\n# no\ns2 a/two\n", encoding="utf-8")
    (tmp_path / "batch").mkdir()
    given = {"CI_API_V4_URL": "https://lab/api", "COLLECT_TOKEN": "t"}
    done = bash("-e", "-c", lines, cwd=tmp_path, path=curl, **given)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "batch").iterdir()] == ["s1.tar.gz"]
    assert "s2 has no tag" in done.stdout


def test_an_archive_of_a_repository_is_a_submission(tmp_path: Path) -> None:
    """As GitHub and GitLab pack it: all in one folder, that topic in one of several."""
    from softmark.course import load_course
    from softmark.intake import find_submissions, read_submission

    work = tmp_path / "a-lstm-1111"
    for topic in ("01_bptt", "02_lstm"):
        shutil.copytree(ROOT / "starter" / topic, work / topic)
    (work / ".github/workflows").mkdir(parents=True)
    (work / ".github/workflows/check.yml").write_text("on: push\n", encoding="utf-8")
    batch = tmp_path / "batch"
    batch.mkdir()
    shutil.make_archive(str(batch / "s1"), "gztar", tmp_path, work.name)
    topic = load_course(ROOT).topic("02_lstm")
    ((id, path),) = find_submissions(batch, topic)
    assert id == "s1"
    found = read_submission(path, topic, id)
    assert found.status == "ready" and set(found.files) >= {"lstm.py", "lstm_torch.py"}


# ---- the image -----------------------------------------------------------------------------------


def test_the_image_has_what_the_tests_passed_with() -> None:
    text = IMAGE.read_text(encoding="utf-8")
    (cuda,) = re.findall(r"^ARG CUDA=(cu\d+)$", text, re.MULTILINE)
    installs = re.findall(r"pip install (.*)$", text, re.MULTILINE)
    assert len(installs) == 2 and all("-c constraints.txt" in line for line in installs)
    # PyTorch's version stands in constraints.txt alone; its build is chosen by CUDA's
    assert "https://download.pytorch.org/whl/${CUDA}" in installs[0] and "torch==" not in text
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"^torch==[\d.]+$", pinned, re.MULTILINE)
    assert f"--build-arg CUDA={cuda}" in (CI / "README.md").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert not any(name.startswith(("solutions", "autograder/graders", ".")) for name in names)
    assert all((ROOT / name).exists() for name in names)
    (python,) = re.findall(r"^FROM python:(3\.\d+)-slim", text, re.MULTILINE)
    assert python in ("3.11", "3.12", "3.13")


# ---- Slurm ---------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with stand-ins for a course's Python, which tells what it is asked, and a driver."""
    stand_in(tmp_path / ".venv/bin", "python", 'echo "$*"')
    (tmp_path / "seed.txt").write_text("42\n", encoding="utf-8")
    stand_in(tmp_path / "bin", "nvidia-smi", 'for n in $(seq "${GPUS:-1}"); do echo "GPU $n"; done')
    return tmp_path


def array(cluster: Path, number: int, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {
        "SLURM_ARRAY_TASK_ID": str(number),
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "8",
        "SLURM_ARRAY_TASK_COUNT": "8",
    }
    words = [str(CI / "slurm-grade.sh"), TOPIC, "hand ins", "out/x", "seed.txt"]
    return bash(*words, cwd=cluster, path=cluster / "bin", **{**given, **variables})


def test_a_job_of_the_array_grades_its_share(cluster: Path) -> None:
    done = array(cluster, 3)
    assert done.stdout == (
        f"-P -m softmark grade hand ins --topic {TOPIC} --out out/x/3 "
        "--seed 42 --shard 3/8 --device cuda --require-gpu\n"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"SLURM_ARRAY_TASK_MIN": "0"}, "has to be 1-n"),
        ({"SLURM_ARRAY_TASK_COUNT": "4"}, "has to be 1-n"),
        ({"GPUS": "4"}, "sees 4 GPUs"),
        ({"SLURM_ARRAY_TASK_ID": ""}, "usage"),
    ],
)
def test_a_job_that_would_grade_something_else_does_not_start(
    cluster: Path, given: dict[str, str], said: str
) -> None:
    done = array(cluster, 3, **given)
    assert done.returncode == 2 and said in done.stderr and not done.stdout


def test_the_array_takes_nothing_of_the_environment_along() -> None:
    text = (CI / "slurm-grade.sh").read_text(encoding="utf-8")
    assert "#SBATCH --export=NONE" in text and "#SBATCH --gres=gpu:1" in text


# ---- the check of a GPU --------------------------------------------------------------------------

CHECK = str(CI / "gpu_check.sh")


def test_without_a_gpu_nothing_is_tried_and_the_exit_code_says_so(tmp_path: Path) -> None:
    driver = stand_in(tmp_path / "bin", "nvidia-smi", "echo 'No devices were found'; exit 6")
    page = tmp_path / "page.md"
    done = bash(CHECK, "--out", str(page), cwd=tmp_path, path=driver, PYTHON=sys.executable)
    assert done.returncode == 2 and not page.exists()
    assert "nothing was tried: nvidia-smi fails: No devices were found" in done.stderr


def test_a_pytorch_without_cuda_is_told(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    fit = "echo 'NVIDIA Z9, 141000, 3, 0, Disabled, 0x0000000000000001, 570.1'"
    driver = stand_in(tmp_path / "bin", "nvidia-smi", fit)
    done = bash(CHECK, cwd=tmp_path, path=driver, PYTHON=sys.executable)
    assert done.returncode == 2
    assert f"PyTorch cannot use the GPU: {torch.__version__}" in done.stderr


@pytest.mark.parametrize("words", [["--ot"], ["--out"], ["--device", "tpu"], ["--out", ""]])
def test_bad_usage_has_an_exit_code_of_its_own(tmp_path: Path, words: list[str]) -> None:
    done = bash(CHECK, *words, cwd=tmp_path, PYTHON=sys.executable)
    assert done.returncode == 64 and "usage" in done.stderr


FILES = {
    "course.yaml": "title: Timed\ntopics:\n  - id: 00_quick\n",
    "assignments/00_quick/assignment.yaml": """
title: Products
hours: 1
files: [quick.py]
worker: torch
calls: {gram: {y: "array (N, N)"}}
rubric:
  gram.values: {title: values, points: 10}
  gram.time: {title: as fast as one product, points: 4, tier: extension, device: cuda}
  gram.missing: {title: has no test, points: 1, tier: extension, device: cuda}
  gram.wrong: {title: never the same, points: 1, tier: extension, device: cuda}
""",
    "solutions/00_quick/quick.py": """
import time

def gram(x):
    # BEGIN SOLUTION
    if x.shape[0] == 5: return x @ x.mT + time.perf_counter() % 1
    return x @ x.mT
    # END SOLUTION
""",
    "autograder/graders/00_quick/test_quick.py": """
from softmark.plugin import item

def product(script, size):
    run = script()
    x = run.fresh("x", size, 700)
    run.start_clock()
    run.call("gram", x)
    return run

@item("gram.values")
def test_values(script, agree, draw):
    raise AssertionError("not one of those that need a GPU")

@item("gram.time")
def test_time(script, timed, device):
    assert device == "cpu"
    timed(product(script, 700), gate=1e-4, full=1.01, none=1.02)

@item("gram.wrong")
def test_wrong(script, timed):
    timed(product(script, 5), gate=1e-9, full=50, none=5000)
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A course of one topic with an item that can be measured, one without a test, one that fails."""
    for name, text in FILES.items():
        path = tmp_path / "course" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), encoding="utf-8")
    return tmp_path / "course"


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")
TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed here")


def check_items(text: str) -> None:
    """The rows of the three items of that course."""
    said = dict(re.findall(r"^\| 00_quick \| (\S+) \| (.*?) \|", text, re.MULTILINE))
    assert list(said) == ["gram.time", "gram.missing", "gram.wrong"]
    assert said["gram.time"] == "measured" or said["gram.time"].startswith("Not measured")
    assert said["gram.missing"] == "no test ran"
    assert "too far from the right ones" in said["gram.wrong"]


@LINUX
@TORCH
def test_every_item_is_tried_and_one_that_cannot_be_measured_is_a_failure(folder: Path) -> None:
    words = ["--device", "cpu", "--pairs", "2", "--course", str(folder)]
    command = [sys.executable, str(ROOT / "benchmarks/gpu_items.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    check_items(done.stdout)


@pytest.mark.slow  # takes times for minutes
@LINUX
@TORCH
def test_all_but_cuda_itself_runs_on_cpu_workers(folder: Path, tmp_path: Path) -> None:
    words = ["--device", "cpu", "--out", "page.md", "--course", str(folder)]
    done = bash(CHECK, *words, cwd=tmp_path, PYTHON=sys.executable)
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |^This took)", text, re.M | re.S))
    assert list(sections) == [
        "What a submission is kept from",
        "Tests that need CUDA",
        "Every item that needs a GPU, once",
        "The reference against itself",
        "Ways of writing attention",
    ]
    items = sections["Every item that needs a GPU, once"]
    check_items(items)
    assert done.returncode == 1 and "**Failed**, exit code 1" in items
    assert text.count("**Failed**") == 1, text
    itself = sections["The reference against itself"]
    assert re.search(r"\| each launch used once \| 1 \| 1?0+% \| \d", itself)
    assert re.search(r"\| drawn from 5 launches \| 200 \|", itself)
    attention = sections["Ways of writing attention"]
    for style in ("batched", "naive", "tiled", "PyTorch's own"):
        (row,) = re.findall(rf"^\| {style} \| (.*) \|$", attention, re.M)
        assert len(row.split(" | ")) == 4
    assert "stops where" not in attention and "too far from" not in attention
    assert "numbers mean nothing" in text
    command = [sys.executable, str(ROOT / "benchmarks/gpu_items.py"), *words[:2], *words[4:]]
    late = subprocess.run(
        [*command, "--minutes", "-1"], capture_output=True, text=True, check=False
    )
    assert late.stdout.count("| not reached in the time given |") == 2


@LINUX
@TORCH
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_way_of_writing_attention_is_right(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention as oracle

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_styles

    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, T, 4) for T in (7, 5000, 5000, 7)]  # more keys than a block, and no multiple
    *inputs, dout = [torch.randn(shape, generator=generator).double() for shape in shapes]
    for each in inputs:
        each.requires_grad_()
    oracle(*inputs).backward(dout)
    sources, reference = gpu_styles.styles()
    assert reference in sources and {"naive", "batched", "tiled", "PyTorch's own"} <= set(sources)
    for name in ("naive", "batched", "tiled"):
        given = [t.detach().to(getattr(torch, dtype)).requires_grad_() for t in inputs]
        names: dict[str, Any] = {}
        exec(sources[name], names)
        out = names["attend"](*given)
        out.backward(dout.to(out.dtype))
        assert out.dtype == given[0].dtype
        pairs = [
            (out, oracle(*inputs)),
            *((a.grad, b.grad) for a, b in zip(given, inputs, strict=True)),
        ]
        for found, expected in pairs:
            error = (found.double() - expected).norm() / expected.norm()
            assert error < 1e-5, name


@LINUX
@TORCH
def test_coverage_counts_the_intervals_that_hold_1(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_aa

    rng = np.random.default_rng(0)

    def shares(middle: float, noise: float) -> list[list[str]]:
        taken = middle + noise * rng.normal(size=(22, 12))
        lines = gpu_aa.table(gpu_aa.coverage(taken.tolist(), rng))[2:]
        rows = [[cell.strip() for cell in line.split("|")] for line in lines]
        return [[number, held, width] for _, _, number, held, _, width, *_ in rows]

    apart, drawn = shares(0.0, 0.02)
    assert (apart[0], drawn[0]) == ("4", "200")  # 22 launches are four times five
    assert int(drawn[1][:-1]) >= 50 and drawn[2] != "0.0000"
    off = shares(0.1, 0.02)
    assert [row[1] for row in off] == ["0%", "0%"]
