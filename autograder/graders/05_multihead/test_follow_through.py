"""What is right given the student's own earlier parts.

Asked only where something before them is wrong. The submission makes the same numbers twice: as a
whole, and chained from its own parts. They must agree, and they must be alive: what does not answer to
its inputs agrees with itself too, and earns nothing.
"""

import numpy as np
import pytest
from softmark.plugin import item

N, TQ, TK, E, H = 3, 4, 5, 6, 2
EPS = 1e-5


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


@item("backward.d{name}", follow_through=True)
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_backward(script, student, draw, name):
    """The slope of the student's own out."""
    run = script()
    run.no_grad()
    given = {"q": draw(N, TQ, 3), "k": draw(N, TK, 3), "v": draw(N, TK, 2)}
    upstream = draw(N, TQ, 2)
    found = run.call("attention_backward", upstream, *given.values())["qkv".index(name)]
    done = []
    for _ in range(4):
        direction = draw(*given[name].shape)
        moved = [{**given, name: given[name] + step * direction} for step in (EPS, -EPS)]
        sides = [run.call("scaled_dot_product_attention", *each.values())[0] for each in moved]
        done.append((direction, sides))
    trace = student(run)
    for direction, sides in done:
        above, below = (np.sum(trace[side] * upstream) for side in sides)
        slope = (above - below) / (2 * EPS)
        assert np.isfinite(slope) and abs(slope) > 1e-6
        assert abs(np.sum(trace[found] * direction) - slope) < 1e-6 * max(1.0, abs(slope))


@item("mha.{kind}", follow_through=True)
@pytest.mark.parametrize("kind", ["self", "cross"])
def test_multihead(script, student, draw, kind):
    """Projections, then the student's own split_heads, attention and merge_heads."""
    run = script()
    params = {}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        params |= {f"{name}.weight": draw(E, E), f"{name}.bias": draw(E)}
    made = run.new("MultiHeadAttention", E, H, params=params)

    def tokens():
        if kind == "self":
            return [draw(N, TQ, E)]
        return [draw(N, TQ, E), draw(N, TK, E), draw(N, TK, E)]

    def project(name, x):
        return x @ params[f"{name}_proj.weight"].T + params[f"{name}_proj.bias"]

    given, other = tokens(), tokens()
    whole, moved = made.forward(*given), made.forward(*other)
    parts = [
        run.call("split_heads", project(name, given[min(place, len(given) - 1)]), H)
        for place, name in enumerate("qkv")
    ]
    out, _ = run.call("scaled_dot_product_attention", *parts)
    merged = run.call("merge_heads", out)
    trace = student(run)
    chained = project("o", trace[merged])
    assert np.isfinite(trace[whole]).all()
    assert near(trace[whole], chained)
    assert not near(trace[whole], trace[moved])
    for axis in (0, 1):  # samples and tokens differ, and not by the projections alone
        assert np.ptp(trace[merged], axis=axis).any()


@item("mha.{kind}", follow_through=True)
@pytest.mark.parametrize("kind", ["ragged", "causal"])
def test_multihead_with_a_mask(script, student, draw, kind):
    """The student's own split_heads, attention with the mask, and merge_heads."""
    run = script()
    params = {}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        params |= {f"{name}.weight": draw(E, E), f"{name}.bias": draw(E)}
    made = run.new("MultiHeadAttention", E, H, params=params)
    mask = np.tri(TQ, dtype=bool)
    if kind == "ragged":
        mask = mask & (np.arange(TQ) < np.array([2, 4, 1])[:, None])[:, None, None]
    x = draw(N, TQ, E)
    whole, moved = made.forward(x, mask=mask), made.forward(draw(N, TQ, E), mask=mask)
    parts = [
        run.call(
            "split_heads", x @ params[f"{name}_proj.weight"].T + params[f"{name}_proj.bias"], H
        )
        for name in "qkv"
    ]
    masked, plain = (
        run.call("merge_heads", run.call("scaled_dot_product_attention", *parts, *more)[0])
        for more in ((mask,), ())
    )
    trace = student(run)
    assert np.isfinite(trace[whole]).all()
    assert near(trace[whole], trace[masked] @ params["o_proj.weight"].T + params["o_proj.bias"])
    assert not near(trace[masked], trace[plain]) and not near(trace[whole], trace[moved])


@item("latent.out", follow_through=True)
def test_latent(script, student, draw):
    """The student's own split_heads, attention with a mask, and merge_heads, behind two latents."""
    run, r = script(), 4
    sizes = {"kv_down": (r, E), "k_up": (E, r), "v_up": (E, r)}
    names = ("q_proj", "kv_down", "k_up", "v_up", "o_proj")
    W = {name: draw(*sizes.get(name, (E, E))) for name in names}
    params = {f"{name}.weight": weight for name, weight in W.items()}
    made = run.new("MultiHeadLatentAttention", E, H, r, params=params)
    x, before = draw(N, TQ, E), draw(N, 2, r)
    mask = np.tri(TQ, TQ + 2, 2, dtype=bool)
    wholes = [made.forward(x, more, before)[0] for more in (None, mask)]
    moved, _ = made.forward(draw(N, TQ, E), mask, before)
    latents = np.concatenate([before, x @ W["kv_down"].T], axis=1)
    given = x @ W["q_proj"].T, latents @ W["k_up"].T, latents @ W["v_up"].T
    parts = [run.call("split_heads", each, H) for each in given]
    merged = [
        run.call("merge_heads", run.call("scaled_dot_product_attention", *parts, *more)[0])
        for more in ((), (mask,))
    ]
    trace = student(run)
    for whole, chained in zip(wholes, merged, strict=True):
        assert np.isfinite(trace[whole]).all()
        assert near(trace[whole], trace[chained] @ W["o_proj"].T)
    assert not near(trace[merged[0]], trace[merged[1]]) and not near(trace[wholes[1]], trace[moved])
