"""The fields of a large plain CSV file, found among its bytes all at once: ten times less work than by line.

Plain is ASCII without quotes, spaces after commas and line ends but newlines, where every line has as many
fields as the header; so are price files as good as always. What is not is None here and read by
``csvfile.py``, and what is answered is the same. Refuses to judge fields and to know what they mean.

    begins, ends    of one column's fields: places in the file, shape (n,) for n lines after the header
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

_Ints: TypeAlias = npt.NDArray[np.int64]
_Words: TypeAlias = npt.NDArray[np.uint64]
_Bytes: TypeAlias = npt.NDArray[np.uint8]

_NOT_PLAIN: Final = (b'"', b"\r", b"\0", b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e")
"""Quotes, and what else ends a line of text."""
_WORD: Final = 8
_PART: Final = 1 << 18
_KEPT_BITS: Final = np.array([(1 << (8 * count)) - 1 for count in range(_WORD + 1)], np.uint64)
"""Of the first bytes of a word, by how many count."""
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_SLOT_BITS: Final = 22
"""Four million slots: a thousand sets of fields seldom share one."""
_TIME: Final = b"0000-00-00T00:00:00Z"
_MOST_DIGITS: Final = 15
"""Of a price: so many are a whole number that a double holds."""
_TENS: Final = np.array([float(10**power) for power in range(_MOST_DIGITS + 1)])


@dataclass(frozen=True, slots=True, eq=False)
class PlainFields:
    """See the module. Made by ``of``."""

    content: bytes
    padded: _Bytes
    """The same, and a word of nothing behind it."""
    lines: _Ints
    """(n + 1,): where each line begins, the header left out, and one place behind the last line's end."""
    commas: _Ints
    """(n, columns - 1)."""

    @classmethod
    def of(cls, content: bytes) -> Self | None:
        """Finds the fields; None where the file is not plain, or has less than two columns or no row."""
        if not content or not content.isascii() or any(byte in content for byte in _NOT_PLAIN):
            return None
        padded = np.frombuffer(content + b"\0" * len(_TIME), np.uint8)
        text = padded[: len(content)]
        lines = _places_of(text, ord("\n")) + 1
        if not content.endswith(b"\n"):
            lines = np.append(lines, len(content) + 1)
        commas = _places_of(text, ord(","))
        rows, columns = len(lines) - 1, int(np.searchsorted(commas, lines[0])) + 1 if len(lines) else 0
        commas = commas[max(columns - 1, 0) :]
        if rows < 1 or columns < 2 or len(commas) != rows * (columns - 1):
            return None
        grid = commas.reshape(rows, columns - 1)
        if (grid[:, 0] < lines[:-1]).any() or (grid[:, -1] >= lines[1:] - 1).any():
            return None  # some line has more fields, and another one less
        if b" " in content:
            spaced = (padded[commas + 1] == ord(" ")).any() or (padded[lines[:-1]] == ord(" ")).any()
            if spaced:
                return None
        return cls(content, padded, lines, grid)

    def __len__(self) -> int:
        return len(self.commas)

    def texts(self, column: int, rows: _Ints | slice = slice(None)) -> list[str]:
        """Returns the fields of ``rows`` as text."""
        begins, ends = self._span(column)
        places = zip(begins[rows].tolist(), ends[rows].tolist(), strict=True)
        return [self.content[begin:end].decode("ascii") for begin, end in places]

    def groups(self, columns: Sequence[int]) -> tuple[_Ints, _Ints]:
        """Returns the first row of each different set of fields in ``columns``, ascending, and each row's
        place among those.
        """
        words = [word for column in columns for word in self._words(*self._span(column))]
        mixed = np.zeros(len(self), np.uint64)
        for word in words:
            mixed = (mixed ^ word) * _SPREAD
            mixed ^= mixed >> np.uint64(29)
        rows, slots = np.arange(len(self)), (mixed >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
        first_at = np.zeros(1 << _SLOT_BITS, np.int64)
        first_at[slots[::-1]] = rows[::-1]  # what is written last stays
        alike = first_at[slots]
        if any(
            (word != word[alike]).any() for word in words
        ):  # two sets in one slot: tell all apart by order
            _, first, group = np.unique(
                np.stack(words, axis=1), axis=0, return_index=True, return_inverse=True
            )
            alike = first[group.reshape(-1)]
        first = np.flatnonzero(alike == rows)
        places = np.zeros(len(self), np.int64)
        places[first] = np.arange(len(first))
        return first, places[alike]

    def times(self, column: int, rows: _Ints) -> _Ints | None:
        """Returns seconds since 1970, of fields that are all written ``2016-06-01T00:00:00Z``; else None."""
        begins, ends = (places[rows] for places in self._span(column))
        if not (ends - begins == len(_TIME)).all():
            return None
        written = self._windows(begins, len(_TIME))
        pattern = np.frombuffer(_TIME, np.uint8)
        digits = pattern == ord("0")
        if ((written[:, digits] - ord("0")) > 9).any() or (written[:, ~digits] != pattern[~digits]).any():
            return None
        try:
            moments = np.ascontiguousarray(written[:, :-1]).view(f"S{len(_TIME) - 1}").astype("datetime64[s]")
        except ValueError:  # at least one is no time
            return None
        return moments.reshape(-1).astype(np.int64)

    def decimals(self, column: int, rows: _Ints) -> npt.NDArray[np.float64] | None:
        """Returns the numbers in fields that are all digits with at most one point among them; else None.

        Correct to the last bit: both a whole number of up to 15 digits and its power of ten are doubles, and
        their quotient is rounded once.
        """
        begins, ends = (places[rows] for places in self._span(column))
        lengths = ends - begins
        if not len(lengths) or lengths.min() < 1 or lengths.max() > _MOST_DIGITS:
            return None
        whole, behind = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
        pointed, digits = np.zeros(len(lengths), np.bool_), np.zeros(len(lengths), np.int64)
        for place in range(int(lengths.max())):
            there = place < lengths
            byte = self.padded[begins + place]
            digit, point = byte - np.uint8(ord("0")), byte == ord(".")
            if (there & ~point & (digit > 9)).any() or (there & point & pointed).any():
                return None
            counts = there & ~point
            whole = np.where(counts, whole * 10 + digit, whole)
            behind += counts & pointed
            digits += counts
            pointed |= there & point
        return None if digits.min() < 1 else whole / _TENS[behind]

    def _span(self, column: int) -> tuple[_Ints, _Ints]:
        begins = self.lines[:-1] if column == 0 else self.commas[:, column - 1] + 1
        ends = self.lines[1:] - 1 if column == self.commas.shape[1] else self.commas[:, column]
        return begins, ends

    def _words(self, begins: _Ints, ends: _Ints) -> Iterator[_Words]:
        """The fields, eight bytes each, and how long they are: two are the same if all these are."""
        lengths = ends - begins
        yield lengths.astype(np.uint64)
        for place in range(0, int(lengths.max(initial=0)), _WORD):
            inside = np.minimum(begins + place, len(self.padded) - _WORD)
            word = self._windows(inside, _WORD).view("<u8").reshape(-1)
            yield word & _KEPT_BITS[np.clip(lengths - place, 0, _WORD)]

    def _windows(self, begins: _Ints, width: int) -> _Bytes:
        """(n, width): the bytes from each of ``begins`` on."""
        every = np.lib.stride_tricks.sliding_window_view(self.padded, width)
        found: _Bytes = every[begins]
        return found


def _places_of(text: _Bytes, byte: int) -> _Ints:
    """Where ``byte`` is, a part of the text at a time: what fits a processor's cache is found much faster."""
    parts = range(0, len(text), _PART)
    return np.concatenate([np.flatnonzero(text[begin : begin + _PART] == byte) + begin for begin in parts])


@dataclass(frozen=True, slots=True, eq=False)
class PlainColumns(Mapping[str, Sequence[str]]):
    """Columns as text, made when they are asked for."""

    header: tuple[str, ...]
    fields: PlainFields

    def __getitem__(self, name: str) -> Sequence[str]:
        if name not in self.header:
            raise KeyError(name)
        return self.fields.texts(self.header.index(name))

    def __contains__(self, name: object) -> bool:
        return name in self.header

    def __iter__(self) -> Iterator[str]:
        return iter(self.header)

    def __len__(self) -> int:
        return len(self.header)


@dataclass(frozen=True, slots=True, eq=False)
class PlainLines(Sequence[str]):
    """The lines of the file, the header among them, made when they are asked for."""

    fields: PlainFields

    def __len__(self) -> int:
        return len(self.fields.lines)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        place %= len(self)
        begin = 0 if place == 0 else int(self.fields.lines[place - 1])
        return self.fields.content[begin : int(self.fields.lines[place]) - 1].decode("ascii")
