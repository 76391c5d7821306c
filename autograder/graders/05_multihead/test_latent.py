"""MultiHeadLatentAttention: out and latents against the reference, steps in its own numbers."""

import numpy as np
from softmark.plugin import item

# N, T, E, h, r. Sizes that all differ, then each of them 1.
SIZES = [(3, 4, 6, 2, 5), (2, 5, 12, 3, 4), (1, 3, 4, 2, 3), (2, 1, 6, 3, 4), (2, 3, 5, 1, 2)]
SIZES += [(2, 3, 4, 2, 1)]
NAMES = ("q_proj", "kv_down", "k_up", "v_up", "o_proj")


def latent(run, draw, E, h, r):
    """Latent attention with random weights."""
    sizes = {"kv_down": (r, E), "k_up": (E, r), "v_up": (E, r)}
    params = {f"{name}.weight": draw(*sizes.get(name, (E, E))) for name in NAMES}
    return run.new("MultiHeadLatentAttention", E, h, r, params=params)


def calls(run, draw):
    """By itself, and behind earlier latents, with masks of two kinds."""
    for number, (N, T, E, h, r) in enumerate(SIZES):
        made = latent(run, draw, E, h, r)
        if number != 1:
            mask = np.tril(np.ones((T, T + 2), dtype=bool), 2)
            made.forward(draw(N, T, E), mask, draw(N, 2, r))
        if number < 2:
            made.forward(draw(N, T, E))
            mask = draw.rng.random((N, h, T, T + 3)) < 0.6
            mask[..., 1] = True
            mask[0, 0, 0] = False
            made.forward(draw(N, T, E), mask=mask, latents=draw(N, 3, r))
    return run


PARTS = ("sdpa.weights", "sdpa.out", "sdpa.mask", "sdpa.empty", "heads.split", "heads.merge")


@item("latent.out", depends=PARTS, draws="latent")
def test_out(script, agree, draw):
    """Attention to keys and values that are rebuilt from the latents."""
    agree(calls(script(), draw), only="out")


@item("latent.latents", draws="latent")
def test_latents(script, agree, draw):
    """kv_down of every token, behind the earlier latents."""
    agree(calls(script(), draw), only="latents")


@item("latent.steps", depends="latent.latents")
def test_in_steps(script, student, draw):
    """In chunks, each with the latents that came out before: as all tokens so far in one call."""
    run = script()
    N, T, E, h, r = 2, 6, 12, 3, 4
    made = latent(run, draw, E, h, r)
    x, before, held, done = draw(N, T, E), None, 0, []
    for size in (2, 1, 3):
        rows = slice(held, held + size)
        held += size
        out, before = made.forward(x[:, rows], None, before)
        done.append((rows, (out, before), made.forward(x[:, :held])))
    trace = student(run)
    for number, (rows, step, (out, latents)) in enumerate(done, 1):
        of = f"of {rows.stop - rows.start} behind {rows.start}"
        where = f"In step {number} of {len(done)}, {of} earlier tokens"
        assert np.any(trace[out]), "out is 0 everywhere."
        for name, found, due in (
            ("out", trace[step[0]], trace[out][:, rows]),
            ("latents", trace[step[1]], trace[latents]),
        ):
            assert np.allclose(found, due, 1e-9, 1e-11), (
                f"{where}, {name} is not that of one call on all {rows.stop} tokens so far."
            )


EPS = 2e-6


@item("latent.gradients", depends="sdpa.gradient")
def test_gradients(script, student, draw):
    """Of x, earlier latents and every weight: the slope of the submission's own out and latents."""
    run = script()
    N, T, E, h, r = 2, 3, 6, 2, 4
    sizes = {"kv_down": (r, E), "k_up": (E, r), "v_up": (E, r)}
    params = {f"{name}.weight": 0.6 * draw(*sizes.get(name, (E, E))) for name in NAMES}
    made = run.new("MultiHeadLatentAttention", E, h, r, params=params)
    given = {"x": draw(N, T, E), "latents": draw(N, 2, r)}
    upstream = draw(N, T, E), draw(N, T + 2, r)
    tensors = {key: run.tensor(key, array) for key, array in given.items()}
    run.backward(*zip(made.forward(**tensors), upstream, strict=True))
    gradients = {key: run.gradient(tensor) for key, tensor in tensors.items()}
    of_params = run.gradients(made)
    directions, sides = {}, {}
    groups = {"inputs": list(given), "weights": list(params)}
    for group, keys in groups.items():  # together: each of them shows in the slope
        directions |= {key: draw(*(given | params)[key].shape) for key in keys}
        sides[group] = []
        for step in (EPS, -EPS):
            moved = {**given, **params}
            moved |= {key: moved[key] + step * directions[key] for key in keys}
            run.assign(made, {name: moved[name] for name in params})
            sides[group].append(made.forward(**{name: moved[name] for name in given}))
    trace = student(run)
    found = {key: trace[handle] for key, handle in gradients.items()} | trace[of_params]
    for group, keys in groups.items():
        above, below = (
            sum(np.sum(trace[out] * up) for out, up in zip(side, upstream, strict=True))
            for side in sides[group]
        )
        slope = (above - below) / (2 * EPS)
        for key in keys:
            assert np.abs(found[key]).max() > 1e-10, f"The gradient of {key} is 0."
        along = sum(np.sum(found[key] * directions[key]) for key in keys)
        assert abs(along - slope) < 1e-6 * max(1.0, abs(slope)), (
            f"The gradients of {', '.join(keys)} are not the slope of the outputs: is it detached?"
        )
