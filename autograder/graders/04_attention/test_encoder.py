"""The encoder on ragged batches: lengths in any order, and padding behind the longest."""

import numpy as np
import pytest
from softmark.plugin import item

V = 7
# S, E, H and the lengths: unsorted; none as long as S; N = 1; S = 1; E = 1; H = 1.
BATCHES = [
    (5, 3, 4, (2, 5, 1, 4)),
    (6, 2, 3, (3, 4, 4)),
    (4, 3, 2, (3,)),
    (1, 2, 3, (1, 1)),
    (3, 1, 2, (1, 3)),
    (4, 2, 1, (4, 2)),
]


def encode(run, draw):
    """Every batch once."""
    for S, E, H, lengths in BATCHES:
        shapes = {
            "embedding.weight": (V, E),
            "gru.weight_ih_l0": (3 * H, E),
            "gru.weight_hh_l0": (3 * H, H),
            "gru.bias_ih_l0": (3 * H,),
            "gru.bias_hh_l0": (3 * H,),
        }
        params = {name: draw(*shape) for name, shape in shapes.items()}
        src = draw.rng.integers(V, size=(len(lengths), S))
        run.new("Encoder", V, E, H, params=params).forward(src, np.array(lengths))
    return run


@item("encoder.{output}", draws="encoder")
@pytest.mark.parametrize("output", ["outputs", "hidden"])
def test_encoder(script, agree, draw, output):
    """outputs at every token and 0 at padding; hidden after each sequence's own last token."""
    agree(encode(script(), draw), only=output)
