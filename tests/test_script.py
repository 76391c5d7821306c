"""Building Scripts: what is called, what it will be called by, and what is no call at all."""

from __future__ import annotations

import numpy as np
import pytest
from softmark.script import Handle, Instance, Output, Rng, Script, Step, Trace, Unfit

CALLS = {
    "sigmoid": (Output("s", "array"),),
    "nothing": (),
    "unroll": (Output("h", "array"), Output("c", "array"), Output("cache", "private")),
    "Cell": (),
    "Cell.forward": (Output("h", "array"), Output("cache", "private")),
    "Cell.step": (),
    "Cell.grads": (Output("grads", "dict"),),
    "Layer": (),
}


@pytest.fixture
def run() -> Script:
    return Script(CALLS)


def test_a_new_script_is_empty(run: Script) -> None:
    assert run.steps == []
    assert run.outputs() == []


def test_one_output_is_one_handle_and_several_are_a_tuple(run: Script) -> None:
    assert run.call("sigmoid", 1.0) == Handle(0)
    assert run.call("unroll", 1.0) == (Handle(1), Handle(2), Handle(3))
    assert run.call("nothing") is None
    assert run.call("sigmoid", 2.0) == Handle(4)
    assert [step.first for step in run.steps] == [0, 1, 4, 4]


def test_a_step_says_everything(run: Script) -> None:
    x = np.ones(3)
    run.call("unroll", x, 2, flag=True)
    (step,) = run.steps
    assert isinstance(step, Step)
    assert (step.operation, step.name, step.target) == ("call", "unroll", None)
    assert step.args[0] is x and step.args[1:] == (2,)
    assert step.kwargs == {"flag": True}
    assert step.outputs == CALLS["unroll"]
    assert not step.raises


def test_only_what_is_not_private_is_read_back(run: Script) -> None:
    run.call("nothing")
    run.call("unroll")
    run.call("sigmoid")
    names = [(step.name, handle.number, output.name) for step, handle, output in run.outputs()]
    assert names == [("unroll", 0, "h"), ("unroll", 1, "c"), ("sigmoid", 3, "s")]


def test_an_instance_has_the_members_of_its_class(run: Script) -> None:
    cell = run.new("Cell", 3, params={"W": np.eye(2)}, seed=Rng(1))
    h, cache = cell.forward(np.ones(2))
    cell.step(cache)
    grads = run.read(cell.grads)
    assert isinstance(cell, Instance)
    assert (h, cache, grads) == (Handle(1), Handle(2), Handle(3))
    made, given, forward, step, read = run.steps
    assert (made.operation, made.name, made.args, made.kwargs) == (
        "new",
        "Cell",
        (3,),
        {"seed": Rng(1)},
    )
    assert [output.kind for output in made.outputs] == ["private"]
    assert (given.operation, given.target, given.outputs) == ("assign", Handle(0), ())
    assert np.array_equal(given.args[0]["W"], np.eye(2))
    assert (forward.operation, forward.name) == ("method", "Cell.forward")
    assert forward.target == step.target == read.target == Handle(0)
    assert step.args == (Handle(2),)
    assert (read.operation, read.name, read.args) == ("read", "Cell.grads", ())


def test_parameters_can_be_given_again(run: Script) -> None:
    cell = run.new("Cell")
    params = {"W": np.eye(2)}
    run.assign(cell, params)
    params["W"] = np.zeros(2)  # too late to matter
    assert [step.operation for step in run.steps] == ["new", "assign"]
    assert np.array_equal(run.steps[1].args[0]["W"], np.eye(2))
    assert [handle for _, handle, _ in run.outputs()] == []


def test_instances_are_told_apart(run: Script) -> None:
    first, second = run.new("Cell"), run.new("Cell")
    second.step()
    first.step()
    assert [step.target for step in run.steps[2:]] == [Handle(1), Handle(0)]


def test_instances_are_arguments_wherever_they_stand(run: Script) -> None:
    cell = run.new("Cell")
    h, _ = cell.forward()
    run.call("sigmoid", cell, [cell, (cell, h)], key={"a": [cell]}, handle=h)
    step = run.steps[-1]
    assert step.args == (Handle(0), [Handle(0), (Handle(0), h)])
    assert step.kwargs == {"key": {"a": [Handle(0)]}, "handle": h}


def test_building_changes_no_argument(run: Script) -> None:
    cell = run.new("Cell")
    cells, named = [cell], {"a": cell}
    run.call("sigmoid", cells, named=named)
    assert cells == [cell] and named == {"a": cell}


def test_what_is_expected_to_raise_returns_nothing(run: Script) -> None:
    cell = run.new("Cell")
    assert run.raises("unroll", -1) is None
    assert cell.forward.raises(np.ones(2), flag=1) is None
    unroll, forward = run.steps[1:]
    assert unroll.raises and forward.raises
    assert unroll.outputs == forward.outputs == ()
    assert (unroll.operation, forward.operation) == ("call", "method")
    assert (forward.name, forward.target) == ("Cell.forward", Handle(0))
    assert forward.kwargs == {"flag": 1}
    assert run.outputs() == []
    assert run.call("sigmoid") == Handle(1)


@pytest.mark.parametrize(
    "build",
    [
        lambda run: run.call("sigmiod", 1),
        lambda run: run.raises("sigmiod", 1),
        lambda run: run.new("Cel"),
        lambda run: run.new("Cell").forwards(),
        lambda run: run.new("Cell").forwards.raises(),
        lambda run: run.read(run.new("Cell").params),
        lambda run: run.new("Layer").forward(),
    ],
)
def test_a_name_that_is_not_announced_is_an_error_that_says_where_to_look(build) -> None:
    run = Script(CALLS)
    with pytest.raises(KeyError, match=r"is not among the calls of assignment\.yaml"):
        build(run)
    assert all(step.name in CALLS for step in run.steps)


def test_names_with_an_underscore_are_no_members(run: Script) -> None:
    cell = run.new("Cell")
    for name in ("_hidden", "__len__", "__array__", "_repr_html_"):
        assert not hasattr(cell, name)


def test_a_trace_is_read_by_handle() -> None:
    trace = Trace({0: 1.5, 2: Unfit("a list of 3")})
    assert trace[Handle(0)] == 1.5
    assert trace[Handle(2)] == Unfit("a list of 3")
    with pytest.raises(KeyError):
        trace[Handle(1)]


def test_steps_are_told_apart_although_arrays_do_not_compare() -> None:
    run = Script({"f": (Output("y", "array"),)})
    for _ in range(3):
        run.call("f", np.ones((2, 3)))
    assert [run.steps.index(step) for step in run.steps] == [0, 1, 2]


def test_until_keeps_what_an_output_needs_and_no_more() -> None:
    grads = Output("grads", "dict", entries={"W": Output("W", "array")})
    calls = {
        "Cell": (),
        "Cell.forward": (Output("h", "array"), Output("cache", "private")),
        "Cell.backward": (Output("dx", "array"),),
        "Cell.grads": (grads,),
    }
    run = Script(calls)
    cell = run.new("Cell")
    _, cache = cell.forward(1.0)
    cell.backward(2.0, cache)
    run.read(cell.grads)
    assert [step.name for step in run.until(["h"]).steps] == ["Cell", "Cell.forward"]
    assert len(run.until(["dx"]).steps) == 3
    assert len(run.until(['grads["W"]']).steps) == 4
    assert [handle for _, handle, _ in run.until(["dx"]).outputs()] == [
        handle for _, handle, _ in run.outputs()[:2]
    ]


# ---- tensors, sums, parameters ---------------------------------------------------------------------


def test_a_tensor_and_its_gradient() -> None:
    run = Script({"f": (Output("h", "array"), Output("c", "array"))})
    array, blocks = np.ones((2, 3)), {1: ("f", "i", "o")}
    x = run.tensor("x", array, axes=["N", "D"], blocks=blocks)
    h, c = run.call("f", {"x": x}, [x])
    run.backward((h, np.ones(2)), (c, np.zeros(2)))
    dx = run.gradient(x)
    made, call, backward, read = run.steps
    assert (made.operation, made.name, made.outputs[0].kind) == ("tensor", "x", "private")
    assert made.args == (array,)
    assert call.args == ({"x": x}, [x])
    assert (backward.operation, backward.outputs) == ("backward", ())
    assert [pair[0] for pair in backward.args] == [h, c]
    assert (read.operation, read.target) == ("gradient", x)
    assert [handle for _, handle, _ in run.outputs()] == [h, c, dx]
    _, _, output = run.outputs()[-1]
    assert output == Output("dx", "array", ("N", "D"), blocks)


def test_only_tensors_have_gradients(run: Script) -> None:
    x = run.tensor("x", np.ones(2))
    h = run.call("sigmoid", x)
    for other in (h, Handle(9), run.gradient(x)):
        with pytest.raises(ValueError, match="tensor"):
            run.gradient(other)


def test_parameters_and_gradients_take_their_entries_from_calls() -> None:
    entries = {"W": Output("W", "array", ("D", "H"))}
    calls = {
        "Cell": (),
        "Cell.parameters": (Output("anything", "dict", entries=entries),),
        "Layer": (),
    }
    run = Script(calls)
    cell, layer = run.new("Cell"), run.new("Layer")
    handles = [run.parameters(cell), run.gradients(cell), run.parameters(layer)]
    assert [handle for _, handle, _ in run.outputs()] == handles
    read = [(step.operation, step.target, output) for step, _, output in run.outputs()]
    assert read == [
        ("parameters", Handle(0), Output("parameters", "dict", entries=entries)),
        ("gradients", Handle(0), Output("grads", "dict")),
        ("parameters", Handle(1), Output("parameters", "dict")),
    ]


def test_an_instance_that_is_called_goes_forward(run: Script) -> None:
    cell = run.new("Cell")
    assert cell(1.0, flag=True) == (Handle(1), Handle(2))
    step = run.steps[-1]
    assert (step.operation, step.name, step.args) == ("method", "Cell.forward", (1.0,))
    assert step.kwargs == {"flag": True}
    with pytest.raises(KeyError, match=r"Layer\.forward"):
        run.new("Layer")()


def test_sums_are_read_where_they_are_shown(run: Script) -> None:
    a, b = run.call("sigmoid"), run.call("sigmoid")
    total = run.add(run.add(a, b), np.ones(3))
    shown = run.show("dh", total, axes=["N"], blocks={0: ("f", "i")})
    assert [handle for _, handle, _ in run.outputs()] == [a, b, shown]
    step, _, output = run.outputs()[-1]
    assert (step.operation, step.target) == ("show", total)
    assert output == Output("dh", "array", ("N",), {0: ("f", "i")})
    assert run.call("sigmoid").number == shown.number + 1


def test_until_keeps_the_new_steps_that_an_output_needs() -> None:
    run = Script({"f": (Output("h", "array"),)})
    run.count_operators()
    x = run.tensor("x", np.ones(2))
    h = run.call("f", x)
    run.backward((h, np.ones(2)))
    run.gradient(x)
    run.show("twice", run.add(h, h))
    operations = [step.operation for step in run.steps]
    assert operations == ["count", "tensor", "call", "backward", "gradient", "add", "show"]
    assert len(run.until(["h"]).steps) == 3
    assert len(run.until(["dx"]).steps) == 5
    assert len(run.until(["twice"]).steps) == 7
    until = run.until(["dx"]).outputs()
    assert [handle for _, handle, _ in until] == [handle for _, handle, _ in run.outputs()[:2]]
