"""KVCache by itself, and MultiHeadAttention with one: in steps what it gives all at once."""

import numpy as np
import pytest
from softmark.plugin import item
from softmark.script import Member

N, H, D = 3, 2, 4


def near(a, b):
    return np.allclose(a, b, 1e-9, 1e-11)


def length(run, cache):
    """len(cache)."""
    return Member(run, "KVCache.__len__", cache._handle)()


@item("cache.append")
def test_append(script, agree, draw):
    """Everything that was appended, oldest first, to one cache and to another in turn."""
    run = script()
    caches = [run.new("KVCache"), run.new("KVCache")]
    for cache in caches:
        length(run, cache)
    returned = []
    for place, T in ((0, 3), (1, 2), (0, 1), (0, 1), (1, 1), (0, 2)):
        N_, H_, D_ = ((N, H, D), (2, 3, 1))[place]
        returned.append(caches[place].append(draw(N_, H_, T, D_), draw(N_, H_, T, D_)))
        for cache in caches:
            length(run, cache)
    for number, pair in enumerate(returned):  # as they were
        for name, handle in zip(("keys", "values"), pair, strict=True):
            run.show(f"{name} of call {number}, at the end", handle)
    agree(run)


@item("cache.gradients", depends="cache.append")
def test_gradients_of_a_cache(script, student, draw):
    """From what is returned back to every k and v that was appended."""
    run = script()
    cache = run.new("KVCache")
    tensors, upstream = [], []
    for T in (2, 1, 3):
        pair = [run.tensor(name, draw(N, H, T, D)) for name in "kv"]
        tensors.append(pair)
        found = cache.append(*pair)
    upstream = draw(N, H, 6, D), draw(N, H, 6, D)
    run.backward(*zip(found, upstream, strict=True))
    gradients = [[run.gradient(tensor) for tensor in pair] for pair in tensors]
    trace = student(run)
    for place, name in enumerate("kv"):
        due = np.split(upstream[place], (2, 3), axis=2)
        for number, pair in enumerate(gradients):
            assert near(trace[pair[place]], due[number]), (
                f"The gradient of the {name} of call {number} is not what reached it."
            )


@item("cache.steps", depends=("cache.append", "gqa.groups"))
@pytest.mark.parametrize("h_kv, chunks", [(4, (1, 1, 1, 1)), (2, (2, 1, 3))])
def test_in_steps(script, student, draw, h_kv, chunks):
    """As all tokens so far without a cache: each token alone, or chunks of a ragged batch."""
    run = script()
    h, T = 4, sum(chunks)
    E, of_keys = h * 3, h_kv * 3
    shapes = {"q_proj": E, "k_proj": of_keys, "v_proj": of_keys, "o_proj": E}
    params = {f"{name}.weight": draw(rows, E) for name, rows in shapes.items()}
    params |= {f"{name}.bias": draw(rows) for name, rows in shapes.items()}
    made = run.new("MultiHeadAttention", E, h, h_kv, params=params)
    x = draw(2, T, E)
    cache, done = run.new("KVCache"), []
    mask = np.tril(np.ones((T, T), dtype=bool))
    if h_kv < h:  # the first tokens of sample 0 are padding
        mask = mask & (np.arange(T) > [[1], [-1]])[:, None, None]
    held = 0
    for size in chunks:
        rows = slice(held, held + size)
        held += size
        # under a causal mask alone, a single token may attend to all that is held
        seen, of_all = None, None
        if h_kv < h:
            seen, of_all = mask[..., rows, :held], mask[..., :held, :held]
        step = made.forward(x[:, rows], mask=seen, cache=cache)
        alone = made.forward(x[:, rows], mask=None if seen is None else seen[..., rows])
        done.append((rows, step, made.forward(x[:, :held], mask=of_all), alone))
    shape = (2, h_kv, 1, 3)  # what is held has the heads of keys and values, and no more
    cache.append(draw(*shape), draw(*shape))
    trace = student(run)
    real = np.broadcast_to(mask.any(-1).reshape(-1, T), (2, T))
    for number, (rows, step, whole, alone) in enumerate(done, 1):
        kept = real[:, rows]
        found, due = trace[step][kept], trace[whole][:, rows][kept]
        where = f"In step {number} of {len(done)}, {len_of(rows)} behind {rows.start} in the cache"
        assert rows.start == 0 or not near(found, trace[alone][kept]), (
            f"{where}, out is what the new ones give by themselves: those held are not attended to."
        )
        assert near(found, due), (
            f"{where}, out is not what these tokens have in one call, without a cache, on all "
            f"{rows.stop} so far."
        )


def len_of(rows):
    """As in: 2 new tokens; 1 new token."""
    count = rows.stop - rows.start
    return f"{count} new tokens" if count > 1 else "1 new token"
