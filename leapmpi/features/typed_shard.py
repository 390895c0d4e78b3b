"""Input rows of this rank's vertices of a typed graph: a table of features per type, and learned rows.

Rows of a type have a width and a dtype of their own. Between ranks they travel as they are stored, features first, in
units of as many bytes as divide the rows of all types: one message for all types.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from leapmpi.dataset.hdf5.names import FEATURE_DTYPES
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.typed_rows import TypedRows
from leapmpi.features.row_memory import RowMemory
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.system.jit import compiled


@compiled
def _scatter(rows, starts, out):
    """Write the bytes of row i to `out` from starts[i] on."""
    for i in range(len(starts)):
        for j in range(rows.shape[1]):
            out[starts[i] + j] = rows[i, j]


@compiled
def _gather(packed, starts, rows):
    """Read the bytes of row i from `packed`, from starts[i] on."""
    for i in range(len(starts)):
        for j in range(rows.shape[1]):
            rows[i, j] = packed[starts[i] + j]


class TypedShard(HostShard):
    """Rows of the parts `parts` of `dataset`, whose typed rows are `rows`, in the order of parts.

    width: columns that the input layer makes of each row. learned_columns: int64[T], those of the learned rows of each
    type, 0 without; `dtype` is theirs. learned: [k, N], these rows, first those of the first such type; None if nothing
    is read. memory: that of learned rows.
    """

    def __init__(
        self,
        dataset: Dataset,
        parts: range,
        rows: Sequence[TypedRows],
        width: int,
        learned_columns: np.ndarray,
        dtype: str,
        learned: np.ndarray | None = None,
        memory: RowMemory | None = None,
    ) -> None:
        assert dataset.types is not None, "the dataset is typed"
        assert dataset.type_offsets is not None, "typed datasets say where types begin"
        self.parts, self.width, self.learned = [], width, learned
        self.addressable, self.dtype = False, np.dtype(dtype)
        self.types = len(dataset.types.vertices)
        self._starts = dataset.type_offsets[:, :-1].reshape(-1)
        """int64[P * T]: the first vertex of each type in each part."""
        offsets = dataset.type_offsets[parts.start : parts.stop]
        self.bounds = np.array([offsets[0, 0], offsets[-1, -1]])

        # By type: the table, and what takes a vertex of one of these parts to its row.
        sizes = np.diff(offsets, axis=1)
        self._first_section = parts.start * self.types
        self._shift = (np.cumsum(sizes, axis=0) - sizes - offsets[:, :-1]).reshape(-1)
        self.tables = [self._table(rows, t) for t in range(self.types)]
        self.columns = max(0, int(learned_columns.max()))
        """Columns of learned rows, 0 without."""
        self.learns = learned_columns > 0
        count = np.where(self.learns, sizes.sum(axis=0), 0)
        self._first_learned = np.cumsum(count) - count

        # The bytes of a row by type, and the columns and bytes of the mean row.
        widths = np.array([each.feature_dim for each in dataset.types.vertices], np.int64)
        sizes_of = [np.dtype(FEATURE_DTYPES[each.feature_dtype or "int8"]).itemsize for each in dataset.types.vertices]
        self.feature_bytes = widths * sizes_of
        self.learned_bytes = np.where(self.learns, self.columns * self.dtype.itemsize, 0).astype(np.int64)
        self.bytes_of_type = self.feature_bytes + self.learned_bytes
        self.unit = math.gcd(*self.bytes_of_type.tolist()) or 1
        vertices = sizes.sum(axis=0)
        self.row_bytes = max(1, round(vertices @ self.bytes_of_type / max(1, vertices.sum())))
        self.mean_columns = float(vertices @ (widths + self.columns * self.learns) / max(1, vertices.sum()))
        learned_total = int(count.sum()) * self.columns * self.dtype.itemsize
        self.nbytes = sum(each.nbytes for each in self.tables if each is not None)
        self.memory = memory or RowMemory()
        self.nbytes += self.memory.held_bytes(4 * learned_total)

    @staticmethod
    def _table(rows: Sequence[TypedRows], t: int) -> HostShard | None:
        """Return the features of type `t` in `rows`, None if it has none."""
        parts = [features for each in rows if (features := each.features[t]) is not None]
        return HostShard(parts, 0, rows[0].scales[t]) if parts else None

    @property
    def in_place(self) -> bool:
        """No: rows of several widths are copied."""
        return False

    def types_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the types int64[k] of any vertices `ids`, int64[k]."""
        return self._sections(ids) % self.types

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """Return the rows of `ids` (int64[k], all local) in the tables of their types: int64[k]."""
        return ids + self._shift[self._sections(ids) - self._first_section]

    def learned_numbers(self, ids: np.ndarray) -> np.ndarray:
        """Return the learned rows of `ids` (int64[k], all local, of types with such): int64[k]."""
        return self.numbers(ids) + self._first_learned[self.types_of(ids)]

    def learned_rows(self, numbers: np.ndarray) -> np.ndarray:
        """Copy the learned rows of these `numbers` (int64[k]): [k, N]."""
        assert self.learned is not None, "rows are read in a job"
        self.memory.announce(self.learned, numbers)
        return self.learned[numbers]

    def first_learned(self, t: int) -> int:
        """Return the number of the first learned row of type `t`."""
        return int(self._first_learned[t])

    def table(self, t: int) -> HostShard:
        """Return the features of type `t`, which has some."""
        table = self.tables[t]
        assert table is not None, "the type has features"
        return table

    def by_type(self, types: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each type among `types` (int64[k]) with the positions int64 of its entries."""
        for t in range(self.types):
            if len(positions := np.flatnonzero(types == t)):
                yield t, positions

    def units(self, ids: np.ndarray) -> np.ndarray:
        """Return how many units the rows of any vertices `ids` (int64[k]) take: int64[k]."""
        return (self.bytes_of_type // self.unit)[self.types_of(ids)]

    def new_rows(self, count: int) -> np.ndarray:
        """Allocate memory of `count` mean rows, as a placeholder."""
        return np.empty((count, self.row_bytes), np.uint8)

    def pack(self, ids: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Write the rows of `ids` (int64[k], all local) one after the other to `out`, uint8[units, unit]."""
        types, numbers, flat = self.types_of(ids), self.numbers(ids), out.reshape(-1)
        starts = first_bytes(self.bytes_of_type[types])
        for t, chosen in self.by_type(types):
            if (table := self.tables[t]) is not None:
                rows = table.rows(numbers[chosen], table.new_rows(len(chosen)))
                # Type by type into places by request, so that the receiver needs no order but its own.
                _scatter(rows.view(np.uint8), starts[chosen], flat)
            if self.learns[t]:
                found = self.learned_rows(numbers[chosen] + self._first_learned[t])
                _scatter(found.view(np.uint8), starts[chosen] + self.feature_bytes[t], flat)
        return out

    def unpacked(self, t: int, packed: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Read rows of type `t` from `packed`, uint8[units, unit], which begin at the bytes `starts` (int64[k]).

        Returns features [k, F_t] in the stored type, and learned rows [k, N]; None where the type has none.
        """
        flat = packed.reshape(-1)
        features = learned = None
        if (table := self.tables[t]) is not None:
            features = table.new_rows(len(starts))
            _gather(flat, starts, features.view(np.uint8))
        if self.learns[t]:
            learned = np.empty((len(starts), self.columns), self.dtype)
            _gather(flat, starts + self.feature_bytes[t], learned.view(np.uint8))
        return features, learned

    def _sections(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of the part and type of vertices: int64[k]."""
        # Of types without vertices in a part, which begin where the next one does, the last is found.
        return np.searchsorted(self._starts, ids, "right") - 1


def replicated_rows(dataset: Dataset, shard: TypedShard) -> np.ndarray:
    """List the vertices of types that partitioning has marked as replicated and whose rows never change: int64[k].

    Rows that are learned stay with their owners, whose Adam moves them.
    """
    assert dataset.types is not None, "the dataset is typed"
    assert dataset.type_offsets is not None, "typed datasets say where types begin"
    fixed = [
        t
        for t, each in enumerate(dataset.types.vertices)
        if each.name in dataset.replicated_types and shard.feature_bytes[t] and not shard.learns[t]
    ]
    ranges = [np.arange(*part[t : t + 2]) for part in dataset.type_offsets for t in fixed]
    return np.concatenate([np.empty(0, np.int64), *ranges])


def first_bytes(sizes: np.ndarray) -> np.ndarray:
    """Return where rows of `sizes` (int64[k]) bytes begin if they follow each other: int64[k]."""
    return np.cumsum(sizes) - sizes
