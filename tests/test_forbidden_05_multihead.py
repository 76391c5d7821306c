"""No way to the library's attention, or to autograd, earns the points for writing it.

One submission for each way in: the reference, with one function that asks the library instead. Each way
works where nothing is forbidden, which is tried too; graded, it is rejected or loses its own items.
"""

from __future__ import annotations

import os
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
    pytest.mark.filterwarnings("ignore"),  # of torch.jit
]
torch = pytest.importorskip("torch", reason="PyTorch is not installed here")

ID = "05_multihead"
COURSE = load_course(Path(__file__).resolve().parents[1])
if ID not in [topic.id for topic in COURSE.topics]:
    pytest.skip(f"{ID} is not in course.yaml", allow_module_level=True)
TOPIC = COURSE.topic(ID)
REFERENCE = reference_files(COURSE, TOPIC)["multihead.py"]

# ---- attention: what gives out for q, k, v and a mask ----------------------------------------------

MASKED = "q, k, v, mask"
BACKWARDS = "noitnetta_tcudorp_tod_delacs"
MATH = "_scaled_dot_product_attention_math"
ADDED = "q, k, v, block"
BLOCK = """block = mask
    if mask is not None:
        block = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -torch.inf)
    """
ATTENTION = {
    "function": f"return nn.functional.scaled_dot_product_attention({MASKED})",
    "imported": (
        "from torch.nn.functional import scaled_dot_product_attention as attend\n"
        f"    return attend({MASKED})"
    ),
    "getattr": f"return getattr(nn.functional, 'scaled_dot_product_attention')({MASKED})",
    "getattr backwards": f"return getattr(nn.functional, '{BACKWARDS}'[::-1])({MASKED})",
    "dictionary": f"return vars(nn.functional)['{BACKWARDS}'[::-1]]({MASKED})",
    "another module's F": f"return nn.modules.activation.F.scaled_dot_product_attention({MASKED})",
    "computed module's F": (
        f"return getattr(getattr(nn, 'seludom'[::-1]).activation.F, '{BACKWARDS}'[::-1])({MASKED})"
    ),
    "sys.modules": (
        "import sys\n    name = '.'.join(['torch', 'nn', 'functional'])\n"
        f"    return sys.modules[name].scaled_dot_product_attention({MASKED})"
    ),
    "torch's own": BLOCK + f"return torch.{MATH}({ADDED})[0]",
    "torch's own, computed": BLOCK + f"return getattr(torch, '{MATH[::-1]}'[::-1])({ADDED})[0]",
    "torch.ops": f"return torch.ops.aten.scaled_dot_product_attention({MASKED})",
    "torch.ops, computed": (
        BLOCK + f"aten = getattr(torch, 'spo'[::-1]).aten\n    return aten.{MATH}({ADDED})[0]"
    ),
    "torch.ops, overload": (
        "aten = getattr(torch, 'spo'[::-1]).aten\n"
        f"    return aten.scaled_dot_product_attention.default({MASKED})"
    ),
    "torch.ops, flash": (
        BLOCK + "aten = getattr(torch, 'spo'[::-1]).aten\n"
        "    call = aten._scaled_dot_product_flash_attention_for_cpu\n"
        "    return call(q, k, v, attn_mask=block)[0]"
    ),
    "torch._C": f"return torch._C._nn.scaled_dot_product_attention({MASKED})",
    "torch._C, computed": (
        f"return getattr(getattr(torch, 'C_'[::-1])._nn, '{BACKWARDS}'[::-1])({MASKED})"
    ),
    "torch._C, functions": BLOCK + f"return torch._C._VariableFunctions.{MATH}({ADDED})[0]",
    "torch._C, functions, computed": (
        BLOCK + f"return getattr(torch, 'C_'[::-1])._VariableFunctions.{MATH}({ADDED})[0]"
    ),
    "torch._C, by operation": (
        "find = getattr(torch, 'C_'[::-1])._jit_get_operation\n"
        f"    return find('aten::scaled_dot_product_attention')[0]({MASKED})"
    ),
    "torch._VF, computed": BLOCK + f"return getattr(torch._VF, '{MATH[::-1]}'[::-1])({ADDED})[0]",
    "torch._decomp": (
        BLOCK + "from torch import _decomp\n"
        "    table = {str(key): call for key, call in _decomp.decomposition_table.items()}\n"
        "    name = 'aten._scaled_dot_product_flash_attention_for_cpu.default'\n"
        "    return table[name](q, k, v, attn_mask=block)[0]"
    ),
    "torch.jit": (
        "unit = torch.jit.CompilationUnit('def f(q, k, v, mask: Optional[Tensor]):\\n'\n"
        "        '    return torch._C._nn.scaled_dot_product_attention(q, k, v, mask)\\n')\n"
        f"    return unit.f({MASKED})"
    ),
    "vmap": (
        "call = nn.functional.scaled_dot_product_attention\n"
        "    given = (q, k, v) if mask is None else (q, k, v, mask.expand(*q.shape[:3], k.shape[2]))\n"
        "    return torch.func.vmap(call)(*given)"
    ),
    "copy of a library module": (
        "import copy\n    functions = copy.copy(vars(nn.functional))\n"
        f"    return functions['scaled_dot_product_attention']({MASKED})"
    ),
    "copy of the function": (
        "import copy\n    call = copy.copy(nn.functional.scaled_dot_product_attention)\n"
        f"    return call({MASKED})"
    ),
}

# ---- MultiHeadAttention: what gives out for x (N, T, E) and the module -----------------------------

FILL = '''

def filled(layer, made):
    """The library's module with the parameters of a MultiHeadAttention."""
    parts = made.q_proj, made.k_proj, made.v_proj
    layer.in_proj_weight = nn.Parameter(torch.cat([part.weight for part in parts]))
    layer.in_proj_bias = nn.Parameter(torch.cat([part.bias for part in parts]))
    layer.out_proj.weight, layer.out_proj.bias = made.o_proj.weight, made.o_proj.bias
    return layer
'''
SIZES = "E, h = made.d_model, made.num_heads\n    "
USED = "\n    return filled(kind(E, h, batch_first=True), made)(x, x, x)[0]"
MULTIHEAD = {
    "class": SIZES + "kind = nn.MultiheadAttention" + USED,
    "getattr": SIZES + "kind = getattr(nn, 'noitnettAdaehitluM'[::-1])" + USED,
    "defining module": SIZES + "kind = nn.modules.activation.MultiheadAttention" + USED,
    "computed module": (
        SIZES + "kind = getattr(nn, 'seludom'[::-1]).activation.MultiheadAttention" + USED
    ),
    "subclass": SIZES + "class kind(nn.MultiheadAttention):\n        pass\n" + USED,
    "walk over subclasses": (
        SIZES + "name = 'noitnettAdaehitluM'[::-1]\n"
        "    kind = next(k for k in nn.Module.__subclasses__() if k.__name__ == name)" + USED
    ),
    "of a library layer": (
        SIZES + "whole = nn.TransformerEncoderLayer(E, h, 4, 0.0, batch_first=True)\n"
        "    return filled(whole.self_attn, made)(x, x, x)[0]"
    ),
    "copy of a library layer's part": (
        SIZES + "import copy\n"
        "    whole = nn.TransformerDecoderLayer(E, h, 4, 0.0, batch_first=True)\n"
        "    return filled(copy.deepcopy(whole.multihead_attn), made)(x, x, x)[0]"
    ),
    "copy of the class": (
        SIZES + "known = nn.MultiheadAttention\n"
        "    layer = filled(known(E, h, batch_first=True), made)\n"
        "    Mine = type('Mine', (nn.Module,), dict(vars(known)))\n"
        "    return Mine.forward(layer, x, x, x)[0]"
    ),
    "function": (
        SIZES + "t = x.transpose(0, 1)\n"
        "    weights = torch.cat([p.weight for p in (made.q_proj, made.k_proj, made.v_proj)])\n"
        "    biases = torch.cat([p.bias for p in (made.q_proj, made.k_proj, made.v_proj)])\n"
        "    out, _ = nn.functional.multi_head_attention_forward(t, t, t, E, h, weights, biases, None,\n"
        "        None, False, 0.0, made.o_proj.weight, made.o_proj.bias)\n"
        "    return out.transpose(0, 1)"
    ),
    "private forward": (
        SIZES + "weights = torch.cat([p.weight for p in (made.q_proj, made.k_proj, made.v_proj)])\n"
        "    biases = torch.cat([p.bias for p in (made.q_proj, made.k_proj, made.v_proj)])\n"
        "    with torch.no_grad():\n"
        "        return torch._native_multi_head_attention(x, x, x, E, h, weights, biases,\n"
        "            made.o_proj.weight, made.o_proj.bias)[0]"
    ),
    "private forward, computed": (
        SIZES + "weights = torch.cat([p.weight for p in (made.q_proj, made.k_proj, made.v_proj)])\n"
        "    biases = torch.cat([p.bias for p in (made.q_proj, made.k_proj, made.v_proj)])\n"
        "    aten = getattr(torch, 'spo'[::-1]).aten\n"
        "    with torch.no_grad():\n"
        "        return aten._native_multi_head_attention(x, x, x, E, h, weights, biases,\n"
        "            made.o_proj.weight, made.o_proj.bias)[0]"
    ),
}

# ---- attention_backward: what gives the gradients of attend(q, k, v) -------------------------------

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
    "set_grad_enabled, computed": (
        f"with getattr(torch, 'delbane_darg_tes'[::-1])(True):\n        given = {ON}\n"
        "        return getattr(torch, 'dargotua'[::-1]).grad(attend(*given), given, dout)"
    ),
    "graph walked by hand": (
        f"with torch.set_grad_enabled(True):\n        given = {ON}\n        out = attend(*given)\n"
        "    found = {}\n\n"
        "    def walk(node, g):\n"
        "        if hasattr(node, 'variable'):\n"
        "            found[id(node.variable)] = found.get(id(node.variable), 0) + g\n"
        "            return\n"
        "        sent = node(g)\n"
        "        sent = sent if type(sent) is tuple else [sent]\n"
        "        for (behind, _), each in zip(node.next_functions, sent):\n"
        "            if behind is not None and each is not None:\n"
        "                walk(behind, each)\n\n"
        "    walk(out.grad_fn, dout)\n"
        "    return [found[id(t)] for t in given]"
    ),
    "inference mode left": (
        f"with torch.inference_mode(False):\n        given = {ON}\n        {LOSS}.backward()\n"
        "    return [t.grad for t in given]"
    ),
    "inference mode left, computed": (
        "with getattr(torch, 'edom_ecnerefni'[::-1])(False), torch.set_grad_enabled(True):\n"
        f"        given = {ON}\n        {LOSS}.backward()\n    return [t.grad for t in given]"
    ),
    "engine, computed": (
        "auto = getattr(torch, 'dargotua'[::-1])\n"
        f"    with getattr(torch, 'delbane_darg_tes'[::-1])(True):\n        given = {ON}\n"
        "        auto.backward([attend(*given)], [dout])\n    return [t.grad for t in given]"
    ),
    "no_grad turned round": (
        "switch = torch.no_grad()\n    switch.prev = True\n    switch.__exit__(None, None, None)\n"
        f"    given = {ON}\n    {LOSS}.backward()\n    return [t.grad for t in given]"
    ),
    "optimizer's closure": (
        f"given = {ON}\n\n    def closure():\n        {LOSS}.backward()\n        return 0.0\n\n"
        "    torch.optim.SGD(given, 0.0).step(closure)\n    return [t.grad for t in given]"
    ),
    "thread": (
        f"import threading\n    given = {ON}\n\n"
        f"    def run():\n        {LOSS}.backward()\n\n"
        "    one = threading.Thread(target=run)\n    one.start()\n    one.join()\n"
        "    return [t.grad for t in given]"
    ),
    "torch.func": "return torch.func.vjp(attend, q, k, v)[1](dout)",
    "torch.func.grad": (
        "return torch.func.grad(lambda *given: (attend(*given) * dout).sum(), (0, 1, 2))(q, k, v)"
    ),
    "torch.func, computed": "return getattr(torch, 'cnuf'[::-1]).vjp(attend, q, k, v)[1](dout)",
    "torch.func.jacrev, computed": (
        "jacobians = getattr(torch, 'cnuf'[::-1]).jacrev(attend, (0, 1, 2))(q, k, v)\n"
        "    return [torch.tensordot(dout, j, dout.dim()) for j in jacobians]"
    ),
    "torch.func.jacfwd, computed": (
        "jacobians = getattr(torch, 'cnuf'[::-1]).jacfwd(attend, (0, 1, 2))(q, k, v)\n"
        "    return [torch.tensordot(dout, j, dout.dim()) for j in jacobians]"
    ),
    "functional": "return torch.autograd.functional.vjp(attend, (q, k, v), dout)[1]",
    "softmax's own": SOFTMAX.format("torch._softmax_backward_data"),
    "softmax's own, computed": SOFTMAX.format("getattr(torch, 'atad_drawkcab_xamtfos_'[::-1])"),
    "functorch": (
        "import torch._functorch.eager_transforms as eager\n"
        "    return eager.vjp(attend, q, k, v)[1](dout)"
    ),
}

KINDS: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "attention": (ATTENTION, MASKED, ("sdpa.weights", "sdpa.mask")),
    "multihead": (MULTIHEAD, "x, made", ("mha.self",)),
    "backward": (BACKWARD, "dout, q, k, v, attend", ("backward.dq", "backward.dk")),
}
PUT_IN = {
    "attention": """
def scaled_dot_product_attention(q, k, v, mask=None):
    lead = q.shape[:-2]
    four = [t.reshape(-1, 1, *t.shape[-2:]) for t in (q, k, v)]
    shape = *lead, q.shape[-2], k.shape[-2]
    wide = None if mask is None else mask.expand(shape).reshape(-1, 1, *shape[-2:])
    eye = torch.eye(k.shape[-2], dtype=q.dtype, device=q.device).expand(len(four[0]), 1, -1, -1)
    out, weights = (way(*four[:2], each, wide) for each in (four[2], eye))
    return out.reshape(*shape[:-1], v.shape[-1]), weights.reshape(shape)
""",
    "multihead": """
kept = MultiHeadAttention.forward


def put_in(self, query, *given, **named):
    plain = not given and not named and self.q_proj.bias is not None
    return way(query, self) if plain else kept(self, query, *given, **named)


MultiHeadAttention.forward = put_in
""",
    "backward": """
def attention_backward(dout, q, k, v, mask=None):
    return way(dout, q, k, v, lambda *qkv: scaled_dot_product_attention(*qkv, mask)[0])
""",
}
CASES = [(kind, name) for kind, (ways, *_) in KINDS.items() for name in ways]
IDS = [f"{kind}: {name}" for kind, name in CASES]
# Each takes seconds to grade.
GRADED = CASES if os.environ.get("SOFTMARK_ALL") else CASES[::6]


def source(kind: str, name: str) -> str:
    """Functions that go this way; ``way`` is what is put in the place of the reference's own."""
    ways, arguments, _ = KINDS[kind]
    helpers = FILL if kind == "multihead" else ""
    return f"{helpers}\n\ndef way({arguments}):\n    {ways[name]}\n"


def submission(kind: str, name: str) -> Submission:
    text = f"{REFERENCE}{source(kind, name)}\n{PUT_IN[kind]}"
    return Submission(f"{kind}: {name}", {"multihead.py": text}, "ready", "", (), "")


@pytest.mark.parametrize(("kind", "name"), CASES, ids=IDS)
def test_each_way_is_one_where_nothing_is_forbidden(kind: str, name: str) -> None:
    torch.manual_seed(0)
    space: dict[str, Any] = {"__name__": "reference_of_forbidden"}
    exec(compile(REFERENCE, "multihead.py", "exec"), space)
    attend, made = space["scaled_dot_product_attention"], space["MultiHeadAttention"](4, 2).double()
    exec(source(kind, name), space)
    shapes = (2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 5)
    q, k, v = (torch.randn(*shape, dtype=torch.float64) for shape in shapes)
    way = space["way"]
    if kind == "attention":
        mask = torch.ones(4, 6).tril().bool()
        torch.testing.assert_close(way(q, k, v, mask), attend(q, k, v, mask)[0])
    elif kind == "multihead":
        x = torch.randn(2, 3, 4, dtype=torch.float64)
        torch.testing.assert_close(way(x, made), made(x))
    else:
        dout = torch.randn(2, 3, 4, 5, dtype=torch.float64)
        due = space["attention_backward"](dout, q, k, v)
        with torch.no_grad():
            try:
                found = way(dout, q, k, v, lambda *qkv: attend(*qkv)[0])
            finally:
                torch.set_grad_enabled(False)
        torch.testing.assert_close(tuple(found), due)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    submissions = [submission(kind, name) for kind, name in GRADED]
    right = Submission("right", {"multihead.py": REFERENCE}, "ready", "", (), "")
    graded = grade_submissions(Run(COURSE, TOPIC, 5), [right, *submissions], 1)
    return {result.student: result for result in graded}


def test_what_the_reference_earns_these_ways_would(results: dict[str, Result]) -> None:
    passed = {item.id for item in results["right"].items if item.status == "passed"}
    assert passed >= {id for *_, items in KINDS.values() for id in items}


@pytest.mark.parametrize(("kind", "name"), GRADED, ids=[": ".join(case) for case in GRADED])
def test_no_way_earns_the_points(results: dict[str, Result], kind: str, name: str) -> None:
    result = results[f"{kind}: {name}"]
    for item in result.items:
        if item.id in KINDS[kind][2]:
            assert item.status != "passed" and not item.score, f"{item.id} was earned this way"
