"""One step of training a language model, on padded batches of tokens that repeat."""

import numpy as np
from softmark.plugin import item
from softmark.script import Rng

# (N, T, E, H, V). Sizes that all differ; V below the number of tokens, so that some come twice, and far
# above it; then T = 2 and each of the others 1.
SIZES = [
    (4, 6, 3, 5, 7),
    (3, 5, 4, 2, 30),
    (1, 4, 2, 3, 5),
    (5, 2, 3, 4, 6),
    (2, 4, 1, 3, 5),
    (3, 5, 4, 1, 2),
    (2, 3, 4, 5, 1),
]
FORWARD = ("step.forward.h", "sequence.forward.h")
BACKWARD = (*FORWARD, "step.backward.dh_prev", "step.accumulate", "loss.dlogits")


def new_cell(run, draw, E, H):
    """A cell with random parameters."""
    return run.new("RNNCell", E, H, Rng(0), params=draw.params("RNNCell", E, H, Rng(0)))


def model(draw, E, H, V):
    """An embedding, W_hy and b_y."""
    return draw(V, E), draw(H, V) / np.sqrt(H), draw(V)


def batch(draw, N, T, V):
    """Tokens, and a mask of sequences with at least one token each, one of them whole."""
    lengths = draw.rng.integers(1, T + 1, size=N)
    lengths[draw.rng.integers(N)] = T
    return draw.rng.integers(V, size=(N, T)), np.arange(T) < lengths[:, None]


def train(run, draw):
    """A step for each size; for each cell a second one, whose gradients are added."""
    for N, T, E, H, V in SIZES:
        cell = new_cell(run, draw, E, H)
        weights = model(draw, E, H, V)
        for _ in range(2):
            run.call("rnn_lm_loss", cell, *weights, *batch(draw, N, T, V), draw(N, H))
            run.read(cell.grads)
    return run


@item("lm.loss", depends=(*FORWARD, "loss.value"), draws="lm")
def test_loss(script, agree, draw):
    """The mean over all real targets, each predicted from what comes before it."""
    agree(train(script(), draw), only="loss")


@item("lm.output", depends=(*FORWARD, "loss.dlogits"), draws="lm")
def test_gradients_of_the_output(script, agree, draw):
    """The gradients of W_hy and b_y, from all steps of all sequences."""
    agree(train(script(), draw), only=('grads["W_hy"]', 'grads["b_y"]'))


@item(
    "lm.cell",
    depends=(*BACKWARD, *(f"sequence.backward.d{name}" for name in ("W_xh", "W_hh", "b_h"))),
    draws="lm",
)
def test_gradients_of_the_cell(script, agree, draw):
    """Added to cell.grads, which are not cleared on the way."""
    agree(train(script(), draw), only=('grads["W_xh"]', 'grads["W_hh"]', 'grads["b_h"]'))


@item("lm.embedding", depends=(*BACKWARD, "sequence.backward.dx"), draws="lm")
def test_gradient_of_the_embedding(script, agree, draw):
    """A row for each token: the sum over all the places where it is read."""
    agree(train(script(), draw), only='grads["embedding"]')


@item("lm.single")
def test_nothing_to_predict(script, agree, draw):
    """One token has no next one: 0.0, zeros of every shape, nothing added to the cell's gradients."""
    run = script()
    for N, E, H, V in [(3, 2, 4, 5), (1, 3, 2, 4)]:
        cell = new_cell(run, draw, E, H)
        tokens, mask = batch(draw, N, 1, V)
        run.call("rnn_lm_loss", cell, *model(draw, E, H, V), tokens, mask, draw(N, H))
        run.read(cell.grads)
    agree(run)
