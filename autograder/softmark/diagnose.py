"""Which known mistake a failing submission has made: the one that gives the same wrong outputs.

Nothing is guessed. A mistake is named where, run on the very Scripts that the failing test asked, it
answers what the submission answers, and where no other mistake with another hint does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from softmark.bench import Bench
from softmark.implementation import Question
from softmark.mistakes import Mistake, load_mistakes
from softmark.script import Trace
from softmark.verdict import same_outputs

Asked: TypeAlias = tuple[Question, tuple[str, ...]]
"""A question, and which of its outputs were compared; none named: all."""


class Diagnosis:
    """The known mistakes of a topic, and what they answer. Each is run when it is first needed."""

    def __init__(self, bench: Bench) -> None:
        """Raises CourseError for a mistakes.yaml that is wrong."""
        self._bench = bench
        self._mistakes = load_mistakes(bench.course, bench.topic, bench.reference_files)
        self._traces: dict[str, dict[bytes, Trace]] = {}
        self._usual: list[Question] = []

    def learn(self, questions: Sequence[Question]) -> None:
        """Take these for what is asked of every submission."""
        self._usual += questions

    def known(self, item: str, asked: Sequence[Asked], lost: Collection[str]) -> Mistake | None:
        """The mistake that loses ``item`` and answers ``asked`` as the submission of the moment does.

        Not one that loses an item which is not among those ``lost``.
        """
        if any(self._unwritten(question) for question, _ in asked):
            return None
        files = {self._file(question) for question, _ in asked}
        alike = [
            mistake
            for mistake in self._mistakes
            if item in mistake.loses
            and mistake.loses <= frozenset(lost)
            and mistake.file in files
            and self._alike(mistake, asked)
        ]
        if len({mistake.hint for mistake in alike}) > 1:
            # the outputs that were compared do not tell them apart; perhaps the others do
            whole: list[Asked] = [(question, ()) for question, _ in asked]
            alike = [mistake for mistake in alike if self._alike(mistake, whole)]
        return alike[0] if len({mistake.hint for mistake in alike}) == 1 else None

    def _file(self, question: Question) -> str:
        topic = self._bench.topic
        return topic.twin.file if question.twin and topic.twin else topic.files[0]

    def _alike(self, mistake: Mistake, asked: Sequence[Asked]) -> bool:
        return all(self._same(mistake, question, only) for question, only in asked)

    def _same(self, mistake: Mistake, question: Question, only: tuple[str, ...]) -> bool:
        theirs = self._bench.answered(question)
        if theirs is None:
            return False
        right = self._bench.reference(question)
        # of what differs from the right answer by rounding or by a warning, all the rest must be equal
        exact = same_outputs(question.script, right, theirs, only, values_only=True)
        return same_outputs(
            question.script, self._trace(mistake, question), theirs, only, exact=exact
        )

    def _unwritten(self, question: Question) -> bool:
        """Whether the submission did not come far enough to make a mistake."""
        theirs = self._bench.answered(question)
        raised = theirs.raised if theirs else None
        return raised is not None and raised.type in ("NotImplementedError", "NotDefined")

    def _trace(self, mistake: Mistake, question: Question) -> Trace:
        traces = self._traces.setdefault(mistake.id, {})
        if question.digest not in traces:
            made = self._bench.implementation(mistake.files, question.twin)
            # the submission itself, where it is the graders that are graded
            itself = made.files == self._bench.submitted(question).files
            # Most mistakes are ruled out by one Script. One that is not is run on all that will be asked
            # sooner or later, so that one worker does for the rest of a batch.
            more = self._usual if traces or itself else ()
            try:
                for one in (question, *more):
                    if one.twin == question.twin and one.digest not in traces:
                        told = self._bench.answered(one) if itself else None
                        traces[one.digest] = told or made.trace(one, self._bench.patience(one))
            finally:
                made.close()
        return traces[question.digest]
