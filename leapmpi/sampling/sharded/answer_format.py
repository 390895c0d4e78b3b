"""Format of an owner's reply: columns of whole words, one after the other.

A reply holds three groups of columns. For each requested vertex: its number of drawn edges. For each newly requested
vertex: original id, in-degree and, with edge weights, their sum. For each drawn edge: its source and its data. Ids,
degrees and counts take one word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NARROW = 1 << 32
"""Numbers below this take one word of four bytes."""


@dataclass(frozen=True)
class Column:
    """Values of one kind: `dtype` in memory; `double` if a value takes eight bytes on the wire."""

    dtype: type
    double: bool = False

    def words(self, word: np.dtype) -> int:
        """Return the words of a value."""
        return 8 // word.itemsize if self.double else 1

    def pack(self, values: np.ndarray, words: np.ndarray) -> None:
        """Write `values` [k] into `words`, int32 or int64 [k * words of a value]."""
        if self.double:
            words[:] = np.ascontiguousarray(values, self.dtype).view(words.dtype)
        elif self.dtype is np.float32:
            words[:] = np.ascontiguousarray(values, np.float32).view(np.int32)
        elif words.dtype == np.int32:
            words.view(np.uint32)[:] = values
        else:
            words[:] = values

    def unpack(self, words: np.ndarray) -> np.ndarray:
        """Return the values that `pack` has written into `words`, in the column's dtype."""
        if self.double:
            return np.frombuffer(words.tobytes(), self.dtype)
        if self.dtype is np.float32:
            return words.astype(np.int32, copy=False).view(np.float32)
        return (words.view(np.uint32) if words.dtype == np.int32 else words).astype(np.int64)


NUMBER, WEIGHT, WEIGHT_SUM = Column(np.int64), Column(np.float32), Column(np.float64, double=True)


def row_words(columns: Sequence[Column], word: np.dtype) -> int:
    """Return the words of one value of each of `columns`."""
    return sum(column.words(word) for column in columns)


def pack(columns: Sequence[Column], values: Sequence[np.ndarray], rows: slice, words: np.ndarray, start: int) -> int:
    """Write rows `rows` of the arrays `values`, one for each of `columns`, to `words`; return the end position."""
    for column, array in zip(columns, values, strict=True):
        end = start + (rows.stop - rows.start) * column.words(words.dtype)
        column.pack(array[rows], words[start:end])
        start = end
    return start


def unpack(columns: Sequence[Column], count: int, words: np.ndarray, start: int) -> tuple[list[np.ndarray], int]:
    """Read arrays of `count` rows each from `words`, from `start` on; return them and the end position."""
    found = []
    for column in columns:
        end = start + count * column.words(words.dtype)
        found.append(column.unpack(words[start:end]))
        start = end
    return found, start


@dataclass(frozen=True)
class AnswerFormat:
    """Words and columns of replies; the same on all ranks."""

    word: np.dtype
    """int32, or int64 if a number could be 2**32 or more."""
    edges: int
    """Number of edges of the graph."""
    weighted: bool = False
    """Whether the sampler weights edges."""
    numbers: bool = False
    """Whether replies include edge numbers of the dataset."""
    weights: bool = False
    """Whether replies include edge weights of the dataset."""
    last: bool = True
    """Whether the last hop's sources, which draw nothing, are described."""
    relations: bool = False
    """Whether edges have relations."""

    @property
    def of_vertices(self) -> tuple[Column, ...]:
        """Columns by newly requested vertex: original id, in-degree, sum of weights."""
        return NUMBER, NUMBER, *((WEIGHT_SUM,) if self.weights else ())

    @property
    def of_edges(self) -> tuple[Column, ...]:
        """Columns by drawn edge: source; the sampler's weight; relation; number and weight in the dataset."""
        number = Column(np.int64, double=self.edges > _NARROW)
        known = *((number,) if self.numbers else ()), *((WEIGHT,) if self.weights else ())
        return NUMBER, *((WEIGHT,) if self.weighted else ()), *((NUMBER,) if self.relations else ()), *known

    def answer_words(self, named: np.ndarray, new: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """Return the words of a reply about `named` vertices, `new` of them new, that drew `edges`; any shape."""
        return named + self.about_words(new) + edges * row_words(self.of_edges, self.word)

    def about_words(self, new: np.ndarray) -> np.ndarray:
        """Return the words about `new` vertices (integers of any shape) that draw nothing."""
        return new * row_words(self.of_vertices, self.word)

    def edges_of(self, words: int, named: int, new: int) -> int:
        """Return the number of edges in a reply of `words` words."""
        about = named + new * row_words(self.of_vertices, self.word)
        return (words - about) // row_words(self.of_edges, self.word)


def answer_format(
    largest: int,
    edges: int,
    weighted: bool = False,
    numbers: bool = False,
    weights: bool = False,
    last: bool = True,
    relations: bool = False,
) -> AnswerFormat:
    """Return the format for ids, original ids and degrees up to `largest`; weighted edges are numbered too."""
    word = np.dtype(np.int32 if largest < _NARROW else np.int64)
    return AnswerFormat(word, edges, weighted, numbers or weights, weights, last, relations)
