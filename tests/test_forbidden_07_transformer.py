"""No way to a finished norm or block of the library earns the points for writing one.

One submission for each way in: the reference, with one method that asks the library instead. Each way
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
    pytest.mark.filterwarnings("ignore"),  # of torch.jit and lazy modules
]
torch = pytest.importorskip("torch", reason="PyTorch is not installed here")

ID = "07_transformer"
ROOT = Path(__file__).resolve().parents[1]
COURSE = load_course(ROOT)
if ID not in [topic.id for topic in COURSE.topics]:
    pytest.skip(f"{ID} is not in course.yaml", allow_module_level=True)
TOPIC = COURSE.topic(ID)
REFERENCE = reference_files(COURSE, TOPIC)["transformer.py"]

# ---- norms: what gives the norm of x (..., E) with the weight w, the bias b (E,) and eps -----------

FILLED = "\n    layer.weight, layer.bias, layer.eps = w, b, eps\n    return layer(x)"
ROWS = "x.reshape(1, -1, x.shape[-1])"  # a channel for each vector
BACK = ".view_as(x) * w + b"
WALK = """
    def below(kind):
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    kinds = [kind for kind in below(nn.Module) if kind.__name__[::-1] == "mroNreyaL"]"""

LAYER_NORM = {
    "function": "return nn.functional.layer_norm(x, w.shape, w, b, eps)",
    "class": "layer = nn.LayerNorm(w.shape)" + FILLED,
    "torch's own": "return torch.layer_norm(x, w.shape, w, b, eps)",
    "native": "return torch.native_layer_norm(x, w.shape, w, b, eps)[0]",
    "getattr": "return getattr(nn.functional, 'layer_norm')(x, w.shape, w, b, eps)",
    "getattr backwards": "return getattr(nn.functional, 'mron_reyal'[::-1])(x, w.shape, w, b, eps)",
    "getattr of torch": "return getattr(torch, 'mron_reyal'[::-1])(x, w.shape, w, b, eps)",
    "getattr of a class": "layer = getattr(nn, 'mroNreyaL'[::-1])(w.shape)" + FILLED,
    "dictionary": "return vars(nn.functional)['mron_reyal'[::-1]](x, w.shape, w, b, eps)",
    "defining module": "layer = nn.modules.normalization.LayerNorm(w.shape)" + FILLED,
    "another module's F": ("return nn.modules.normalization.F.layer_norm(x, w.shape, w, b, eps)"),
    "the given file's nn": (
        "import attention_layers\n"
        "    return attention_layers.nn.functional.layer_norm(x, w.shape, w, b, eps)"
    ),
    "sys.modules": (
        "import sys\n    name = '.'.join(['torch', 'nn', 'functional'])\n"
        "    return sys.modules[name].layer_norm(x, w.shape, w, b, eps)"
    ),
    "torch.ops": "return torch.ops.aten.layer_norm(x, list(w.shape), w, b, eps)",
    "torch.ops, overload": (
        "return torch.ops.aten.native_layer_norm.default(x, list(w.shape), w, b, eps)[0]"
    ),
    "torch.ops, computed": (
        "aten = getattr(getattr(torch, 'spo'[::-1]), 'aten')\n"
        "    return aten.native_layer_norm(x, list(w.shape), w, b, eps)[0]"
    ),
    "torch._ops": "return torch._ops.ops.aten.layer_norm(x, list(w.shape), w, b, eps)",
    "torch._C": "return torch._C._VariableFunctions.layer_norm(x, w.shape, w, b, eps)",
    "torch._C, computed": (
        "inside = getattr(torch, 'C_'[::-1])._VariableFunctions\n"
        "    return inside.native_layer_norm(x, w.shape, w, b, eps)[0]"
    ),
    "torch._C, by operation": (
        "call = torch._C._jit_get_operation('aten::layer_norm')[0]\n"
        "    return call(x, list(w.shape), w, b, eps)"
    ),
    "torch._C, computed, by operation": (
        "call = getattr(torch, 'C_'[::-1])._jit_get_operation('aten::layer_norm')[0]\n"
        "    return call(x, list(w.shape), w, b, eps)"
    ),
    "torch._VF": "return torch._VF.layer_norm(x, w.shape, w, b, eps)",
    "torch._VF, computed": (
        "return getattr(torch._VF, 'mron_reyal_evitan'[::-1])(x, w.shape, w, b, eps)[0]"
    ),
    "torch._refs": (
        "import torch._refs\n    return torch._refs.native_layer_norm(x, w.shape, w, b, eps)[0]"
    ),
    "torch._decomp": (
        "import torch._decomp\n"
        "    table = {str(key): value for key, value in torch._decomp.decomposition_table.items()}\n"
        "    return table['aten.native_layer_norm.default'](x, w.shape, w, b, eps)[0]"
    ),
    "torch.jit": (
        "unit = torch.jit.CompilationUnit('def f(x, w, b, eps: float):\\n'\n"
        "        '    return torch.layer_norm(x, [x.size(-1)], w, b, eps)\\n')\n"
        "    return unit.f(x, w, b, eps)"
    ),
    "vmap": (
        "rows = x.reshape(-1, x.shape[-1])\n"
        "    call = lambda row: torch.layer_norm(row, w.shape, w, b, eps)\n"
        "    return torch.func.vmap(call)(rows).view_as(x)"
    ),
    "subclass": ("class Mine(nn.LayerNorm):\n        pass\n\n    layer = Mine(w.shape)" + FILLED),
    "walk over subclasses": WALK + "\n    layer = kinds[0](w.shape)" + FILLED,
    "method of the class": (
        "self = nn.Module()\n    self.normalized_shape, self.eps = w.shape, eps\n"
        "    self.weight, self.bias = w, b\n    return nn.LayerNorm.forward(self, x)"
    ),
    "copy of the class": (
        "Mine = type('Mine', (nn.Module,), dict(vars(nn.LayerNorm)))\n"
        "    self = nn.Module()\n    self.normalized_shape, self.eps = w.shape, eps\n"
        "    self.weight, self.bias = w, b\n    return Mine.forward(self, x)"
    ),
    "copy of the function": (
        "import types\n    known = nn.functional.layer_norm\n"
        "    call = types.FunctionType(known.__code__, known.__globals__)\n"
        "    return call(x, w.shape, w, b, eps)"
    ),
    "part of a library layer": (
        "layer = nn.TransformerEncoderLayer(x.shape[-1], 1, 1).norm1" + FILLED
    ),
    "copy of a library layer's part": (
        "import copy\n"
        "    layer = copy.deepcopy(nn.TransformerDecoderLayer(x.shape[-1], 1, 1).norm3)" + FILLED
    ),
    "group norm": (
        "rows = x.reshape(-1, x.shape[-1])\n"
        "    return nn.functional.group_norm(rows, 1, w, b, eps).view_as(x)"
    ),
    "group norm, the class": (
        "rows = x.reshape(-1, x.shape[-1])\n"
        "    return nn.GroupNorm(1, x.shape[-1], eps, affine=False)(rows)" + BACK
    ),
    "group norm, native": (
        "rows = x.reshape(-1, x.shape[-1])\n"
        "    found = torch.native_group_norm(rows, w, b, len(rows), x.shape[-1], 1, 1, eps)\n"
        "    return found[0].view_as(x)"
    ),
    "group norm, computed": (
        "rows = x.reshape(-1, x.shape[-1])\n"
        "    aten = getattr(torch, 'spo'[::-1]).aten\n"
        "    found = aten.native_group_norm(rows, w, b, len(rows), x.shape[-1], 1, 1, eps)\n"
        "    return found[0].view_as(x)"
    ),
    "instance norm": f"return nn.functional.instance_norm({ROWS}, eps=eps)" + BACK,
    "instance norm, the class": f"return nn.InstanceNorm1d(1, eps=eps)({ROWS})" + BACK,
    "instance norm, lazy": f"return nn.LazyInstanceNorm1d(eps=eps, affine=False)({ROWS})" + BACK,
    "batch norm": (
        f"return nn.functional.batch_norm({ROWS}, None, None, training=True, eps=eps)" + BACK
    ),
    "batch norm, lazy": (
        "layer = nn.LazyBatchNorm1d(eps=eps, affine=False, track_running_stats=False)\n"
        f"    return layer({ROWS})" + BACK
    ),
    "batch norm, native": (
        f"return torch.native_batch_norm({ROWS}, None, None, None, None, True, 0.0, eps)[0]" + BACK
    ),
    "batch norm, private": (
        f"return torch._batch_norm_impl_index({ROWS}, None, None, None, None, True, 0.0, eps, False)[0]"
        + BACK
    ),
    "batch norm, private, legit": (
        f"return torch._native_batch_norm_legit({ROWS}, None, None, True, 0.0, eps)[0]" + BACK
    ),
}

RMS_NORM = {
    "function": "return nn.functional.rms_norm(x, w.shape, w, eps)",
    "class": "layer = nn.RMSNorm(w.shape)\n    layer.weight, layer.eps = w, eps\n    return layer(x)",
    "torch's own": "return torch.rms_norm(x, w.shape, w, eps)",
    "getattr": "return getattr(torch, 'mron_smr'[::-1])(x, w.shape, w, eps)",
    "fused": "return torch._fused_rms_norm(x, w.shape, w, eps)[0]",
    "torch.ops": "return torch.ops.aten.rms_norm(x, list(w.shape), w, eps)",
    "fused, computed": (
        "aten = getattr(torch, 'spo'[::-1]).aten\n"
        "    return aten._fused_rms_norm(x, list(w.shape), w, eps)[0]"
    ),
    "torch._VF": "return torch._VF.rms_norm(x, w.shape, w, eps)",
    "subclass": (
        "class Mine(nn.RMSNorm):\n        pass\n\n"
        "    layer = Mine(w.shape)\n    layer.weight, layer.eps = w, eps\n    return layer(x)"
    ),
}

# ---- blocks: what gives a filled layer of the library, or its numbers ------------------------------

FILL = '''

def filled(layer, block):
    """The library's layer with the parameters of a block."""
    def attention(theirs, mine):
        parts = mine.q_proj, mine.k_proj, mine.v_proj
        theirs.in_proj_weight = nn.Parameter(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias = nn.Parameter(torch.cat([part.bias for part in parts]))
        theirs.out_proj.weight, theirs.out_proj.bias = mine.o_proj.weight, mine.o_proj.bias

    attention(layer.self_attn, block.self_attn)
    names = {"linear1": block.ffn.up, "linear2": block.ffn.down}
    names |= {"norm1": block.norm1, "norm2": block.norm2}
    if hasattr(block, "cross_attn"):
        attention(layer.multihead_attn, block.cross_attn)
        names["norm3"] = block.norm3
    for name, mine in names.items():
        theirs = getattr(layer, name)
        theirs.weight, theirs.bias = mine.weight, mine.bias
    return layer


def sizes(block):
    first = block.norm == "pre"
    E, d_ff = block.ffn.down.weight.shape
    return (E, block.self_attn.num_heads, d_ff, 0.0), {"norm_first": first, "batch_first": True}
'''
MADE = "\n    return filled(kind(*given, **named), block)(x)"
GIVEN = "given, named = sizes(block)\n    "

ENCODER = {
    "class": GIVEN + "kind = nn.TransformerEncoderLayer" + MADE,
    "getattr": GIVEN + "kind = getattr(nn, 'reyaLredocnEremrofsnarT'[::-1])" + MADE,
    "defining module": GIVEN + "kind = nn.modules.transformer.TransformerEncoderLayer" + MADE,
    "subclass": GIVEN + "class kind(nn.TransformerEncoderLayer):\n        pass\n" + MADE,
    "walk over subclasses": (
        GIVEN
        + WALK.strip().replace("mroNreyaL", "reyaLredocnEremrofsnarT")
        + "\n    kind = kinds[0]"
        + MADE
    ),
    "copy": (
        GIVEN + "import copy\n    kind = nn.TransformerEncoderLayer\n"
        "    return filled(copy.deepcopy(kind(*given, **named)), block)(x)"
    ),
    "copy of the class": (
        GIVEN + "known = nn.TransformerEncoderLayer\n"
        "    layer = known(*given, **named)\n"
        "    Mine = type('Mine', (nn.Module,), dict(vars(known)))\n"
        "    return Mine.forward(filled(layer, block), x)"
    ),
    "stack": (
        GIVEN + "layer = filled(nn.TransformerEncoderLayer(*given, **named), block)\n"
        "    stack = nn.TransformerEncoder(layer, 1)\n"
        "    stack.layers[0] = layer\n    return stack(x)"
    ),
    "whole model": (
        GIVEN + "whole = nn.Transformer(*given[:2], 1, 1, given[2], given[3], **named)\n"
        "    return filled(whole.encoder.layers[0], block)(x)"
    ),
    "private forward": (
        "qkv = [block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj]\n"
        "    E, o, norms = x.shape[-1], block.self_attn.o_proj, (block.norm1, block.norm2)\n"
        "    with torch.no_grad():\n"
        "        return torch._transformer_encoder_layer_fwd(\n"
        "            x, E, block.self_attn.num_heads, torch.cat([p.weight for p in qkv]),\n"
        "            torch.cat([p.bias for p in qkv]), o.weight, o.bias, False, block.norm == 'pre',\n"
        "            norms[0].eps, norms[0].weight, norms[0].bias, norms[1].weight, norms[1].bias,\n"
        "            block.ffn.up.weight, block.ffn.up.bias, block.ffn.down.weight,\n"
        "            block.ffn.down.bias)"
    ),
}

DECODER = {
    "class": GIVEN + "kind = nn.TransformerDecoderLayer\n"
    "    return filled(kind(*given, **named), block)(x, memory)",
    "getattr": GIVEN + "kind = getattr(nn, 'reyaLredoceDremrofsnarT'[::-1])\n"
    "    return filled(kind(*given, **named), block)(x, memory)",
    "subclass": GIVEN + "class kind(nn.TransformerDecoderLayer):\n        pass\n\n"
    "    return filled(kind(*given, **named), block)(x, memory)",
}

KINDS: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "LayerNorm": (LAYER_NORM, "x, w, b, eps", ("norm.layer",)),
    "RMSNorm": (RMS_NORM, "x, w, eps", ("norm.rms",)),
    "EncoderBlock": (ENCODER, "x, block", ("block.pre", "block.post")),
    "DecoderBlock": (DECODER, "x, memory, block", ("decoder.pre", "decoder.post")),
}
PUT_IN = {
    "LayerNorm": "return way(x, self.weight, self.bias, self.eps)",
    "RMSNorm": "return way(x, self.weight, self.eps)",
    "EncoderBlock": "return way(x, self) if not given and not named else kept(self, x, *given, **named)",
    "DecoderBlock": (
        "return way(x, *given, self) if len(given) == 1 and not named\\\n"
        "        else kept(self, x, *given, **named)"
    ),
}
CASES = [(kind, name) for kind, (ways, *_) in KINDS.items() for name in ways]
IDS = [f"{kind}: {name}" for kind, name in CASES]


def source(kind: str, name: str) -> str:
    """Functions that go this way; ``way`` is what is put in the place of the reference's own."""
    ways, arguments, _ = KINDS[kind]
    helpers = FILL if "Block" in kind else ""
    return f"{helpers}\n\ndef way({arguments}):\n    {ways[name]}\n"


def submission(kind: str, name: str) -> Submission:
    text = REFERENCE + source(kind, name)
    text += f"\n\nkept = {kind}.forward\n\n\ndef put_in(self, x, *given, **named):\n"
    text += f"    {PUT_IN[kind]}\n\n\n{kind}.forward = put_in\n"
    return Submission(f"{kind}: {name}", {"transformer.py": text}, "ready", "", (), "")


@pytest.fixture(scope="module")
def module() -> Any:
    """The reference, to make blocks of."""
    sys.path.insert(0, str(ROOT / "assignments" / ID))
    try:
        space: dict[str, Any] = {"__name__": "reference_of_forbidden"}
        exec(compile(REFERENCE, "transformer.py", "exec"), space)
        yield space
    finally:
        sys.path.pop(0)
        sys.modules.pop("attention_layers", None)


@pytest.mark.parametrize(("kind", "name"), CASES, ids=IDS)
def test_each_way_is_one_where_nothing_is_forbidden(module: Any, kind: str, name: str) -> None:
    torch.manual_seed(0)
    space = {"torch": torch, "nn": torch.nn}
    exec(source(kind, name), space)
    x, way = torch.randn(2, 3, 4, dtype=torch.float64), space["way"]
    w, b = (torch.nn.Parameter(torch.randn(4, dtype=torch.float64)) for _ in range(2))
    if kind == "LayerNorm":
        found, due = way(x, w, b, 0.1), torch.nn.functional.layer_norm(x, (4,), w, b, 0.1)
    elif kind == "RMSNorm":
        found, due = way(x, w, 0.1), torch.nn.functional.rms_norm(x, (4,), w, 0.1)
    else:
        block = module[kind](4, 2, 3).double()
        memory = [torch.randn(2, 5, 4, dtype=torch.float64)] if kind == "DecoderBlock" else []
        found, due = way(x, *memory, block), block(x, *memory)
    torch.testing.assert_close(found, due)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    submissions = [submission(kind, name) for kind, name in CASES]
    right = Submission("right", {"transformer.py": REFERENCE}, "ready", "", (), "")
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
