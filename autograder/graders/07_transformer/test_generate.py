"""Generation without draws: the arg-max of the submission's own model, the mode, and the cost."""

from dataclasses import replace

import numpy as np
from softmark.cost import flops
from softmark.plugin import item

V, E, H, F, LAYERS, MAX_LEN = SIZES = (23, 8, 2, 9, 2, 10)


def lively(draw, *sizes):
    """Random parameters with which token, position and what is attended to all count alike."""
    params = draw.params("TransformerLM", *sizes)
    for name, value in params.items():
        if name in ("embed.weight", "positions.weight"):
            value /= np.linalg.norm(value, axis=1, keepdims=True)
        elif value.ndim == 1:
            value[:] = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        elif "o_proj" in name or "down" in name:
            value *= 2.0 if "o_proj" in name else 0.3
    params["positions.weight"] *= 1.5
    return params | {"out.weight": params["embed.weight"]}


@item("generate.greedy", depends=("block.cache", "lm.causal", "lm.cache"))
def test_arg_max(script, student, reference, draw):
    """Every token is the arg-max of the model's logits after all tokens before it."""
    distinct = 0  # a model that writes the same few tokens whatever it reads shows no mistake
    while distinct < 9:
        params, prompt, run = lively(draw, *SIZES), draw.rng.integers(V, size=(8, 3)), script()
        made = run.new("TransformerLM", *SIZES, params=params)
        run.no_grad()  # what generate returns may be an inference tensor
        tokens = run.call("generate", made, prompt, 4, temperature=0)
        distinct = len(np.unique(reference(run)[tokens][:, 3:]))
    found = [(prompt, tokens, made.forward(tokens))]
    for T, new in ((1, 1), (4, 0)):
        other = draw.rng.integers(V, size=(1, T))
        written = run.call("generate", made, other, new, temperature=0)
        found.append((other, written, made.forward(written)))
    same = run.call("generate", made, prompt, 2, 0.0, 1, 0.5)
    trace = student(run)
    for before, handle, logits in found:
        T, written = before.shape[1], trace[handle]
        assert np.array_equal(written[:, :T], before), (
            "What generate returns does not begin with the prompt."
        )
        due = trace[logits].argmax(axis=2)[:, T - 1 : -1]
        assert np.array_equal(written[:, T:], due), (
            "With temperature 0, the tokens are not the arg-max of what your model makes of the tokens "
            "before each."
        )
    assert np.array_equal(trace[same], trace[tokens][:, :5]), (
        "With temperature 0, top_k or top_p changes what is written."
    )


@item("generate.mode", depends="generate.greedy")
def test_mode(script, student, draw):
    """Dropout is off while it writes, and the model is left as it was."""
    run = script()
    sizes = (V, E, H, F, 1, 8)
    made = run.new("TransformerLM", *sizes, dropout=0.5, params=lively(draw, *sizes))
    prompt = draw.rng.integers(V, size=(8, 2))
    in_training = run.call("generate", made, prompt, 4, temperature=0)
    training = run.read(made.training)
    dropped = [made.forward(prompt) for _ in range(2)]
    made.eval()
    in_eval = run.call("generate", made, prompt, 4, temperature=0)
    still = run.read(made.training)
    trace = student(run)
    assert trace[training] is True, "A model in training mode is not in training mode afterwards."
    assert not np.array_equal(*(trace[handle] for handle in dropped)), (
        "After generate, nothing is dropped any more in training: are parts of the model left in eval "
        "mode?"
    )
    assert trace[still] is False, "A model in eval mode is not in eval mode afterwards."
    assert np.array_equal(trace[in_training], trace[in_eval]), (
        "A model with dropout writes something else in training mode: run it in eval mode."
    )


@item("generate.cost", depends="lm.cache", claim=True)
def test_cost(script, student, draw):
    """What one forward of all tokens but the last costs; recomputing costs many times that."""
    T, new = 2, 16
    run = script()
    sizes = (V, E, H, F, 1, T + new)
    made = run.new("TransformerLM", *sizes, params=lively(draw, *sizes))
    run.count_operators()
    prompt = draw.rng.integers(V, size=(1, T))
    run.call("generate", made, prompt, new, temperature=0)
    generating = len(run.steps) - 1
    tokens = draw.rng.integers(V, size=(1, T + new - 1))
    made.forward(tokens)
    caches = [run.new("KVCache")]
    first = len(run.steps)
    for start, end in ((0, T), *((t, t + 1) for t in range(T, T + new - 1))):
        made.forward(tokens[:, start:end], caches)
    trace = student(run)
    taken, once, least = (
        flops(replace(trace, operators=tuple(o for o in trace.operators if o.step in steps)))
        for steps in ([generating], [generating + 1], range(first, len(run.steps)))
    )
    assert taken >= 0.95 * least, (
        f"To write {new} tokens after {T}, generate takes {taken:,} floating-point operations; to give "
        f"your model the prompt, and then each new token with the caches, takes {least:,}. With fewer "
        "something is left out: do new tokens attend to all that came before?"
    )
    assert taken <= 1.5 * once, (
        f"To write {new} tokens after {T}, generate takes {taken:,} floating-point operations, and one "
        f"forward of {T + new - 1} tokens {once:,}: the bound is 1.5 times that. Give the model the "
        "prompt, then each new token by itself, with caches."
    )
