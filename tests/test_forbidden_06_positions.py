"""No way to a finished rotation of the library earns the points for writing one.

PyTorch has one, among its operators for ONNX, in both layouts. One submission for each way in: the
reference, with apply_rope and apply_rope_half asking the library instead. Each way works where nothing
is forbidden, which is tried too; graded, it is rejected or loses its own items.
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
    pytest.mark.filterwarnings("ignore"),
]
torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
pytest.importorskip("torch.onnx.ops", reason="this PyTorch has no rotation to be forbidden")

ID = "06_positions"
COURSE = load_course(Path(__file__).resolve().parents[1])
if ID not in [topic.id for topic in COURSE.topics]:
    pytest.skip(f"{ID} is not in course.yaml", allow_module_level=True)
TOPIC = COURSE.topic(ID)
REFERENCE = reference_files(COURSE, TOPIC)["positions.py"]
ITEMS = ("rope.values", "half.values")

# Each gives ``found``: the library's function, or one that takes its arguments.
CALL = "def found(x, cos, sin, interleaved):\n    return "
OPERATOR = "(x, cos, sin, None, interleaved=interleaved)"
WAYS = {
    "attribute": "import torch.onnx.ops\nfound = torch.onnx.ops.rotary_embedding",
    "from import": "from torch.onnx.ops import rotary_embedding as found",
    "module by another name": "from torch import onnx as o\nimport torch.onnx.ops\n"
    "found = o.ops.rotary_embedding",
    "star import": "from torch.onnx.ops import *\nfound = rotary_embedding",
    "getattr": "import torch.onnx.ops\nfound = getattr(torch.onnx.ops, 'rotary_embedding')",
    "getattr of torch": "import importlib\nimportlib.import_module('spo.xnno.hcrot'[::-1])\n"
    "found = getattr(getattr(torch, 'xnno'[::-1]).ops, 'rotary_embedding')",
    "import_module": "import importlib\n"
    "found = importlib.import_module('spo.xnno.hcrot'[::-1]).rotary_embedding",
    "__import__": "name = 'spo.xnno.hcrot'[::-1]\n"
    "found = __import__(name, fromlist=['x']).rotary_embedding",
    "sys.modules": "import importlib, sys\nname = '.'.join(['torch', 'onnx', 'ops'])\n"
    "importlib.import_module(name)\nfound = sys.modules[name].rotary_embedding",
    "dictionary": "import importlib\n"
    "found = vars(importlib.import_module('spo.xnno.hcrot'[::-1]))['rotary_embedding']",
    "implementation": "import torch.onnx.ops._impl as inside\n"
    "found = lambda x, cos, sin, interleaved: inside.rotary_embedding_23(\n"
    "    x, cos, sin, None, interleaved=interleaved)",
    "implementation, computed": "import importlib\n"
    "inside = importlib.import_module('lpmi_.spo.xnno.hcrot'[::-1])\n"
    "found = lambda x, cos, sin, interleaved: inside.rotary_embedding_23(\n"
    "    x, cos, sin, None, interleaved=interleaved)",
    "table of the library": "import importlib\n"
    "inside = importlib.import_module('lpmi_.spo.xnno.hcrot'[::-1])\n"
    "table = {str(key): value for key, value in inside.ONNX_ATEN_DECOMP_TABLE.items()}\n"
    "known = table['onnx.RotaryEmbedding.opset23']\n" + CALL + "known" + OPERATOR,
    "key of the table": "import importlib\n"
    "inside = importlib.import_module('lpmi_.spo.xnno.hcrot'[::-1])\n"
    "known = next(key for key in inside.ONNX_ATEN_DECOMP_TABLE if 'Rotary' in str(key))\n"
    + CALL
    + "known"
    + OPERATOR,
    "copy of the function": "import types\nimport importlib\n"
    "known = importlib.import_module('spo.xnno.hcrot'[::-1]).rotary_embedding\n"
    "found = types.FunctionType(known.__code__, known.__globals__, None, known.__defaults__)\n"
    "found.__kwdefaults__ = known.__kwdefaults__",
    "torch.ops": "import importlib\nimportlib.import_module('spo.xnno.hcrot'[::-1])\n"
    + CALL
    + "torch.ops.onnx.RotaryEmbedding.opset23"
    + OPERATOR,
    "torch.ops, computed": "import importlib\nimportlib.import_module('spo.xnno.hcrot'[::-1])\n"
    + CALL
    + "getattr(torch, 'spo'[::-1]).onnx.RotaryEmbedding.opset23"
    + OPERATOR,
    "torch._ops": "import importlib\nimportlib.import_module('spo.xnno.hcrot'[::-1])\n"
    + CALL
    + "torch._ops.ops.onnx.RotaryEmbedding.opset23"
    + OPERATOR,
    "torch._C": "import importlib\nimportlib.import_module('spo.xnno.hcrot'[::-1])\n"
    "inside = getattr(torch, 'C_'[::-1])\n"
    "known, _ = inside._jit_get_operation('onnx::RotaryEmbedding')\n" + CALL + "known" + OPERATOR,
}
PUT_IN = """

def turned(x, cos, sin, interleaved):
    rows = x.reshape(-1, 1, *x.shape[-2:])
    cos, sin = (each.expand(len(rows), -1, -1) for each in (cos, sin))
    return found(rows, cos, sin, interleaved=interleaved).view_as(x)


def apply_rope(x, cos, sin):
    return turned(x, cos, sin, True)


def apply_rope_half(x, cos, sin):
    return turned(x, cos, sin, False)
"""


def source(name: str) -> str:
    return f"\n\n{WAYS[name]}\n{PUT_IN}"


@pytest.mark.parametrize("name", WAYS)
def test_each_way_is_one_where_nothing_is_forbidden(name: str) -> None:
    right: dict[str, Any] = {"__name__": "reference_of_forbidden"}
    exec(compile(REFERENCE, "positions.py", "exec"), right)
    space: dict[str, Any] = {"torch": torch}
    exec(source(name), space)
    x, angles = torch.randn(2, 3, 4, 6), torch.randn(4, 3)
    for function in ("apply_rope", "apply_rope_half"):
        found = space[function](x, angles.cos(), angles.sin())
        torch.testing.assert_close(found, right[function](x, angles.cos(), angles.sin()))


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    texts = {"right": REFERENCE, **{name: REFERENCE + source(name) for name in WAYS}}
    submissions = [
        Submission(name, {"positions.py": text}, "ready", "", (), "")
        for name, text in texts.items()
    ]
    graded = grade_submissions(Run(COURSE, TOPIC, 5), submissions, 1)
    return {result.student: result for result in graded}


def test_what_the_reference_earns_these_ways_would(results: dict[str, Result]) -> None:
    passed = {item.id for item in results["right"].items if item.status == "passed"}
    assert passed >= set(ITEMS)


@pytest.mark.parametrize("name", WAYS)
def test_no_way_earns_the_points(results: dict[str, Result], name: str) -> None:
    for item in results[name].items:
        if item.id in ITEMS:
            assert item.status != "passed" and not item.score, f"{item.id} was earned this way"
