"""Triton's kernels, compiled in workers where no program can be started.

None of them runs, but in one test, which needs a GPU: in the others an empty library stands in for the
driver's, and nothing of it is called.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from softmark.bench import CUDA_MB, Bench, NotGraded, isolate
from softmark.course import load_course
from softmark.isolation import host, kernels, tiers, wire
from softmark.isolation.host import Caps, Zygote
from softmark.isolation.seccomp import Unavailable, build_filter
from softmark.isolation.tiers import TIERS, Level
from softmark.script import Output, Raised, Script, Trace
from softmark.timing import Bound

torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
pytest.importorskip("triton", reason="Triton is not installed here: pip install triton")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler is installed here", allow_module_level=True)

try:
    kernels._Linker()
except kernels._Lacking as error:
    pytest.skip(str(error), allow_module_level=True)

ROOT = Path(__file__).parents[1]
TOPIC = "08_gpu_attention"
SOLUTIONS = ROOT / "solutions" / TOPIC
FILES = [file for file in SOLUTIONS.rglob("gpu_attention.py") if "@triton.jit" in file.read_text()]
SMALL = """
import triton
import triton.language as tl


@triton.jit
def doubled(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, 2 * tl.load(x + at))
"""
# What a worker does beside: it compiles its kernel for tensors of a dtype, and tries to start programs.
LOOK = """
import os
import subprocess
import sys
import tempfile

import torch

SIZES = dict(N=16, CAUSAL=False, BLOCK_Q=32, BLOCK_K=32, BLOCK_D=64, D=64, BLOCK=64, ROWS=16)
KINDS = dict(scale="fp32", causal="i1", last="*i64")


def compiled(dtype, arch, options):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = next(x for x in list(globals().values()) if isinstance(x, triton.JITFunction))
    names = kernel.arg_names
    constants = {name: SIZES[name] for name in names if name in SIZES}
    kinds = dict.fromkeys(names, "i32") | dict.fromkeys(("q", "k", "v", "out", "x", "y"), dtype)
    kinds = kinds | KINDS | dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, {name: kinds[name] for name in names}, constants)
    made = triton.compile(source, GPUTarget("cuda", arch, 32), options)
    return [made.name, made.kernel[:4].hex(), made.asm["ptx"], made.metadata.shared]


def programs():
    found = []
    for start in (
        os.fork,
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: subprocess.run([sys.executable, "--version"]),
    ):
        try:
            found.append(f"started: {start()}")
        except Exception as error:
            found.append(type(error).__name__)
    return found


def written():
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        return []
    return [name for _, folders, files in os.walk(folder) for name in (*folders, *files)]


def started(device):
    x = torch.ones(16, device=device)
    y = torch.zeros_like(x)
    doubled[(1,)](x, y, N=16)
    return y.tolist()
"""
FORBID = tuple(load_course(ROOT).topic(TOPIC).policy.forbid)
CALLS = dict.fromkeys(("compiled", "programs", "written", "started"), (Output("found", "list"),))


def zygote_of(level: Level, seccomp: bytes) -> Zygote:
    """As for a topic with kernels, on a GPU."""
    caps = Caps(seconds=300, memory_mb=1024, resident_mb=1024 + CUDA_MB)
    return Zygote([*level.layers, "proc", "cuda"], ["numpy", "torch", "triton"], caps, seccomp)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a library that has the names of the GPU's driver."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    folder = tmp_path_factory.mktemp("driver")
    source = Path(spec.origin).with_name("backends") / "nvidia" / "driver.c"
    names = sorted(set(re.findall(r"\b(cu[A-Z]\w+)\(", source.read_text())))
    (folder / "driver.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    library = ["-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1"]
    subprocess.run(["gcc", "-shared", "-fPIC", *library, "driver.c"], cwd=folder, check=True)
    return str(folder)


@pytest.fixture(scope="module")
def start(driver: str) -> Iterator[Callable[..., Zygote]]:
    """A zygote as for a GPU, at a tier or the strongest, with more in its environment; started once."""
    levels, zygotes = tiers.survey(), {}
    strongest = tiers.reach().tier

    def start(tier: str = strongest, **more: str) -> Zygote:
        key, level = (tier, *more.items()), levels[tier]
        if key in zygotes:
            return zygotes[key]
        if not isinstance(level, Level):
            pytest.skip(f"no tier '{tier}' here: {level}")
        try:
            seccomp = build_filter(cuda=True)
        except Unavailable as error:
            pytest.skip(str(error))
        with pytest.MonkeyPatch.context() as patch:
            folders = {"LD_LIBRARY_PATH": driver, "TRITON_LIBCUDA_PATH": driver}
            for name, value in {**folders, **more}.items():
                patch.setitem(host._GPU, name, value)
            zygotes[key] = zygote_of(level, seccomp)
        return zygotes[key]

    yield start
    for zygote in zygotes.values():
        zygote.close()


@pytest.fixture(scope="module", params=TIERS)
def zygote(start: Callable[..., Zygote], request: pytest.FixtureRequest) -> Zygote:
    made = start(request.param)
    assert made.uncompiled == ""
    return made


def asked(zygote: Zygote, source: str, *calls: tuple) -> list | Raised:
    """What some calls give in a fresh worker, or what the first to raise raised."""
    script = Script(CALLS)
    handles = [script.call(*call) for call in calls]
    worker = zygote.spawn()
    try:
        assert worker.load({"main.py": source + LOOK}, "main", 60, FORBID) is None
        trace = worker.run(script, wire.pack_script(script), 120)
        assert isinstance(trace, Trace) and trace.cause is None, worker.printed()
        return trace.raised or [trace[handle] for handle in handles]
    finally:
        worker.close()


def test_a_kernel_is_compiled_where_no_program_can_be_started_and_no_file_is_left(zygote) -> None:
    found = asked(zygote, SMALL, ("compiled", "*fp32", 80, {}), ("programs",), ("written",))
    assert isinstance(found, list), found
    (name, magic, ptx, _), started, written = found
    assert (name, magic) == ("doubled", b"\x7fELF".hex())
    assert ".visible .entry doubled(" in ptx and ".target sm_80" in ptx
    assert started == ["PermissionError"] * 4
    assert written == []


def test_what_the_linker_says_is_told(start) -> None:
    raised = asked(start(), SMALL, ("compiled", "*fp32", 80, {"ptx_options": "--no-such-thing"}))
    assert isinstance(raised, Raised) and raised.type == "PTXASError", raised
    assert "no-such-thing" in raised.message


@pytest.mark.slow  # several seconds each
@pytest.mark.parametrize("arch", [80, 90, 120])
@pytest.mark.parametrize("dtype", ["*fp32", "*fp16"])
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.parent.name)
def test_the_kernels_of_the_course_are_compiled(start, file, dtype, arch) -> None:
    """In the interpreter a kernel may do what the compiler refuses. The one of padded_blocks is given
    float32 always."""
    if file.parent.name == "padded_blocks":
        dtype = "*fp32"
    found = asked(start(), file.read_text("utf-8"), ("compiled", dtype, arch, {}))
    assert isinstance(found, list), found
    ((_, magic, _, shared),) = found
    assert magic == b"\x7fELF".hex()
    assert 0 < shared <= 99 << 10  # what a block may have on a GPU of any kind, from Ampere on


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_compiled_kernel_runs_on_a_gpu() -> None:
    """With the driver that is installed."""
    with zygote_of(tiers.reach(), build_filter(cuda=True)) as zygote:
        assert zygote.uncompiled == ""
        assert asked(zygote, SMALL, ("started", "cuda")) == [[2.0] * 16]


# ---- where it cannot be had ------------------------------------------------------------------------

COMPILER = "it takes a C compiler and Python's headers"


def test_without_a_c_compiler_workers_start_and_a_kernel_says_what_is_missing(start) -> None:
    zygote = start(PATH="/nowhere")
    assert COMPILER in zygote.uncompiled and "apt install gcc" in zygote.uncompiled
    assert asked(zygote, SMALL, ("written",)) == [[]]
    raised = asked(zygote, SMALL, ("started", "cpu"))
    assert isinstance(raised, Raised)
    assert (raised.type, raised.message) == ("RuntimeError", zygote.uncompiled)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("kernels._files = lambda wheel: []", "(pip install nvidia-nvjitlink)"),
        ("del stages.CUDABackend.make_cubin", "none of the versions that are known, 3.7 to 3.9"),
    ],
)
def test_what_else_may_be_missing_is_said(edit: str, said: str) -> None:
    code = (
        "import triton.backends.nvidia.compiler as stages; from softmark.isolation import kernels; "
        f"{edit}; print(kernels.prepare())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said in done.stdout, done.stderr[-1000:]


def test_then_the_item_is_not_graded_and_says_why(start) -> None:
    """With tensors on the CPU in a GPU's worker: the first kernel to be started refuses."""
    course = load_course(ROOT)
    topic = course.topic(TOPIC)
    script = Script(topic.calls)
    given = [script.fresh(name, 1, 1, 16, 16) for name in "qkv"]
    script.start_clock()
    script.call("triton_attention", *given)
    with (
        Bench(course, topic, 0, isolate(course, TOPIC), device="cpu") as bench,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(bench._zygotes, "torch", start(PATH="/nowhere"))
        bench.take(bench.reference_files)
        with pytest.raises(NotGraded, match=f"^Not measured: .*{COMPILER}.*gcc python3-dev"):
            bench.timed(bench.question(script), 1e-4, Bound(1.5, 4))
