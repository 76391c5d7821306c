"""The student's side, through real workers: what results, errors and claims look like from outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from softmark.isolation import sandbox, tiers, wire
from softmark.isolation.host import Caps, Worker, Zygote
from softmark.script import Output, Raised, Rng, Script, Trace, Unfit

CALLS = {
    "array": (Output("a", "array"),),
    "scalar": (Output("s", "scalar"),),
    "listing": (Output("l", "list"),),
    "mapping": (Output("m", "dict"),),
    "nothing": (),
    "make": (Output("made", "private"),),
    "pair": (Output("h", "array"), Output("c", "array")),
    "three": (Output("x", "array"), Output("y", "array"), Output("z", "array")),
    "Cell": (),
    "Cell.step": (Output("h", "array"),),
    "Cell.state": (Output("state", "array"),),
    "Cell.params": (Output("params", "dict"),),
}


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    if sandbox.landlock_version() == 0 and os.geteuid() != 0:
        pytest.skip("neither Landlock nor root here")
    level = tiers.reach()
    with Zygote(level.layers, ["numpy"], Caps(), level.seccomp) as zygote:
        yield zygote


@dataclass
class Submission:
    worker: Worker

    def run(self, script: Script) -> Trace:
        return self.worker.run(script, wire.pack_script(script), 20)

    def value(self, name: str, *args: Any, **kwargs: Any) -> Any:
        script = Script(CALLS)
        handle = script.call(name, *args, **kwargs)
        trace = self.run(script)
        assert (trace.raised, trace.cause) == (None, None)
        return trace[handle]

    def trace(self, name: str, *args: Any, **kwargs: Any) -> Trace:
        script = Script(CALLS)
        script.call(name, *args, **kwargs)
        return self.run(script)


@pytest.fixture
def load(zygote: Zygote) -> Iterator:
    workers: list[Worker] = []

    def load(source: str, **others: str) -> Submission:
        files = {"lstm.py": source, **{f"{name}.py": text for name, text in others.items()}}
        workers.append(zygote.spawn())
        assert workers[-1].load(files, "lstm", 20) is None
        return Submission(workers[-1])

    yield load
    for worker in workers:
        worker.close()


@pytest.fixture
def refuse(zygote: Zygote):
    """Load what cannot be loaded: what it raised."""

    def refuse(files: Mapping[str, str]) -> Raised:
        worker = zygote.spawn()
        try:
            raised = worker.load(files, "lstm", 20)
        finally:
            worker.close()
        assert isinstance(raised, Raised)
        return raised

    return refuse


# ---- results ---------------------------------------------------------------------------------------

GRID = np.arange(12.0).reshape(3, 4)
ARRAYS = {
    "plain": ("GRID", GRID),
    "a view": ("GRID[::2, 1:]", GRID[::2, 1:]),
    "reversed": ("GRID[::-1, ::-1]", GRID[::-1, ::-1]),
    "transposed": ("GRID.T", GRID.T),
    "Fortran": ("np.asfortranarray(GRID)", GRID),
    "read-only": ("np.broadcast_to(GRID[0], (3, 4))", np.broadcast_to(GRID[0], (3, 4))),
    "float32": ("GRID.astype(np.float32)", GRID.astype(np.float32)),
    "big-endian": ("GRID.astype('>f8')", GRID),
    "bool": ("GRID > 3", GRID > 3),
    "complex": ("GRID * 1j", GRID * 1j),
    "empty": ("np.zeros((0, 4))", np.zeros((0, 4))),
    "no axes": ("np.array(2.5)", np.array(2.5)),
    "a NumPy scalar": ("np.float64(2.5)", np.array(2.5)),
    "a float32 scalar": ("np.float32(2.5)", np.array(2.5, np.float32)),
    "matrix": ("np.matrix(GRID)", GRID),
    "subclass": ("GRID.view(type('Mine', (np.ndarray,), {}))", GRID),
    "masked": ("np.ma.array(GRID, mask=False)", GRID),
    "not finite": ("np.array([np.nan, np.inf, -0.0])", np.array([np.nan, np.inf, -0.0])),
}


@pytest.mark.parametrize("expression, expected", ARRAYS.values(), ids=ARRAYS)
def test_arrays_come_back_as_plain_arrays(load, expression: str, expected: np.ndarray) -> None:
    source = "import numpy as np\nGRID = np.arange(12.0).reshape(3, 4)\n"
    value = load(f"{source}def array(): return {expression}").value("array")
    assert type(value) is np.ndarray
    assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
    assert value.tobytes() == expected.tobytes()


UNFIT = {
    "None": "None",
    "a number": "2.5",
    "a list": "[1.0, 2.0]",
    "a tuple": "(1.0,)",
    "text": "'text'",
    "a function": "array",
    "a class": "Exception",
    "objects": "np.array([None, 1])",
    "structured": "np.zeros(2, [('a', 'f8')])",
    "text array": "np.array(['a'])",
    "dates": "np.array(['2020'], 'M8[Y]')",
    "long double": "np.zeros(2, np.longdouble)",
    "many axes": "np.zeros((1,) * 12)",
    "a generator": "(i for i in [1])",
    "huge": "np.zeros(5_000_000)",
    "huge by broadcasting": "np.broadcast_to(np.zeros(1), (10**9, 10**9))",
    "a dict": "{'a': 1}",
    "a complex number": "1j",
}


@pytest.mark.parametrize("expression", UNFIT.values(), ids=UNFIT)
def test_what_is_no_array_is_told_in_words(load, expression: str) -> None:
    value = load(f"import numpy as np\ndef array(): return {expression}").value("array")
    assert isinstance(value, Unfit)
    assert 3 < len(value.text) < 200


SCALARS = {
    "1.5": 1.5,
    "3": 3,
    "True": True,
    "None": None,
    "'text'": "text",
    "np.float64(0.1)": 0.1,
    "np.int32(-7)": -7,
    "np.bool_(True)": True,
    "type('F', (float,), {})(2)": 2.0,
    "float('inf')": float("inf"),
    "2**63": 2**63,
}


@pytest.mark.parametrize("expression, expected", SCALARS.items())
def test_scalars_come_back_as_plain_values(load, expression: str, expected: Any) -> None:
    value = load(f"import numpy as np\ndef scalar(): return {expression}").value("scalar")
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("expression", ["[1]", "{}", "2**64", "1j", "object()", "scalar"])
def test_what_is_no_scalar_is_told_in_words(load, expression: str) -> None:
    value = load(f"def scalar(): return {expression}").value("scalar")
    assert isinstance(value, Unfit)


def test_half_a_character_is_told_somehow(load) -> None:
    value = load("def scalar(): return '\\ud800'").value("scalar")
    assert isinstance(value, Unfit) or value in ("?", "\ufffd")


def test_lists_and_dicts(load) -> None:
    both = load(
        "import collections, numpy as np\n"
        "def listing(): return (1, [2.5, None], np.int64(3), object())\n"
        "def mapping(): return collections.OrderedDict({'W': np.eye(2).T, 1: 2, 'n': None})\n"
    )
    assert both.value("listing")[:3] == [1, [2.5, None], 3]
    assert isinstance(both.value("listing")[3], Unfit)
    value = both.value("mapping")
    assert type(value) is dict and list(value) == ["W", "1", "n"]
    assert np.array_equal(value["W"], np.eye(2)) and value["1"] == 2
    wrong = load("def listing(): return {1}\ndef mapping(): return [1]")
    assert isinstance(wrong.value("listing"), Unfit) and isinstance(wrong.value("mapping"), Unfit)


def test_a_list_that_holds_itself_ends(load) -> None:
    assert load("x = []\nx.append(x)\ndef listing(): return x").trace("listing").cause is None


def test_answers_too_large_together_are_an_error_not_a_forgery(load) -> None:
    trace = load(
        "import numpy as np\ndef three(): return [np.zeros(3_900_000) for _ in range(3)]"
    ).trace("three")
    assert trace.raised is not None and "MB" in trace.raised.message


def test_a_value_is_what_it_was_when_it_was_returned(load) -> None:
    """A later step that writes into the same array changes what is read later, not before."""
    source = """
import numpy as np
class Cell:
    def __init__(self): self.state = np.zeros(2)
    def step(self):
        self.state += 1
        return self.state
"""
    script = Script(CALLS)
    cell = script.new("Cell")
    reads = [script.read(cell.state), cell.step(), script.read(cell.state), cell.step()]
    trace = load(source).run(script)
    assert [trace[handle].tolist() for handle in reads] == [[0, 0], [1, 1], [1, 1], [2, 2]]


# ---- arguments -------------------------------------------------------------------------------------


def test_arguments_arrive_as_they_were_given(load) -> None:
    source = """
import numpy as np
def listing(x, n, text, nothing, several, named, rng, *, flag):
    return [
        type(x) is np.ndarray, x.flags.writeable, x.flags.c_contiguous, str(x.dtype), list(x.shape),
        type(n).__name__, text, nothing, [type(several).__name__, type(several[0]).__name__],
        sorted(named), float(named["a"].sum()), type(rng).__name__, float(rng.normal()), flag,
    ]
"""
    x = np.asfortranarray(np.ones((2, 3), np.float32))
    args = (x, 3, "text", None, [np.eye(2), 1], {"a": np.ones(3), "b": 2}, Rng(5))
    value = load(source).value("listing", *args, flag=True)
    normal = float(np.random.default_rng(5).normal())
    assert value == [
        *(True, True, True, "float32", [2, 3], "int", "text", None, ["list", "ndarray"]),
        *(["a", "b"], 3.0, "Generator", normal, True),
    ]


def test_every_call_gets_arrays_of_its_own(load) -> None:
    x = np.zeros(2)
    script = Script(CALLS)
    handles = [script.call("array", x, x) for _ in range(2)]
    source = "def array(x, y):\n    x += 1\n    y += 10\n    return x + y"
    trace = load(source).run(script)
    assert [trace[h].tolist() for h in handles] == [[11, 11], [11, 11]]


def test_equal_generators_draw_alike_at_every_call(load) -> None:
    script = Script(CALLS)
    handles = [script.call("array", Rng(3)) for _ in range(2)]
    trace = load("def array(rng): return rng.normal(size=4)").run(script)
    assert np.array_equal(trace[handles[0]], trace[handles[1]])


def test_handles_are_the_very_objects(load) -> None:
    source = """
import numpy as np
SEEN = []
def make():
    SEEN.append(lambda: 7)
    return SEEN[-1]
def array(one, several, named):
    return np.array([one is SEEN[0], several[0] is SEEN[0], named["k"] is SEEN[0], one()])
"""
    script = Script(CALLS)
    made = script.call("make")
    result = script.call("array", made, [made], {"k": made})
    assert load(source).run(script)[result].tolist() == [1, 1, 1, 7]


def test_an_array_result_is_an_argument_unchanged(load) -> None:
    source = """
import numpy as np
def array(x=None):
    return np.ones(2, np.float32) if x is None else x * 2
"""
    script = Script(CALLS)
    result = script.call("array", script.call("array"))
    value = load(source).run(script)[result]
    assert value.dtype == np.float32 and value.tolist() == [2, 2]


def test_parameters_are_set_after_construction_and_later(load) -> None:
    source = """
import numpy as np
class Cell:
    def __init__(self, size): self.params = {"W": np.zeros(size)}
    def step(self): return self.params["W"] * 2
"""
    script = Script(CALLS)
    cell = script.new("Cell", 3, params={"W": np.arange(3.0)})
    first, params = cell.step(), script.read(cell.params)
    script.assign(cell, {"W": np.full(2, 5.0)})
    second = cell.step()
    trace = load(source).run(script)
    assert trace[first].tolist() == [0, 2, 4]
    assert trace[params]["W"].tolist() == [0, 1, 2]
    assert trace[second].tolist() == [10, 10]


# ---- claims ----------------------------------------------------------------------------------------


def test_arguments_changed_in_place_are_named(load) -> None:
    source = """
import numpy as np
def array(x, h_prev, *, mask, same):
    h_prev[0] = 5
    mask &= False
    same[0] = same[0]
    return x
class Cell:
    def __init__(self, W): W *= 2
    def step(self, x): x[...] = np.nan; return x
"""
    ones, yes = np.ones(3), np.ones(2, bool)
    script = Script(CALLS)
    script.call("array", ones, ones, mask=yes, same=ones)
    cell = script.new("Cell", ones)
    cell.step(ones)
    trace = load(source).run(script)
    assert trace.modified == ((0, "h_prev"), (0, "mask"), (1, "W"), (2, "x"))


def test_warnings_are_told_with_their_line_even_where_they_were_silenced(load) -> None:
    source = """import warnings
import numpy as np
np.seterr(all="ignore")
warnings.simplefilter("ignore")
def array(x):
    y = np.exp(x * 1000)
    return y, x / 0
"""
    trace = load(source).trace("array", np.ones(2))
    assert {(w.category, w.where) for w in trace.warnings} == {
        ("RuntimeWarning", "lstm.py:6"),
        ("RuntimeWarning", "lstm.py:7"),
    }
    assert {"overflow", "divide"} <= {w.message.split()[0] for w in trace.warnings}


def test_what_is_warned_on_purpose_within_the_call_is_left_alone(load) -> None:
    source = """
import numpy as np
def array(x):
    with np.errstate(over="ignore"):
        return np.exp(x)
"""
    assert load(source).trace("array", np.ones(2) * 1e4).warnings == ()


def test_the_same_warning_is_told_at_every_step(load) -> None:
    script = Script(CALLS)
    for _ in range(3):
        script.call("array", np.zeros(1))
    trace = load("def array(x): return 1 / x").run(script)
    assert [w.step for w in trace.warnings] == [0, 1, 2]


def test_arguments_changed_inside_lists_and_dicts_are_named(load) -> None:
    source = """
def array(params, states):
    params["W"] *= 2
    states[1][0] = 5
    return params["b"]
"""
    ones = np.ones(3)
    trace = load(source).trace("array", {"W": ones, "b": ones}, [ones, ones])
    assert trace.modified == ((0, 'params["W"]'), (0, "states[1]"))


# ---- sums, and what is read or given on the way -----------------------------------------------------


def test_sums_of_results_go_into_later_calls(load) -> None:
    source = """
import numpy as np
def pair(): return np.ones((2, 3)), np.full((2, 3), 10.0)
def array(x): return 2 * x
"""
    script = Script(CALLS)
    h, c = script.call("pair")
    total = script.add(script.add(h, c), np.full((2, 3), 100.0))
    doubled = script.call("array", total)
    shown = script.show("total", total)
    trace = load(source).run(script)
    assert trace[shown].tolist() == [[111.0] * 3] * 2
    assert trace[doubled].tolist() == [[222.0] * 3] * 2


def test_a_sum_leaves_its_parts_as_they_were(load) -> None:
    script = Script(CALLS)
    h, c = script.call("pair")
    script.add(h, c)
    shown = script.show("h", h)
    trace = load("import numpy as np\ndef pair(): return np.ones(2), np.ones(2)").run(script)
    assert trace[shown].tolist() == [1, 1]


@pytest.mark.parametrize(
    "returned, said",
    {
        "np.ones(2), np.ones(3)": "h of shape (2,) and c of shape (3,)",
        "np.ones((2, 1)), np.ones((1, 2))": "h of shape (2, 1) and c of shape (1, 2)",
        "np.ones(2), [1.0, 1.0]": "c is a list of 2, not an array",
        "None, np.ones(2)": "h is None, not an array",
    }.items(),
)
def test_only_arrays_of_one_shape_are_added(load, returned: str, said: str) -> None:
    script = Script(CALLS)
    script.add(*script.call("pair"))
    raised = load(f"import numpy as np\ndef pair(): return {returned}").run(script).raised
    assert raised is not None and (raised.step, raised.type) == (1, "ReturnedWrong")
    assert said in raised.message


def test_what_is_shown_is_read_as_an_array(load) -> None:
    script = Script(CALLS)
    shown = script.show("cache", script.call("make"))
    assert load("def make(): return {'a': 1}").run(script)[shown] == Unfit("a dict of 1")


def test_parameters_and_gradients_of_any_object(load) -> None:
    source = """
import numpy as np
class Cell:
    def __init__(self): self.params, self.grads = {"W": np.ones(2)}, {"W": np.zeros(2)}
    def step(self):
        self.grads["W"] += 3
        return self.grads["W"]
"""
    script = Script(CALLS)
    cell = script.new("Cell", params={"W": np.arange(2.0)})
    cell.step()
    params, grads = script.parameters(cell), script.gradients(cell)
    trace = load(source).run(script)
    assert trace[params]["W"].tolist() == [0, 1] and trace[grads]["W"].tolist() == [3, 3]
    raised = load("class Cell:\n    def step(self): return 1").run(script).raised
    assert raised is not None and (raised.step, raised.type) == (4, "NotDefined")
    assert raised.message == "Cell.grads is not defined"


def test_tensors_need_a_pytorch_worker(load) -> None:
    x = np.ones(2)
    for build in (
        lambda script: script.tensor("x", x),
        lambda script: script.backward((script.call("array"), x)),
        lambda script: script.count_operators(),
    ):
        script = Script(CALLS)
        build(script)
        raised = load("def array(): return 1").run(script).raised
        assert raised is not None and "needs a PyTorch worker" in raised.message


# ---- errors ----------------------------------------------------------------------------------------


def test_an_exception_has_its_line(load) -> None:
    source = """import numpy as np
def helper(x):
    return x @ np.ones((7, 7))
def array(x):
    return helper(x)
"""
    script = Script(CALLS)
    script.call("array", np.ones((7, 7)))
    second = script.call("array", np.ones((2, 3)))
    script.call("array", np.ones((7, 7)))
    trace = load(source).run(script)
    assert trace.raised is not None
    assert (trace.raised.step, trace.raised.type) == (1, "ValueError")
    assert (trace.raised.where, trace.raised.line) == ("lstm.py:3", "return x @ np.ones((7, 7))")
    assert "matmul" in trace.raised.message
    assert list(trace.values) == [0] and second.number not in trace.values


def test_an_exception_in_another_file_names_that_file(load) -> None:
    submission = load("from cells import array", cells="def array():\n    return 1 // 0")
    raised = submission.trace("array").raised
    assert raised is not None and (raised.where, raised.line) == ("cells.py:2", "return 1 // 0")


@pytest.mark.parametrize(
    "returned, said",
    {
        "x": "an array",
        "(x,)": "a tuple of 1",
        "(x, x, x)": "a tuple of 3",
        "None": "None",
        "{'h': x, 'c': x}": "a dict of 2",
        "np.ones((2, 3))": "an array",
    }.items(),
)
def test_another_number_of_values(load, returned: str, said: str) -> None:
    source = f"import numpy as np\nx = np.ones(2)\ndef pair(): return {returned}"
    raised = load(source).trace("pair").raised
    assert raised is not None and raised.type == "ReturnedWrong"
    assert said in raised.message and raised.message.endswith("2 values: h, c")


@pytest.mark.parametrize("returned", ["(x, x)", "[x, x]"])
def test_tuples_and_lists_are_several_values(load, returned: str) -> None:
    source = f"import numpy as np\nx = np.ones(2)\ndef pair(): return {returned}"
    trace = load(source).trace("pair")
    assert trace.raised is None and len(trace.values) == 2


ODD_ERRORS = {
    "SystemExit": ("raise SystemExit('bye')", "SystemExit"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "a missing name": ("return missing", "NameError"),
    "a message that raises": (
        "class E(Exception):\n        def __str__(self): raise SystemExit\n    raise E",
        "E",
    ),
    "a message of a subclass": (
        "class S(str): pass\n    class E(Exception):\n"
        "        def __str__(self): return S('x')\n    raise E",
        "E",
    ),
    "a long message": ("raise ValueError('x' * 10**6)", "ValueError"),
    "half a character": ("raise ValueError('\\ud800')", "ValueError"),
    "an exception of a group": ("raise ExceptionGroup('g', [ValueError()])", "ExceptionGroup"),
    "many causes": (
        "e = ValueError()\n    for _ in range(2000):\n"
        "        f = ValueError(); f.__cause__ = e; e = f\n    raise e",
        "ValueError",
    ),
    "not an exception": ("raise 3", "TypeError"),
    "recursion": ("return array()", "RecursionError"),
}


@pytest.mark.parametrize("body, kind", ODD_ERRORS.values(), ids=ODD_ERRORS)
def test_odd_errors_are_errors(load, body: str, kind: str) -> None:
    submission = load(f"def array():\n    {body}\ndef scalar(): return 7")
    trace = submission.trace("array")
    assert trace.cause is None and trace.raised is not None
    assert trace.raised.type == kind
    assert len(trace.raised.message) <= 2000
    assert trace.raised.where.startswith("lstm.py:")
    assert submission.value("scalar") == 7


@pytest.mark.parametrize(
    "body",
    [
        "import warnings\n    warnings.warn('\\ud800')",
        "import warnings\n    class W(UserWarning):\n"
        "        def __str__(self): raise KeyError\n    warnings.warn(W())",
        "return {'\\ud800': 1}",
        "class K:\n        def __str__(self): raise KeyError\n    return {K(): 1}",
        "class M(dict):\n        def items(self): raise KeyError\n    return M()",
    ],
)
def test_odd_claims_and_values_do_not_end_the_worker(load, body: str) -> None:
    submission = load(f"def mapping():\n    {body}\n    return {{}}\ndef scalar(): return 7")
    assert submission.trace("mapping").cause is None
    assert submission.value("scalar") == 7


def test_a_name_that_is_missing(load) -> None:
    trace = load("x = 1").trace("array")
    assert trace.raised is not None
    assert trace.raised.type in ("NotDefined", "AttributeError")
    assert "array" in trace.raised.message
    script = Script(CALLS)
    script.new("Cell").step()
    trace = load("class Cell: pass").run(script)
    assert trace.raised is not None and trace.raised.step == 1
    assert "step" in trace.raised.message


@pytest.mark.parametrize(
    ("source", "like"),
    [
        ("def Array(): pass", "Array"),
        ("def arrays(): pass\ndef listing(): pass", "arrays"),
        ("class arrey: pass", "arrey"),
        ("from others import arrray", "arrray"),
        ("from numpy import asarray as arrays\nimport array as Array", None),
        ("arrays = 3\ndef make(): pass", None),
        (
            "class Odd:\n    __module__ = property(lambda self: 1 / 0)\n"
            "    def __call__(self): pass\nArray = Odd()",
            None,
        ),
    ],
)
def test_the_likely_name_of_a_function_is_said(load, source: str, like: str | None) -> None:
    raised = load(source, others="def arrray(): pass").trace("array").raised
    assert raised is not None and raised.type == "NotDefined"
    said = f"; is your `{like}` meant to be it? Rename it" if like else ""
    assert raised.message == f"array is not defined{said}"


def test_the_likely_name_of_a_method_or_an_attribute_is_said(load) -> None:
    source = """
import numpy as np
class Base:
    def steps(self): pass
class Cell(Base, dict):
    def __init__(self): self.parameters = {}
"""
    script = Script(CALLS)
    script.new("Cell").step()
    raised = load(source).run(script).raised
    assert raised is not None
    assert raised.message == "Cell.step is not defined; is your `steps` meant to be it? Rename it"
    script = Script(CALLS)
    script.read(script.new("Cell").params)
    raised = load(source).run(script).raised
    assert raised is not None
    assert raised.message.endswith("; is your `parameters` meant to be it? Rename it")


# ---- files -----------------------------------------------------------------------------------------


def test_files_import_each_other(load) -> None:
    submission = load(
        "from cells import step\nimport shared\nZERO = 0\ndef array(): return step(shared.START)",
        cells="import shared\ndef step(x):\n    import lstm\n    return x + shared.START + lstm.ZERO",
        shared="import numpy as np\nSTART = np.ones(2)",
    )
    assert submission.value("array").tolist() == [2, 2]


def test_the_source_is_there_for_those_who_look(load) -> None:
    source = "import inspect\ndef scalar(): return inspect.getsource(scalar).strip() + __file__"
    value = load(source).value("scalar")
    assert value in (source.splitlines()[1] + "lstm.py", source.splitlines()[1])


def test_classes_of_every_sort_can_be_made(load) -> None:
    source = """
from __future__ import annotations
import dataclasses, enum, pickle, typing
@dataclasses.dataclass
class State:
    h: typing.Any = 1
class Kind(enum.Enum):
    A = 1
def scalar():
    assert pickle.loads(pickle.dumps(State(3))) == State(3)
    return __name__ + State.__module__ + Kind.A.name
"""
    assert load(source).value("scalar") == "lstmlstmA"


def test_the_main_block_is_not_run(load) -> None:
    source = "def scalar(): return 7\nif __name__ == '__main__': raise SystemExit(1)"
    assert load(source).value("scalar") == 7


def test_syntax_errors_have_their_line(refuse) -> None:
    raised = refuse({"lstm.py": "x = 1\ndef f(:\n    pass\n"})
    assert (raised.type, raised.where, raised.line) == ("SyntaxError", "lstm.py:2", "def f(:")
    raised = refuse({"lstm.py": "import cells", "cells.py": "\n\nreturn 3"})
    assert (raised.type, raised.where) == ("SyntaxError", "cells.py:3")
    raised = refuse({"lstm.py": "def f():\n  x\n\ty"})
    assert raised.type in ("TabError", "IndentationError") and raised.where == "lstm.py:3"


@pytest.mark.parametrize(
    "source, kind",
    {
        "import torch": "ModuleNotFoundError",
        "import cells": "ModuleNotFoundError",
        "from numpy import no_such_thing": "ImportError",
        "raise SystemExit": "SystemExit",
        "1 / 0": "ZeroDivisionError",
        "x = '\\ud800'\nraise ValueError(x)": "ValueError",
        "import lstm\nlstm.nothing": "AttributeError",
        "a = b'\0'\nb": "*",
        "(" * 5000: "*",
        "x = " + "-" * 100_000 + "1": "*",
    }.items(),
    ids=lambda text: text[:20].encode("unicode_escape").decode(),
)
def test_what_cannot_be_imported_says_why(refuse, source: str, kind: str) -> None:
    raised = refuse({"lstm.py": source})
    assert kind in ("*", raised.type)


# ---- harm ------------------------------------------------------------------------------------------

HARM = """
import builtins, gc, os, sys, time, warnings
import numpy as np
import msgpack
{harm}
def array(): return np.ones(2)
"""
HARMS = {
    "np.array": "np.array = np.asarray = None",
    "ndarray.tobytes": "import numpy.core.multiarray as m; m.frombuffer = None",
    "errstate": "np.errstate = None",
    "warnings": "warnings.catch_warnings = None",
    "builtins": "builtins.isinstance = builtins.len = lambda *a: True",
    "type": "builtins.type = lambda *a: float",
    "str": "builtins.str = None",
    "sys.modules": "sys.modules.clear()",
    "msgpack": "msgpack.packb = lambda *a, **k: b'\\xc0'",
    "the wire": "sys.modules['softmark.isolation.wire'].frame = lambda b: b'x' * 100",
    "the worker": "sys.modules['softmark.isolation.worker']._answer = lambda *a: b'x'",
    "os.write": "os.write = lambda *a: 1 / 0",
    "a trace function": "sys.settrace(lambda *a: 1 / 0)",
    "gc": "[o.clear() for o in gc.get_objects() if type(o) is list]",
    "clock": "time.perf_counter = time.monotonic = lambda: 0",
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_submission_that_rewrites_its_world_harms_itself_only(
    zygote: Zygote, load, harm: str
) -> None:
    script = Script(CALLS)
    result = script.call("array")
    worker = zygote.spawn()
    try:
        if worker.load({"lstm.py": HARM.format(harm=harm)}, "lstm", 10) is None:
            trace = worker.run(script, wire.pack_script(script), 10)
            if trace.cause is None and trace.raised is None:  # then the value is what it said
                assert isinstance(trace[result], (np.ndarray, Unfit, float))
    except wire.BadFrame:
        pass
    finally:
        worker.close()
    fresh = load("import numpy as np\ndef array(): return np.ones(2) / 0")
    trace = fresh.run(script)
    assert np.isinf(trace[result]).all() and len(trace.warnings) == 1
