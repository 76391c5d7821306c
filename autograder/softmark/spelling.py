"""Whether one name was meant as another: written in another case, order or with a slip of the keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_LONGEST = 100  # what is longer is nobody's slip, and would take long to compare
_CLOSE = 0.7
_SHORT = 3  # letters: another letter makes another word


def nearest(wanted: str, names: Iterable[str]) -> str | None:
    """The name most like ``wanted`` of those that were perhaps meant as it; None if none was."""
    like = [name for name in names if alike(name, wanted)]
    return max(like, key=lambda name: _ratio(_letters(name), _letters(wanted)), default=None)


def alike(name: str, wanted: str) -> bool:
    """Whether ``name`` was perhaps meant as ``wanted``.

    Word by word: ``lstm_forward`` and ``lstm_backward`` have most letters in common and are two
    things, and so are ``Encoder`` and ``Decoder``, hence a word keeps its first letter.
    """
    if max(len(name), len(wanted)) > _LONGEST:
        return False
    if _letters(name) == _letters(wanted):
        return True
    words, others = ([w.casefold() for w in _WORD.findall(text)] for text in (name, wanted))
    if not words or len(words) != len(others):
        return False
    pairs = zip(words, others, strict=True)
    return sorted(words) == sorted(others) or all(_close(one, other) for one, other in pairs)


def _close(word: str, other: str) -> bool:
    if word == other or min(len(word), len(other)) <= _SHORT:
        return word == other
    return word[0] == other[0] and _ratio(word, other) >= _CLOSE


def _ratio(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


def _letters(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())
