"""The static scan: forbidden names by whatever road, flags for people, and no false alarms."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from softmark.course import Policy, Topic, Twin, load_topic
from softmark.policy import Violation, scan, scan_topic, watch

POLICY = Policy(
    forbid={
        "torch.nn.RNN": "write the recurrence yourself",
        "numpy.linalg.solve": "solve it yourself",
        "scipy": "NumPy is enough",
        "eval": "not needed",
    }
)

FORBIDDEN = {
    "chain": ("import torch\nm = torch.nn.RNN(3, 4)", "torch.nn.RNN"),
    "module alias": ("import torch.nn as n\nm = n.RNN(3, 4)", "torch.nn.RNN"),
    "submodule import": ("import torch.nn.functional\nm = torch.nn.RNN", "torch.nn.RNN"),
    "from import": ("x = 1\nfrom torch.nn import RNN", "torch.nn.RNN"),
    "from import as": ("x = 1\nfrom torch.nn import RNN as Layer", "torch.nn.RNN"),
    "package from import": ("from torch import nn as q\nclass Mine(q.RNN): pass", "torch.nn.RNN"),
    "star import": ("from torch.nn import *\nm = RNN(3, 4)", "torch.nn.RNN"),
    "something inside": ("import torch\nm = torch.nn.RNN.forward", "torch.nn.RNN"),
    "np alias": ("import numpy as np\nx = np.linalg.solve(1, 2)", "numpy.linalg.solve"),
    "assigned module": ("import numpy as np; la = np.linalg\nla.solve(1, 2)", "numpy.linalg.solve"),
    "reassigned": ("import numpy as np; np = np.linalg\nnp.solve(1, 2)", "numpy.linalg.solve"),
    "unpacked": ("import numpy as np; a, b = np.linalg, 1\na.solve", "numpy.linalg.solve"),
    "walrus": ("import numpy as np\n(la := np.linalg).solve", "numpy.linalg.solve"),
    "either": ("import numpy as np\n(np.linalg if 1 else 0).solve", "numpy.linalg.solve"),
    "whole package": ("x = 1\nimport scipy.special", "scipy"),
    "from package": ("x = 1\nfrom scipy.special import expit", "scipy"),
    "import_module": ("import importlib\nm = importlib.import_module('scipy')", "scipy"),
    "import_module as": ("from importlib import import_module as f\nf(name='scipy.io')", "scipy"),
    "import_module relative": ("import importlib as i\ni.import_module('.io', 'scipy')", "scipy"),
    "import_module used": (
        "import importlib\nimportlib.import_module('torch.nn').RNN",
        "torch.nn.RNN",
    ),
    "__import__": ("x = 1\n__import__('scipy')", "scipy"),
    "__import__ used": ("x = 1\n__import__('torch.nn').nn.RNN", "torch.nn.RNN"),
    "builtins.__import__": ("import builtins as b\nb.__import__('scipy')", "scipy"),
    "getattr": ("import torch\ngetattr(torch.nn, 'RNN')(3, 4)", "torch.nn.RNN"),
    "getattr used": ("import numpy\ngetattr(numpy, 'linalg').solve", "numpy.linalg.solve"),
    "sys.modules": ("import sys\nsys.modules['numpy'].linalg.solve", "numpy.linalg.solve"),
    "a builtin": ("x = 1\neval('x')", "eval"),
    "in a method": ("import torch.nn as nn\nclass C:\n def f(s): nn.RNN", "torch.nn.RNN", 3),
    "imported in a function": ("def f():\n import torch.nn as k\n k.RNN", "torch.nn.RNN", 3),
    "global": ("def f():\n global k; import torch.nn as k\nk.RNN", "torch.nn.RNN", 3),
    "default value": ("import torch\ndef f(torch=torch.nn.RNN): pass", "torch.nn.RNN"),
    "lambda": ("import torch\nf = lambda torch=torch.nn.RNN: 1", "torch.nn.RNN"),
    "comprehension": ("import torch\n[torch for torch in torch.nn.RNN]", "torch.nn.RNN"),
    "global builtin": ("def f():\n global eval\n eval('x')", "eval", 3),
    "past a class": (
        "import numpy as np\nclass C:\n np = 1\n def f(s): np.linalg.solve",
        "numpy.linalg.solve",
        4,
    ),
    "joined name": ("import torch\ngetattr(torch.nn, 'R' + 'N' + 'N')", "torch.nn.RNN"),
    "formatted name": ("import torch\ngetattr(torch.nn, f'R{\"NN\"}')", "torch.nn.RNN"),
    "adjacent names": ("import torch\ngetattr(torch.nn, 'R' f'N' 'N')", "torch.nn.RNN"),
    "name of a list": ("import torch\ngetattr(torch.nn, ''.join(['RN', '', 'N']))", "torch.nn.RNN"),
    "joined module": ("import importlib as i\ni.import_module('sci' + 'py')", "scipy"),
    "dictionary": ("import torch\ntorch.nn.__dict__['R' + 'NN'](3, 4)", "torch.nn.RNN"),
    "dictionary get": ("import torch\ntorch.nn.__dict__.get('RNN')(3, 4)", "torch.nn.RNN"),
    "vars": ("import torch\nvars(torch.nn)['RNN'](3, 4)", "torch.nn.RNN"),
    "decorator": ("import torch\n@torch.nn.RNN\nclass C: pass", "torch.nn.RNN"),
}


@pytest.mark.parametrize("case", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_forbidden_name_is_found(case):
    source, name, line = (*case, 2)[:3]
    assert scan({"a.py": source}, POLICY) == [Violation(name, "a.py", line, POLICY.forbid[name])]


INNOCENT = {
    "a longer name": "import torch\ntorch.nn.RNNCell(3, 4)",
    "part of a name": "import scipyx\nfrom numpy.linalg import norm",
    "own class": "class RNN: pass\nRNN()",
    "own class beside a star": "from torch.nn import *\nclass RNN: pass\nRNN()",
    "own function": "def eval(x): return x\neval(1)",
    "own attribute": "class C:\n def f(self):\n  self.scipy = self.eval = 1\n  return self.scipy",
    "a parameter": "import numpy as np\ndef f(np): return np.linalg.solve",
    "a loop variable": "import numpy as np\ndef f(y):\n for np in y: np.linalg.solve",
    "own file": "from .scipy import x\nfrom . import scipy\nscipy.x",
    "text": "'''Do not use scipy or torch.nn.RNN.'''\nx = 'scipy'  # scipy",
    "getattr of own": "getattr(object(), 'scipy')",
    "dictionary of own": "class C: pass\nC.__dict__['scipy'], vars(C)['scipy'], {}['scipy']",
    "parts of a name": "import torch\ngetattr(torch.nn, ' '.join(['R', 'NN'])), 'sci' + 'py'",
    "unknown name": "import numpy as np\nname = input()\ngetattr(np.linalg, name)",
}


@pytest.mark.parametrize("source", INNOCENT.values(), ids=INNOCENT.keys())
def test_an_innocent_name_is_not_found(source):
    assert scan({"a.py": source}, POLICY) == []


def test_every_file_and_line_is_listed_in_order():
    files = {
        "b.py": "import scipy",
        "a.py": "from torch import nn\n\nnn.RNN(\n    nn.RNN)\neval",
    }
    found = [(v.file, v.line, v.name) for v in scan(files, POLICY)]
    assert found == [
        ("a.py", 3, "torch.nn.RNN"),
        ("a.py", 4, "torch.nn.RNN"),
        ("a.py", 5, "eval"),
        ("b.py", 1, "scipy"),
    ]


FLAGS = {
    "import os": ["imports os"],
    "import os.path as p": ["imports os"],
    "from os import path": ["imports os"],
    "import sys": ["imports sys"],
    "import subprocess, ctypes, socket, gc, inspect": [
        "imports subprocess",
        "imports ctypes",
        "imports socket",
        "imports gc",
        "imports inspect",
    ],
    "__import__('os')": ["imports os", "uses __import__()"],
    "from pathlib import *": ["imports pathlib"],
    "open('x')": ["uses open()"],
    "f = open": ["uses open()"],
    "eval('1'), exec('1')": ["uses eval()", "uses exec()"],
    "import typing; typing.sys.modules": ["uses typing.sys"],
    "import numpy as np; np.load('x')": ["uses numpy.load"],
    "from numpy import save": ["uses numpy.save"],
    "import torch; torch.hub.load('x')": ["uses torch.hub"],
    "print.__self__.__globals__": ["reaches for __globals__"],
    "getattr(print, '__globals__')": ["reaches for __globals__"],
    "__builtins__.open": ["reaches for __builtins__", "uses open()"],
    "try:\n x\nexcept E as e: e.__traceback__.tb_frame.f_back": [
        "reaches for __traceback__",
        "reaches for tb_frame",
        "reaches for f_back",
    ],
}


COMPUTED = {
    "import torch; getattr(torch, name)": ["looks something up in torch by a computed name"],
    "import torch; getattr(torch, '_' + name, None)": [
        "looks something up in torch by a computed name"
    ],
    "from torch import nn; f = getattr\nf(nn, *names)": [
        "looks something up in torch.nn by a computed name"
    ],
    "import torch as t; t.nn.__dict__[name[::-1]]": [
        "looks something up in torch.nn by a computed name"
    ],
    "import torch; torch.__dict__.get(name)": ["looks something up in torch by a computed name"],
    "import torch; vars(torch)[name]": [
        "uses vars()",
        "looks something up in torch by a computed name",
    ],
    "import importlib; importlib.import_module(name)": [
        "imports importlib",
        "imports something by a computed name",
    ],
    "__import__(name)": ["uses __import__()", "imports something by a computed name"],
    "import torch, numpy\ngetattr(torch, a), getattr(numpy, b)": [
        "looks something up in torch by a computed name"
    ],
    "import torch\ngetattr(torch, a)\ngetattr(torch, b)": [
        "looks something up in torch by a computed name"
    ],
    "import torch; getattr(torch, 'tanh'), getattr(torch, 'si' + 'n'), torch.__dict__['cos']": [],
    "import torch\nx = torch.zeros(2)\ngetattr(x, name), x[name], torch.nn.init[name]": [],
    "class C: pass\ngetattr(C(), name), C.__dict__[name], getattr(str, name), {}[name]": [],
}


@pytest.mark.parametrize("source", COMPUTED)
def test_a_name_that_is_computed_is_flagged_where_a_module_is_looked_into(source):
    flags = watch({"lstm.py": source})
    assert sorted(flag.split(" ", 1)[1] for flag in flags) == sorted(COMPUTED[source])


TOPIC = Topic(
    id="02_lstm",
    folder=Path("02_lstm"),
    title="LSTM",
    hours=1,
    files=("lstm.py", "tools.py", "lstm_torch.py"),
    rubric={},
    calls={},
    policy=Policy(forbid={"torch": "NumPy is enough"}),
    twin=Twin("lstm_torch.py", {}, {"torch.nn.LSTM": "write it yourself"}),
)
ALONE = "this file is run by itself; copy what it needs into it"


@pytest.mark.parametrize(
    "line, name",
    {
        "from lstm import sigmoid": "lstm",
        "import lstm as mine": "lstm",
        "from tools import *": "tools",
        "def f(): import tools": "tools",
        "__import__('importlib').import_module('lstm')": "lstm",
    }.items(),
)
def test_a_twin_may_not_import_the_other_files(line, name):
    files = {"lstm.py": "import tools", "tools.py": "x = 1", "lstm_torch.py": f"x = 1\n{line}"}
    assert scan_topic(files, TOPIC) == [Violation(name, "lstm_torch.py", 2, ALONE)]
    # only a twin is run by itself
    assert scan_topic(files, dataclasses.replace(TOPIC, twin=None)) == []


def test_a_twin_has_rules_of_its_own():
    files = {
        "lstm.py": "import lstm_torch",
        "lstm_torch.py": "import torch\ndef lstm(tools): return tools.lstm\nlstm(1)\ntorch.nn.LSTM",
    }
    assert scan_topic(files, TOPIC) == [
        Violation("torch.nn.LSTM", "lstm_torch.py", 4, "write it yourself")
    ]
    swapped = {"lstm.py": files["lstm_torch.py"], "lstm_torch.py": files["lstm.py"]}
    assert [(v.name, v.file) for v in scan_topic(swapped, TOPIC)] == [("torch", "lstm.py")] * 2


ROADS = {
    "import torch\nC = getattr(torch, '_' + 'C')": "torch._C",
    "import torch\nC = torch.__dict__['_' + 'C']": "torch._C",
    "import torch\nfrom torch._decomp import decomposition_table": "torch._decomp",
    "import torch\nmake = torch.ao.nn.quantizable.LSTMCell": "torch.ao",
    "import torch\nimport torch._refs as refs": "torch._refs",
    "import torch\nimport torch._inductor": "torch._inductor",
    "import torch\nimport torch._dynamo": "torch._dynamo",
    "import torch\n@torch.compile\ndef f(x): return x": "torch.compile",
    "import torch\nlayer = torch.mkldnn_rnn_layer": "torch.mkldnn_rnn_layer",
    "import torch\nfrom lstm import sigmoid": "lstm",
}
LSTM = Path(__file__).parents[1] / "assignments" / "02_lstm"


@pytest.mark.parametrize("source, name", ROADS.items())
def test_the_lstm_in_pytorch_may_not_be_pytorch_s_own(source, name):
    topic = load_topic(LSTM)
    found = [(v.name, v.line) for v in scan_topic({"lstm_torch.py": source}, topic)]
    assert found == [(name, 2)]


def test_the_lstm_in_pytorch_may_use_the_rest_of_it():
    source = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import vmap
from torch.nn.utils.rnn import pack_padded_sequence
class Double(torch.autograd.Function): pass
class Net(nn.Module):
    def forward(self, x, lstm):
        return vmap(F.linear)(torch.einsum("ij->ji", x), nn.GRU(2, 2)) + lstm.tools
"""
    assert scan_topic({"lstm_torch.py": source}, load_topic(LSTM)) == []
    assert watch({"lstm_torch.py": source}) == []


@pytest.mark.parametrize("source", FLAGS)
def test_what_a_person_should_see_is_flagged(source):
    flags = watch({"lstm.py": source})
    assert sorted(flag.split(" ", 1)[1] for flag in flags) == sorted(FLAGS[source])


def test_a_flag_has_file_and_line_and_comes_once_a_file():
    files = {"lstm.py": "import numpy\n\nimport os\nopen('a')\nopen('b')", "b.py": "import os"}
    assert watch(files) == ["lstm.py:3 imports os", "lstm.py:4 uses open()", "b.py:1 imports os"]


def test_ordinary_code_has_no_flags():
    source = """
from __future__ import annotations
import math, typing
import numpy as np
from dataclasses import dataclass
from typing import NamedTuple

class LSTMCell:
    def __init__(self, input_dim, hidden_dim, rng, forget_bias=1.0):
        self.params = {"W": rng.normal(size=(input_dim + hidden_dim, 4 * hidden_dim))}
        self.open = self.os = self.sys = self.__class__.__name__

    def compile(self, x):
        return np.exp(x) if len(x) else print(math.pi, self.open, self.os, self.compile)
"""
    assert watch({"lstm.py": source}) == []


@pytest.mark.parametrize(
    "source", ["def f(:\n import os", "import scipy\nx =", "import os\0", "(" * 5000]
)
def test_a_file_that_does_not_parse_has_nothing_to_say(source):
    assert scan({"a.py": source, "b.py": "import scipy"}, POLICY) == [
        Violation("scipy", "b.py", 1, POLICY.forbid["scipy"])
    ]
    assert not [flag for flag in watch({"a.py": source}) if "imports" in flag]


def test_a_file_too_deep_to_scan_is_flagged():
    files = {"a.py": "import scipy\nx = " + "+".join("1" * 20_000)}
    assert [v.line for v in scan(files, POLICY)] == [1]
    assert "could not be looked through" in scan(files, POLICY)[0].reason
    assert scan(files, Policy()) == []
    assert watch(files) == ["a.py is too large or nested too deeply to be scanned"]


@pytest.mark.filterwarnings("error")
def test_a_source_with_a_doubtful_escape_is_scanned_in_silence():
    assert scan({"a.py": r"import scipy; x = '\d'"}, POLICY)


def test_names_made_from_each_other_end():
    growing = "".join(f"x{i} = x{i - 1}.{a}\n" for i in range(1, 300) for a in "abcd")
    source = f"import numpy as x0\na = b\nb = a\nc = c.d\n{growing}x0.linalg.solve"
    assert [v.line for v in scan({"a.py": source}, POLICY)] == [source.count("\n") + 1]


def test_a_file_too_large_to_scan_is_a_violation():
    padded = {"a.py": "import math\n" + "x = 1\n" * 50_000}
    assert [v.file for v in scan(padded, POLICY)] == ["a.py"]


def test_long_chains_are_not_slow():
    started = time.process_time()
    for link in ("()", ".b", "[0]"):
        source = f"import numpy as np\n{('np' + link * 200 + chr(10)) * 100}"
        scan({"a.py": source}, POLICY)
    assert time.process_time() - started < 20  # seconds; it was minutes


def test_flags_are_few_and_short():
    source = "".join(f"import os.{'x' * 500}{i}\n" for i in range(300))
    source += "import gc, socket, ctypes, inspect, pickle, signal, mmap, pty, pdb\nx.__globals__\n"
    found = watch({f"{n}.py": source for n in range(20)})
    assert len(found) <= 31 and found[-1].endswith("more flags")
    assert max(map(len, found)) < 200


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nnp.ma.core.np.mean(1)",
        "from numpy.ma.core import np as inner\ninner.mean(1)",
        "import numpy as np\nnp.polynomial.polynomial.np.mean(1)",
    ],
)
def test_a_library_that_its_own_parts_import_is_itself(source):
    assert [
        v.name for v in scan({"a.py": source}, Policy(forbid={"numpy.mean": "find it yourself"}))
    ]


HANDED_ON = {
    "for module in [np]: module.mean(1)": ["uses numpy as a value"],
    "def f(x, module=np): return module.mean(x)": ["uses numpy as a value"],
    "g = getattr; g = lambda m, n: m.mean; g(np, 'exp')(1)": ["uses numpy as a value"],
    "np._core.fromnumeric.mean(1)": ["uses numpy._core"],
    "xp = np if True else None; xp.exp(1)": [],
    "assert np is not None": [],
    "getattr(np, 'exp')(1)": [],
}


@pytest.mark.parametrize("line", HANDED_ON)
def test_a_module_that_is_handed_on_is_flagged(line):
    flags = [flag.partition(" ")[2] for flag in watch({"a.py": f"import numpy as np\n{line}"})]
    assert flags == HANDED_ON[line]
