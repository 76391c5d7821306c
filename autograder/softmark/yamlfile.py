"""A YAML file as a validated object, where every error names the file, the line and the key.

``read`` gives the content with the line of every key, ``Yaml.fit`` turns it into a pydantic model.
Stricter than YAML: a key given twice, a key that is not text or a whole number, and a key that
the model does not know are errors. Sequences are read as tuples.
"""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

Key = tuple[str | int, ...]
Problem = tuple[Key, str]
_Found = tuple[int, Key, str]


class CourseError(Exception):
    """What is wrong with a file of the course: one line for each problem, the first line first."""


class Strict(BaseModel):
    """A model of a part of a YAML file: no unknown keys, no conversions, no changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]

Model = TypeVar("Model", bound=BaseModel)
_K = TypeVar("_K")
_V = TypeVar("_V")


class Frozen(Mapping[_K, _V]):
    """A dict that cannot be changed and, unlike MappingProxyType, can be pickled."""

    def __init__(self, items: Mapping[_K, _V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: _K) -> _V:
        return self._items[key]

    def __iter__(self) -> Iterator[_K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True)
class Yaml:
    """The content of a file; ``lines`` has the line (from 1) of every key and list entry in it."""

    shown: str
    content: Mapping[str | int, Any]
    lines: Mapping[Key, int]

    def line(self, key: Key) -> int:
        """The line of ``key``, or of the nearest key around it that the file has."""
        return next(self.lines[key[:n]] for n in range(len(key), -1, -1) if key[:n] in self.lines)

    def error(self, problems: Iterable[Problem]) -> CourseError:
        """The problems as one error, in the order of the file."""
        return _error(self.shown, [(self.line(key), key, text) for key, text in problems])

    def fit(self, model: type[Model]) -> Model:
        """The content as ``model``. Raises CourseError with every problem found."""
        try:
            return model.model_validate(self.content)
        except ValidationError as error:
            raise self.error(_explain(model, one) for one in _causes(error.errors())) from None


def read(path: Path, shown: str, purpose: str) -> Yaml:
    """Read a mapping from a YAML file.

    ``shown`` is the path as errors give it, ``purpose`` what the file should hold. Raises
    CourseError if it is missing, not UTF-8, not YAML, empty, no mapping, or has a key twice.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CourseError(f"{shown}: no such file; it should hold {purpose}") from None
    except OSError as error:
        text = f"cannot be read ({error.strerror}); it should hold {purpose}"
        raise CourseError(f"{shown}: {text}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise CourseError(f"{shown}:{line}: {what}") from None

    lines: dict[Key, int] = {}
    found: list[_Found] = []
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise CourseError(f"{shown}:1: the file is empty; it should hold {purpose}")
        lines[()] = node.start_mark.line + 1
        content = _value(loader, node, (), lines, found)
    except yaml.MarkedYAMLError as error:
        raise _syntax(shown, error) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"character U+{error.character:04X} is not allowed in YAML; delete it"
        raise CourseError(f"{shown}:{line}: {what}") from None
    except RecursionError:
        raise CourseError(f"{shown}:1: nested too deeply, or an alias contains itself") from None
    if not isinstance(node, yaml.MappingNode):
        what = f"must hold a mapping (lines of key: value), not {_named(content)}"
        found.append((lines[()], (), what))
    if found:
        raise _error(shown, found)
    return Yaml(shown, content, lines)


def invalid(problems: Iterable[Problem]) -> ValidationError:
    """For validators that find several problems, or one deep inside, each with its own place."""
    return ValidationError.from_exception_data(
        "course file",
        [
            {
                "type": PydanticCustomError("said", "{text}", {"text": text}),
                "loc": key,
                "input": None,
            }
            for key, text in problems
        ],
    )


def choices(value: object, allowed: Iterable[str]) -> str:
    """As in: must be 'core', 'extension' or 'bonus', not 'boni'; did you mean 'bonus'?"""
    names = list(allowed)
    *most, last = [f"'{name}'" for name in names]
    listed = f"{', '.join(most)} or {last}" if most else last
    got = f"'{value}'" if isinstance(value, str) else _named(value)
    return f"must be {listed}, not {got}{suggestion(value, names)}"


def suggestion(value: object, allowed: Iterable[str]) -> str:
    """As in: ; did you mean 'points'? Nothing where no name is near."""
    near = difflib.get_close_matches(str(value), list(allowed), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def is_identifier(text: str) -> bool:
    """Whether Python takes it as a name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def made_of(text: str, others: str) -> bool:
    """Letters, digits and ``others``, the first one a letter or digit."""
    return text[:1].isalnum() and all(c.isalnum() or c in others for c in text)


def _value(
    loader: yaml.SafeLoader,
    node: yaml.Node,
    key: Key,
    lines: dict[Key, int],
    found: list[_Found],
) -> Any:
    """The value of a node; notes the line of everything in it, and keys that are given twice."""
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        for index, child in enumerate(node.value):
            lines[(*key, index)] = child.start_mark.line + 1
        return tuple(
            _value(loader, child, (*key, index), lines, found)
            for index, child in enumerate(node.value)
        )
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        mapping: dict[str | int, Any] = {}
        for name_node, child in node.value:
            line = name_node.start_mark.line + 1
            name = _scalar(loader, name_node, "keys must be text, without brackets or tags")
            inner = (*key, name)
            if isinstance(name, bool) or not isinstance(name, str | int):
                raw = name_node.value
                text = f"as a key, {raw} is {_named(name)} in YAML, not text; write '{raw}'"
                found.append((line, (*key, raw), text))
            elif name in mapping:
                found.append((line, inner, f"given twice, first in line {lines[inner]}; keep one"))
            else:
                lines[inner] = line
                mapping[name] = _value(loader, child, inner, lines, found)
        return mapping
    return _scalar(loader, node, "only plain mappings, lists and values are allowed")


def _scalar(loader: yaml.SafeLoader, node: yaml.Node, allowed: str) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        raise yaml.MarkedYAMLError(problem=allowed, problem_mark=node.start_mark)
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:  # such as a 13th month
        problem = f"{node.value} is no value that exists ({error}); put text in quotes"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


def _error(shown: str, found: Iterable[_Found]) -> CourseError:
    """One line for each problem, in the order of the file."""
    return CourseError(
        "\n".join(
            f"{shown}:{line}: {' '.join((_dotted(key) + text).split())}"
            for line, key, text in sorted(found, key=lambda problem: problem[0])
        )
    )


def _dotted(key: Key) -> str:
    """As in "topics[0].id: ", from ("topics", 0, "id")."""
    dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return f"{dotted.removeprefix('.')}: " if dotted else ""


def _syntax(shown: str, error: yaml.MarkedYAMLError) -> CourseError:
    problem = error.problem or error.context or "unreadable"
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    if "'\\t'" in problem:
        problem = "a tab cannot indent; use spaces"
    elif error.context and error.context_mark:
        problem += f" ({error.context} that begins in line {error.context_mark.line + 1})"
    return CourseError(f"{shown}:{line}: not valid YAML: {problem}")


_WANTED = {
    "string_type": "text",
    "float_type": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "date_type": "a date such as 2026-09-30, without quotes or a time of day",
    "tuple_type": "a list, as in [a, b]",
    "dict_type": "a mapping (lines of key: value)",
    "model_type": "a mapping (lines of key: value)",
    "invalid_key": "text",
}


def _causes(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without the keys that are only missing because they are there misspelt, and the lists that are
    only too short because their entries are wrong."""
    unknown = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
    places = [error["loc"] for error in errors]

    def follows(error: ErrorDetails) -> bool:
        place = error["loc"]
        if error["type"] == "missing":
            return any(
                loc[:-1] == place[:-1] and suggestion(loc[-1], [str(place[-1])]) for loc in unknown
            )
        inside = [loc for loc in places if len(loc) > len(place) and loc[: len(place)] == place]
        return error["type"] == "too_short" and bool(inside)

    return [error for error in errors if not follows(error)]


def _explain(model: type[BaseModel], error: ErrorDetails) -> Problem:
    """One of pydantic's errors in our words: what is wrong, what is allowed."""
    key = tuple(part for part in error["loc"] if part != "[key]")
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    place = _model_at(model, key)
    if kind == "extra_forbidden":
        known = list(place.model_fields)
        return key, f"unknown key (allowed: {', '.join(known)}){suggestion(key[-1], known)}"
    if kind == "missing":
        return key, f"missing; give {place.model_fields[str(key[-1])].description}"
    if kind == "literal_error":
        return key, choices(value, get_args(place.model_fields[str(key[-1])].annotation))
    if kind == "greater_than":
        return key, f"must be positive, not {value}"
    if kind in ("greater_than_equal", "less_than_equal"):
        limit, side = (context["ge"], "least") if "ge" in context else (context["le"], "most")
        return key, f"must be at {side} {limit:g}, not {value}"
    if kind == "too_short":
        return key, "is empty; at least one entry belongs here"
    if kind in _WANTED:
        advice = ""
        if kind == "string_type" and isinstance(value, bool | int | float | date):
            advice = "; put it in quotes"
        elif kind in ("float_type", "int_type") and isinstance(value, str):
            advice = "; write the bare number, without quotes or unit"
        return key, f"must be {_WANTED[kind]}, not {_named(value)}{advice}"
    return key, error["msg"].removeprefix("Value error, ")


def _model_at(model: type[BaseModel], key: Key) -> type[BaseModel]:
    """The model that the last part of ``key`` is, or should have been, a field of."""
    for part in key[:-1]:
        field = model.model_fields.get(str(part))
        model = next(_models_in(field.annotation), model) if field else model
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _named(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text '{value if len(value) <= 40 else value[:37] + '...'}'"
    if isinstance(value, date):
        return f"the date {value}"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, tuple) else str(value)
