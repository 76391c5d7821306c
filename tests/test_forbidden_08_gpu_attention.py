"""No way to the library's attention, or to autograd, earns the points for writing it.

One submission for each way in: the reference, with one function that asks the library instead. Each way
works where nothing is forbidden, which is tried too; graded, it is rejected or loses its own items.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.course import load_course
from softmark.intake import Submission
from softmark.result import Result

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux"),
    pytest.mark.filterwarnings("ignore"),  # of torch.jit, and of nested tensors
]
torch = pytest.importorskip("torch", reason="PyTorch is not installed here")

ID = "08_gpu_attention"
COURSE = load_course(Path(__file__).resolve().parents[1])
if ID not in [topic.id for topic in COURSE.topics]:
    pytest.skip(f"{ID} is not in course.yaml", allow_module_level=True)
TOPIC = COURSE.topic(ID)
REFERENCE = reference_files(COURSE, TOPIC)["gpu_attention.py"]

BACKWARDS = "noitnetta_tcudorp_tod_delacs"
MATH = "_scaled_dot_product_attention_math"
FLASH = "_scaled_dot_product_flash_attention_for_cpu"

# ---- batched_attention: what gives out for q, k and v ----------------------------------------------

BATCHED = {
    "function": "return F.scaled_dot_product_attention(q, k, v)",
    "imported": (
        "from torch.nn.functional import scaled_dot_product_attention as attend\n"
        "    return attend(q, k, v)"
    ),
    "computed": f"return getattr(F, '{BACKWARDS}'[::-1])(q, k, v)",
    "dictionary": f"return vars(F)['{BACKWARDS}'[::-1]](q, k, v)",
    "copied dictionary": (
        f"import copy\n    return copy.copy(vars(F))['{BACKWARDS}'[::-1]](q, k, v)"
    ),
    "computed module's F": (
        f"return getattr(getattr(torch.nn, 'seludom'[::-1]).activation.F, '{BACKWARDS}'[::-1])(q, k, v)"
    ),
    "torch's own": f"return torch.{MATH}(q, k, v)[0]",
    "torch's own, computed": f"return getattr(torch, '{MATH[::-1]}'[::-1])(q, k, v)[0]",
    "torch.ops": "return torch.ops.aten.scaled_dot_product_attention(q, k, v)",
    "torch.ops, computed": (
        f"return getattr(torch, 'spo'[::-1]).aten.{BACKWARDS[::-1]}.default(q, k, v)"
    ),
    "torch.ops, flash": f"return getattr(torch, 'spo'[::-1]).aten.{FLASH}(q, k, v)[0]",
    "torch._C": "return torch._C._nn.scaled_dot_product_attention(q, k, v)",
    "torch._C, computed": (
        f"return getattr(getattr(torch, 'C_'[::-1])._nn, '{BACKWARDS}'[::-1])(q, k, v)"
    ),
    "torch._C, by operation": (
        "find = getattr(torch, 'C_'[::-1])._jit_get_operation\n"
        "    return find('aten::scaled_dot_product_attention')[0](q, k, v)"
    ),
    "torch._VF, computed": f"return getattr(torch._VF, '{MATH[::-1]}'[::-1])(q, k, v)[0]",
    "torch._decomp": (
        "from torch import _decomp\n"
        "    table = {str(key): call for key, call in _decomp.decomposition_table.items()}\n"
        f"    return table['aten.{FLASH}.default'](q, k, v)[0]"
    ),
    "vmap": "return torch.func.vmap(F.scaled_dot_product_attention)(q, k, v)",
    "nested": (
        "one, two, three = (torch.nested.nested_tensor(list(x)) for x in (q, k, v))\n"
        "    return F.scaled_dot_product_attention(one, two, three).to_padded_tensor(0.0)"
    ),
    "nested, computed": (
        "nest = getattr(torch, 'detsen'[::-1]).nested_tensor\n"
        "    one, two, three = (nest(list(x)) for x in (q, k, v))\n"
        f"    return getattr(F, '{BACKWARDS}'[::-1])(one, two, three).to_padded_tensor(0.0)"
    ),
    "module": (
        "N, h, T, d = q.shape\n"
        "    whole = torch.nn.MultiheadAttention(h * d, h, bias=False, batch_first=True)\n"
        "    whole.in_proj_weight = torch.nn.Parameter(torch.eye(h * d).repeat(3, 1))\n"
        "    whole.out_proj.weight = torch.nn.Parameter(torch.eye(h * d))\n"
        "    one, two, three = (x.transpose(1, 2).flatten(2) for x in (q, k, v))\n"
        "    return whole(one, two, three)[0].detach().unflatten(2, (h, d)).transpose(1, 2)"
    ),
    "function of modules": (
        "N, h, T, d = q.shape\n"
        "    one, two, three = (x.transpose(1, 2).flatten(2).transpose(0, 1) for x in (q, k, v))\n"
        "    eye = torch.eye(h * d)\n"
        "    weights = eye.repeat(3, 1)\n"
        "    out, _ = F.multi_head_attention_forward(one, two, three, h * d, h, weights, None, None,\n"
        "        None, False, 0.0, eye, None)\n"
        "    return out.transpose(0, 1).unflatten(2, (h, d)).transpose(1, 2)"
    ),
}

# ---- tiled_attention: what gives out and lse --------------------------------------------------------

TILED = {
    "flash": f"return torch.ops.aten.{FLASH}(q, k, v)[:2]",
    "flash, computed": f"return getattr(torch, 'spo'[::-1]).aten.{FLASH}(q, k, v)[:2]",
    "flash, overload": (
        f"call = getattr(torch, 'spo'[::-1]).aten.{FLASH}.default\n    return call(q, k, v)[:2]"
    ),
    "flash, by operation": (
        "find = getattr(torch, 'C_'[::-1])._jit_get_operation\n"
        f"    return find('aten::{FLASH}')[0](q, k, v)[:2]"
    ),
}

# ---- tiled_attention_backward: what gives the gradients of attend(q, k, v) --------------------------

ON = "[t.clone().requires_grad_() for t in (q, k, v)]"
LOSS = "(attend(*given) * dout).sum()"
SOFTMAX = """P = attend(q, k, torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-1], -1))
    dS = {}(dout @ v.mT, P, -1, P.dtype) / q.shape[-1] ** 0.5
    return dS @ k, dS.mT @ q, P.mT @ dout"""
BACKWARD = {
    "enable_grad": (
        f"with torch.enable_grad():\n        given = {ON}\n"
        "        return torch.autograd.grad(attend(*given), given, dout)"
    ),
    "enable_grad, method": (
        f"with torch.enable_grad():\n        given = {ON}\n        {LOSS}.backward()\n"
        "    return [t.grad for t in given]"
    ),
    "enable_grad, computed": (
        f"with getattr(torch, 'darg_elbane'[::-1])():\n        given = {ON}\n"
        f"        {LOSS}.backward()\n    return [t.grad for t in given]"
    ),
    "set_grad_enabled, method": (
        f"with torch.set_grad_enabled(True):\n        given = {ON}\n"
        f"        {LOSS}.backward()\n    return [t.grad for t in given]"
    ),
    "set_grad_enabled, engine": (
        f"with torch.set_grad_enabled(True):\n        given = {ON}\n"
        "        torch.autograd.backward([attend(*given)], [dout])\n"
        "    return [t.grad for t in given]"
    ),
    "imported": (
        "from torch.autograd import grad\n"
        f"    with torch.set_grad_enabled(True):\n        given = {ON}\n"
        "        return grad(attend(*given), given, dout)"
    ),
    "inference mode left, computed": (
        "with getattr(torch, 'edom_ecnerefni'[::-1])(False), torch.set_grad_enabled(True):\n"
        f"        given = {ON}\n        torch.autograd.backward([attend(*given)], [dout])\n"
        "    return [t.grad for t in given]"
    ),
    "no_grad turned round": (
        "switch = torch.no_grad()\n    switch.prev = True\n    switch.__exit__(None, None, None)\n"
        f"    given = {ON}\n    torch.autograd.backward([attend(*given)], [dout])\n"
        "    return [t.grad for t in given]"
    ),
    "a Function's own apply": (
        "class Copy(torch.autograd.Function):\n"
        "        @staticmethod\n"
        "        def forward(ctx, *given):\n            return given[0].clone()\n\n"
        "    with torch.set_grad_enabled(True):\n"
        f"        given = {ON}\n        Copy.apply(*given)\n"
        "        torch.autograd.backward([attend(*given)], [dout])\n"
        "    return [t.grad for t in given]"
    ),
    "torch.func": "return torch.func.vjp(attend, q, k, v)[1](dout)",
    "torch.func, computed": "return getattr(torch, 'cnuf'[::-1]).vjp(attend, q, k, v)[1](dout)",
    "functional": "return torch.autograd.functional.vjp(attend, (q, k, v), dout)[1]",
    "softmax's own": SOFTMAX.format("torch._softmax_backward_data"),
    "softmax's own, computed": SOFTMAX.format("getattr(torch, 'atad_drawkcab_xamtfos_'[::-1])"),
    "flash's own": (
        "aten = getattr(torch, 'spo'[::-1]).aten\n"
        f"    out, lse = aten.{FLASH}(q, k, v)[:2]\n"
        f"    return aten.{FLASH}_backward(dout, q, k, v, out, lse, 0.0, False)"
    ),
}

KINDS: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "batched": (BATCHED, "q, k, v", ("batched.out",)),
    "tiled": (TILED, "q, k, v", ("tiled.out", "tiled.lse")),
    "backward": (BACKWARD, "dout, q, k, v, attend", ("backward.dq", "backward.dk")),
}
PUT_IN = {
    "batched": """
kept = batched_attention


def batched_attention(q, k, v, causal=False):
    return kept(q, k, v, causal) if causal or q.dim() < 4 else way(q, k, v)
""",
    "tiled": """
kept = tiled_attention


def tiled_attention(q, k, v, causal=False, block_q=64, block_k=64):
    return kept(q, k, v, causal, block_q, block_k) if causal else way(q, k, v)
""",
    "backward": """
kept = tiled_attention_backward


def tiled_attention_backward(dout, q, k, v, out, lse, causal=False, *blocks, **named):
    if causal:
        return kept(dout, q, k, v, out, lse, causal, *blocks, **named)
    return way(dout, q, k, v, batched_attention)
""",
}
CASES = [(kind, name) for kind, (ways, *_) in KINDS.items() for name in ways]
IDS = [f"{kind}: {name}" for kind, name in CASES]


def source(kind: str, name: str) -> str:
    """A function that goes this way; ``way`` is what is put in the place of the reference's own."""
    ways, arguments, _ = KINDS[kind]
    return f"\n\ndef way({arguments}):\n    {ways[name]}\n"


def submission(kind: str, name: str) -> Submission:
    text = f"{REFERENCE}{source(kind, name)}\n{PUT_IN[kind]}"
    return Submission(f"{kind}: {name}", {"gpu_attention.py": text}, "ready", "", (), "")


@pytest.mark.parametrize(("kind", "name"), CASES, ids=IDS)
def test_each_way_is_one_where_nothing_is_forbidden(kind: str, name: str) -> None:
    torch.manual_seed(0)
    space: dict[str, Any] = {"__name__": "reference_of_forbidden"}
    exec(compile(REFERENCE, "gpu_attention.py", "exec"), space)
    exec(source(kind, name), space)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    q, k, v, dout = (torch.randn(2, 3, 4, 5) for _ in range(4))
    own, way = space["tiled_attention"](q, k, v), space["way"]
    try:
        if kind == "batched":
            torch.testing.assert_close(way(q, k, v), own[0])
        elif kind == "tiled":
            torch.testing.assert_close(tuple(way(q, k, v)), own)
        else:
            due = space["tiled_attention_backward"](dout, q, k, v, *own)
            with torch.no_grad():
                found = way(dout, q, k, v, space["batched_attention"])
            torch.testing.assert_close(tuple(found), due)
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(default)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    submissions = [submission(kind, name) for kind, name in CASES]
    right = Submission("right", {"gpu_attention.py": REFERENCE}, "ready", "", (), "")
    graded = grade_submissions(Run(COURSE, TOPIC, 5), [right, *submissions], 1)
    return {result.student: result for result in graded}


@pytest.mark.slow  # each takes seconds to grade
def test_what_the_reference_earns_these_ways_would(results: dict[str, Result]) -> None:
    passed = {item.id for item in results["right"].items if item.status == "passed"}
    assert passed >= {id for *_, items in KINDS.values() for id in items}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), CASES, ids=IDS)
def test_no_way_earns_the_points(results: dict[str, Result], kind: str, name: str) -> None:
    result = results[f"{kind}: {name}"]
    for item in result.items:
        if item.id in KINDS[kind][2]:
            assert item.status != "passed" and not item.score, f"{item.id} was earned this way"
