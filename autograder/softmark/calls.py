"""The grammar of ``calls`` in assignment.yaml: what every function, method and attribute returns.

An output is text such as "array (N, H)" or "private", or a mapping: kind, axes, blocks, entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, ValidationInfo, field_validator, model_validator

from softmark.script import Calls, Kind, Output
from softmark.yamlfile import (
    Frozen,
    Problem,
    Strict,
    Text,
    choices,
    invalid,
    is_identifier,
    made_of,
    suggestion,
)

_KINDS: tuple[Kind, ...] = get_args(Kind)


def _axis(text: str) -> str:
    if not made_of(text, "_ +-*/"):
        raise ValueError(f"must be an axis such as N, 4 H or D + H, not '{text}'")
    return text


Axis = Annotated[str, AfterValidator(_axis)]


class _Output(Strict):
    """An output as assignment.yaml writes it: a mapping, or text such as "array (N, H)"."""

    kind: Kind = "array"
    axes: tuple[Axis, ...] = ()
    blocks: Mapping[int, tuple[Text, ...]] = {}
    entries: Mapping[Text, _Output] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind, parenthesis, axes = (part.strip() for part in value.partition("("))
        if kind not in _KINDS:
            raise ValueError(f"the kind {choices(kind, _KINDS)}")
        if not parenthesis:
            return {"kind": kind}
        if not axes.endswith(")"):
            raise ValueError(f"must be written as in 'array (N, H)', not '{value}'")
        names = axes.removesuffix(")").removesuffix(",").split(",")
        return {"kind": kind, "axes": tuple(name.strip() for name in names)}

    @field_validator("axes")
    @classmethod
    def _axes_of_an_array(cls, axes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if axes and info.data.get("kind", "array") != "array":
            raise ValueError(f"only an array has axes, and this is of kind {info.data['kind']}")
        return axes

    @field_validator("blocks")
    @classmethod
    def _blocks_along_axes(
        cls, blocks: Mapping[int, tuple[str, ...]], info: ValidationInfo
    ) -> Mapping[int, tuple[str, ...]]:
        if "axes" not in info.data:  # already refused
            return blocks
        axes = info.data["axes"]
        known = ", ".join(f"{number} ({name})" for number, name in enumerate(axes))
        problems: list[Problem] = []
        for axis, names in blocks.items():
            if not 0 <= axis < len(axes):
                allowed = f"the axes are {known}" if axes else "no axes are given; add 'axes'"
                problems.append(((axis,), f"is not an axis: {allowed}"))
            elif len(set(names)) < max(2, len(names)):
                problems.append(((axis,), "must have two or more names, all different"))
        if problems:
            raise invalid(problems)
        return blocks

    @field_validator("entries")
    @classmethod
    def _entries_of_a_dict(
        cls, entries: Mapping[str, _Output], info: ValidationInfo
    ) -> Mapping[str, _Output]:
        kind = info.data.get("kind", "dict")
        if entries and kind != "dict":
            raise ValueError(
                f"only a dict has entries, and this is of kind {kind}; write 'kind: dict'"
            )
        problems: list[Problem] = [
            ((name,), f"entries of a dict are arrays, and this is of kind {entry.kind}")
            for name, entry in entries.items()
            if entry.kind != "array"
        ]
        if problems:
            raise invalid(problems)
        return entries

    def named(self, name: str) -> Output:
        """The output as Scripts and comparisons use it."""
        entries = {key: entry.named(key) for key, entry in self.entries.items()}
        return Output(name, self.kind, self.axes, Frozen(self.blocks), Frozen(entries))


def _names_fit(calls: Mapping[str, Mapping[str, _Output]]) -> Mapping[str, Mapping[str, _Output]]:
    problems: list[Problem] = []
    for name in calls:
        owner, dot, _ = name.partition(".")
        if name.count(".") > 1 or not all(is_identifier(part) for part in name.split(".")):
            problems.append(((name,), "must be a function, Class or Class.member"))
        elif dot and owner not in calls:
            advice = suggestion(owner, calls) or f"; add '{owner}: {{}}'"
            problems.append(((name,), f"the class {owner} is not listed{advice}"))
    if problems:
        raise invalid(problems)
    return calls


CallsText = Annotated[Mapping[str, Mapping[Text, _Output]], AfterValidator(_names_fit)]
"""``calls`` as the file has it, checked."""


def as_calls(text: Mapping[str, Mapping[str, _Output]]) -> Calls:
    """The outputs of every call, in the order of the file."""
    return Frozen(
        {
            name: tuple(output.named(key) for key, output in outputs.items())
            for name, outputs in text.items()
        }
    )
