"""What students are told of slips that many make, which cost what they are about and no more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from softmark.batch import Run, grade_submissions
from softmark.bench import reference_files
from softmark.course import load_course
from softmark.intake import Submission
from softmark.questions import ANSWERS_FILE
from softmark.result import Result

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hidden grading needs Linux")
pytest.importorskip("torch", reason="PyTorch is not installed here")

COURSE = load_course(Path(__file__).resolve().parents[1])
# By topic: what is done to the reference, each item that it loses, and words of what is said of it.
SLIPS = {
    "05_multihead": {
        "the mask of the first sample": (
            ("mask)  # (N, h, Tq, d)", "mask if mask is None or mask.dim() < 4 else mask[:1])"),
            {
                "mha.mask": "of shape (N, 1, 1, Tk) = (3, 1, 1, 5) for the batch",
                "mha.empty": "stands on mha.mask",
                "mha.ragged": "stands on mha.mask",
                "cache.steps": "In step 2 of 3, 1 new token behind 2 in the cache, out is",
                "cache.flops": "counts once cache.steps is right",
            },
        ),
        "keys of the new latents only": (
            ("self.k_up(latents)", "self.k_up(torch.cat([latents[:, : -x.shape[1]] * 0, new], 1))"),
            {
                "latent.out": "",
                "latent.steps": "In step 2 of 3, of 1 behind 2 earlier tokens, out is not",
            },
        ),
        "softmax, then the mask": (
            (
                "scores = scores.masked_fill(~mask & some, -torch.inf)",
                "return (torch.softmax(scores, -1) * mask) @ v, torch.softmax(scores, -1) * mask",
            ),
            {
                "sdpa.rows": "do not sum to 1 over the keys, with a mask",
                "sdpa.mask": "stands on sdpa.rows",
                "mha.ragged": "Right given your own",
                "mha.causal": "Right given your own",
                "latent.out": "Right given your own",
            },
        ),
    },
    "06_positions": {
        "frequencies as most write them": (
            (
                "frequencies = _frequencies(head_dim, base, positions.device)",
                "frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2).to(positions.device)"
                ".float() / head_dim).double()",
            ),
            {"angles.precision": "that an angle loses in float32"},
        ),
        "angles in float32": (
            ("positions.double(), frequencies)", "positions.float(), frequencies.float())"),
            {"angles.precision": "that an angle loses in float32"},
        ),
        "bfloat16 alone": (
            (
                "angles = torch.outer(positions.double(), frequencies)",
                "wide = dtype if dtype == torch.bfloat16 else torch.float64\n"
                "    angles = torch.outer(positions.to(wide), frequencies.to(wide))",
            ),
            {"angles.precision": "bfloat16 has but three"},
        ),
    },
    "07_transformer": {
        "positions from 0 behind a cache": (
            (
                "_position_vectors(self.positions, start, start + T)",
                "_position_vectors(self.positions, 0, T)",
            ),
            {
                "lm.cache": "with 2 tokens in the caches, token 2 should have the same logits",
                "generate.greedy": "stands on lm.cache",
                "robust.errors": "7 tokens, 4 of them in the caches, are one too many",
            },
        ),
        "no context": (
            ("logits = model(new, caches)[:, -1]", "logits = model(new)[:, -1]"),
            {"generate.greedy": "not the arg-max", "generate.cost": "With fewer something is left"},
        ),
        "one less than max_len": (
            ("if end > positions.num_embeddings:", "if end >= positions.num_embeddings:"),
            {
                "robust.errors": "6 tokens are legal where max_len is 6",
                "extension.robust": "6 tokens are legal where max_len is 6",
            },
        ),
        "generate ends in an error": (
            (
                "tokens = torch.cat([tokens, new], dim=1)",
                "tokens = torch.cat([tokens, new[0]], dim=1)",
            ),
            {
                f"generate.{what}": "generate raised RuntimeError"
                for what in ("greedy", "temperature", "top_k", "top_p", "generator", "mode", "cost")
            }
            | {"robust.errors": "generate raised RuntimeError"},
        ),
    },
}


# A quarter of a minute each: one always, the others with all tests.
TOPICS = [id if id == "05_multihead" else pytest.param(id, marks=pytest.mark.slow) for id in SLIPS]


@pytest.fixture(scope="module", params=TOPICS)
def graded(request: pytest.FixtureRequest) -> tuple[str, dict[str, Result]]:
    topic = COURSE.topic(request.param)
    files = reference_files(COURSE, topic)
    answers = COURSE.solution(topic.id) / ANSWERS_FILE
    files = {**files, ANSWERS_FILE: answers.read_text(encoding="utf-8")}
    submissions = []
    for name, ((old, new), _) in SLIPS[topic.id].items():
        source = files[topic.files[0]]
        assert source.count(old) == 1, old
        made = {**files, topic.files[0]: source.replace(old, new)}
        submissions.append(Submission(name, made, "ready", "", (), ""))
    results = grade_submissions(Run(COURSE, topic, 11), submissions, 1)
    return topic.id, {result.student: result for result in results}


def test_what_is_lost_and_what_is_said(graded: tuple[str, dict[str, Result]]) -> None:
    topic, results = graded
    for name, (_, due) in SLIPS[topic].items():
        lost = {
            item.id: item.message
            for item in results[name].items
            if item.status not in ("passed", "not_graded")
        }
        assert lost.keys() == due.keys(), name
        for id, words in due.items():
            assert words in lost[id], f"{name}: {id}: {lost[id]}"
