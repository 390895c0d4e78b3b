"""Graph as a source returns it, before any cleaning.

`RawGraph` is the contract between `data_prep.sources` and `data_prep.assembly`; `ReadOptions` are the flags that a
source may accept; `SparseRows` holds sparse features without scipy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from data_prep.edges.edge_records import EdgeArrays, narrowed
from data_prep.edges.edge_stream import CountVertices, Edges, EdgeStream
from data_prep.workspace import Workspace
from leapmpi.errors import DataError, counted
from leapmpi.registry import Member

SPLIT_NAMES = ("train", "val", "test")
_DENSE_ROWS_AT_ONCE = 8192
_ENTRIES_AT_ONCE = 1 << 20

_SPARSEST = 1000
"""With this many times more vertices than edges, ids are names, or a stated size is damaged."""


@dataclass(frozen=True)
class ReadOptions:
    """Flags of `leapmpi-prep import` that a source may accept; each source lists the ones it does in its `OPTIONS`."""

    split_index: int | None = None
    features: Path | None = None
    labels: Path | None = None
    vertices: int | None = None
    label_column: str | None = None
    missing_features: str | None = None
    feature_dim: int | None = None
    task: str | None = None
    """Kind of labels, one of names.LABEL_KINDS: class names or numbers. None: as their texts look."""
    edge_columns: str | None = None
    """Roles of the columns of edges after their ends, such as "weight,time" or "rating=weight"."""
    edge_labels: str | None = None
    """The column or array of the labels of edges."""
    vertex_table: Path | None = None
    """The table of vertices, of a source that is a table of edges."""
    vertex_times: str | None = None
    """The column or array of the times of vertices."""
    duplicate_rows: str | None = None
    """Choice among two rows of one vertex, "first" or "last"; where they differ, None is a DataError."""
    schema: Path | None = None
    """The schema of tables, in TOML."""
    encoders: Path | None = None
    """The graph file or dataset whose encoders encode the columns of tables."""
    refuse: str | None = None
    """Faults of the rows of tables that are errors, with commas between them."""
    code: list[str] | None = None
    """Functions of users that may encode columns of tables."""
    workspace: Workspace | None = None
    """Place for what a source unpacks; without one it holds all in memory."""

    def of_source(self, held: Iterable[str], path: Path) -> tuple[ReadOptions, str | None, str | None]:
        """Read the features and labels that flags name among the arrays `held` by `path`; None: by no flag.

        Also these options without them; a file of that name wins. Raises DataError for what is neither.
        """
        held = sorted(held)
        chosen: dict[str, str | None] = {"features": None, "labels": None}
        for flag in chosen:
            value: Path | None = getattr(self, flag)
            if value is None or value.exists():
                continue
            if str(value) not in held:
                raise DataError(
                    f"--{flag} {value} does not exist, neither as a file nor in {path}, which holds {', '.join(held)}"
                )
            chosen[flag] = str(value)
        without = {flag: None for flag, name in chosen.items() if name}
        return replace(self, **without), chosen["features"], chosen["labels"]


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix in compressed rows; entries that occur twice are added up.

    indptr int64[rows + 1], indices int64[k] (columns), data [k], shape (rows, columns).
    """

    shape: tuple[int, int]
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    @classmethod
    def from_triplets(cls, row: np.ndarray, column: np.ndarray, data: np.ndarray, shape: tuple[int, int]) -> SparseRows:
        """Compress entries given in any order; `row` must be in 0 ... shape[0] - 1."""
        order = np.argsort(row, kind="stable")
        indptr = np.zeros(shape[0] + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=shape[0]), out=indptr[1:])
        return cls(shape, indptr, column[order], data[order])

    @classmethod
    def from_parts(cls, kind: str, parts: dict, name: str) -> SparseRows:
        """Build SparseRows from the arrays of a scipy matrix of `kind` csr, csc or coo (keys as scipy's attributes).

        Raises DataError when one is missing or they contradict each other.
        """
        # The arrays that a matrix of this kind has.
        needed = ("shape", "data", "row", "col") if kind == "coo" else ("shape", "data", "indices", "indptr")
        if missing := [key for key in needed if key not in parts]:
            raise DataError(f"{name}: its sparse matrix lacks {missing[0]!r}")
        rows, columns = _lengths(parts["shape"], name)
        for key in needed[1:]:
            if not isinstance(parts[key], np.ndarray) or parts[key].ndim != 1:
                raise DataError(f"{name}: {key!r} of its sparse matrix is not a list of numbers")
        first, second = (whole_numbers(parts[key], f"{name}: {key}").astype(np.int64, copy=False) for key in needed[2:])
        data = parts["data"]
        if data.dtype.kind not in "biufc":
            raise DataError(f"{name}: the values of its sparse matrix must be numbers, but their type is {data.dtype}")

        # Rows as they are; columns and triplets are compressed by rows.
        if kind == "csr":
            return cls((rows, columns), second, first, data).check(name)
        if kind == "csc":
            transposed = cls((columns, rows), second, first, data).check(f"{name} (by columns)")
            return cls.from_triplets(first, transposed.row, data, (rows, columns))
        inside = not len(first) or 0 <= first.min() <= first.max() < rows
        if first.shape != second.shape or len(first) != len(data) or not inside:
            raise DataError(f"{name}: the rows, columns and values of its sparse matrix do not fit together")
        return cls.from_triplets(first, second, data, (rows, columns)).check(name)

    def check(self, name: str) -> SparseRows:
        """Return self. Raises DataError, naming the matrix `name`, when the arrays contradict each other."""
        check_compressed(self.indptr, len(self.indices), self.shape[0], name)
        if len(self.data) != len(self.indices):
            raise DataError(f"{name}: {len(self.indices):,} column indices but {counted(len(self.data), 'value')}")
        bad = (self.indices < 0) | (self.indices >= self.shape[1])
        if bad.any():
            entry = int(np.argmax(bad))
            row = int(np.searchsorted(self.indptr, entry, "right")) - 1
            raise DataError(f"{name}: row {row} names column {self.indices[entry]}, outside 0 ... {self.shape[1] - 1}")
        return self

    @property
    def row(self) -> np.ndarray:
        """int64[k]: the row of each entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def taken(self, rows: slice | np.ndarray) -> SparseRows:
        """Select the rows `rows` of this matrix, a slice of consecutive ones or int64[k]."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.shape[0])
            low, high = self.indptr[start], self.indptr[stop]
            bounds = self.indptr[start : stop + 1] - low
            return SparseRows((stop - start, self.shape[1]), bounds, self.indices[low:high], self.data[low:high])
        length = self.indptr[rows + 1] - self.indptr[rows]
        bounds = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        entries = np.arange(bounds[-1]) + np.repeat(self.indptr[rows] - bounds[:-1], length)
        return SparseRows((len(rows), self.shape[1]), bounds, self.indices[entries], self.data[entries])

    def dense(self, dtype: np.dtype) -> np.ndarray:
        """Return the same matrix as a C-ordered array of `dtype`, filled in slices of rows to save memory."""
        out = np.zeros(self.shape, dtype)
        for start in range(0, self.shape[0], _DENSE_ROWS_AT_ONCE):
            part = self.taken(slice(start, start + _DENSE_ROWS_AT_ONCE))
            np.add.at(out, (start + part.row, part.indices), part.data.astype(dtype))
        return out


def _lengths(shape: object, name: str) -> tuple[int, int]:
    """Return the rows and columns that `shape`, a tuple or an array, states. Raises DataError where it states none."""
    listed = shape.reshape(-1).tolist() if isinstance(shape, np.ndarray) else shape
    if isinstance(listed, tuple | list) and len(listed) == 2:
        rows, columns = (each.item() if isinstance(each, np.integer) else each for each in listed)
        if type(rows) is int and type(columns) is int and min(rows, columns) >= 0 and max(rows, columns) < 2**63:
            return rows, columns
    raise DataError(f"{name}: the shape of its sparse matrix must be two lengths")


@dataclass(frozen=True)
class GivenEdges:
    """Validation and test edges as a source gives them: integers [2, k], ids as in its edges.

    negatives: by split, pairs [2, j] to score against, where the source gives some. held: what the topology is to lack
    of them, names.HELD_EDGES or HELD_LABELS. origin: where they come from, for the table.
    """

    val: np.ndarray
    test: np.ndarray
    negatives: dict[str, np.ndarray]
    held: str
    origin: str


@dataclass
class RawGraph:
    """A graph as read. Nothing in it is trusted yet.

    vertices: number of vertices n, or a function that gives it from the largest id and the number of edges.
    edges: integers [2, E], row 0 the source and row 1 the destination of each edge, as found, or a stream of such.
    features: [n, F] array, which may be mapped, SparseRows or None.
    labels: [n] or [n, C] array or None; -1 or NaN is unlabelled.
    splits: any of "train", "val", "test" -> vertex ids or bool[n], or None.
    classes: number of classes if the source states it.
    edges_name: what messages call the edges, e.g. "cora.npz: array 'edges'".
    split_origin: where the splits come from, for the table.
    notes: sentences for the user about choices made while reading.
    names: what the source calls each vertex [n], where that is not its number; texts or integers, or None.
    class_names: what the source calls each class, or None.
    files: of a folder, what was taken from which of its files: path below the folder -> words such as "edges".
    edge_arrays: what edges carry, in their order, unless the stream itself brings it.
    compact: ids are any numbers; vertices are then numbered by ascending id, and ids with gaps kept as names.
    times: numbers [n], the times of vertices, or None.
    edge_splits: the edges that the source holds back for validation and test, or None; only where ids are numbers.
    parts: the part of each vertex, integers [n], of a source that is cut into parts; only where ids are numbers.
    """

    vertices: int | CountVertices
    edges: Edges
    features: np.ndarray | SparseRows | None = None
    labels: np.ndarray | None = None
    splits: dict[str, np.ndarray] | None = None
    classes: int | None = None
    edges_name: str = "edges"
    split_origin: str = "source"
    notes: list[str] = field(default_factory=list)
    names: Sequence[str] | np.ndarray | None = None
    class_names: list[str] | None = None
    files: dict[str, str] = field(default_factory=dict)
    edge_arrays: EdgeArrays | None = None
    compact: bool = False
    times: np.ndarray | None = None
    edge_splits: GivenEdges | None = None
    parts: np.ndarray | None = None


def far_too_many(vertices: int, edges: int) -> bool:
    """Judge whether so few `edges` make `vertices` unlikely; called before allocating anything of that size."""
    return vertices > _SPARSEST * edges + _SPARSEST


def believable(vertices: int, edges: int, name: str) -> int:
    """Return `vertices`, as found in the edges or stated beside them.

    Raises DataError when so few edges make it unlikely.
    """
    if far_too_many(vertices, edges):
        raise DataError(
            f"{name}: the graph has only {counted(edges, 'edge')}, but {counted(vertices, 'vertex')} by the largest "
            "id or "
            "a stated number; state their number by --vertices if that is meant"
        )
    return vertices


def whole_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """Return `array`, of signed integers. Raises DataError for another type, and for a number that int64 does not hold.

    The array may be mapped, and is then read here only where its integers have no sign.
    """
    if array.dtype.kind not in "iu":
        raise DataError(f"{name} must hold whole numbers, but its type is {array.dtype}")
    if array.dtype.kind == "i":
        return array
    found, lost = narrowed(array, np.dtype(np.int64))
    if lost >= 0:
        raise DataError(f"{name} holds {array.reshape(-1)[lost]}, but whole numbers must be below 2**63")
    return found


def checked_pairs(array: np.ndarray, name: str, *, rows: bool) -> np.ndarray:
    """Check pairs of vertex ids, [k, 2] if they are `rows`, else [2, k]: integers[2, k]. Raises DataError."""
    found = whole_numbers(array, name)
    if found.ndim != 2 or found.shape[1 if rows else 0] != 2:
        shape = "[edges, 2]" if rows else "[2, edges]"
        raise DataError(f"{name} must hold pairs of vertices, {shape}, but its shape is {found.shape}")
    return found.T if rows else found


def marked_edges(edges: Edges, mask: np.ndarray, name: str) -> np.ndarray:
    """Select those of `edges` that `mask` marks, integers[2, k]. Raises DataError where it does not fit."""
    if isinstance(edges, EdgeStream):
        raise DataError(f"{name}: masks of edges need edge_index or edges, not rows of a matrix")
    if mask.shape != edges.shape[1:]:
        raise DataError(f"{name} has shape {mask.shape}, for {counted(edges.shape[1], 'edge')}")
    return np.asarray(edges[:, mask.astype(bool)])


def check_compressed(indptr: np.ndarray, entries: int, rows: int, name: str) -> None:
    """Raise DataError unless `indptr` cuts `entries` entries into `rows` rows."""
    if indptr.shape != (rows + 1,):
        raise DataError(
            f"{name}: indptr has shape {indptr.shape}, but for {counted(rows, 'row')} it has {rows + 1:,} entries"
        )
    if indptr[0] != 0 or indptr[-1] != entries:
        raise DataError(f"{name}: indptr runs from {indptr[0]} to {indptr[-1]}, but there are {entries:,} indices")
    falls = np.flatnonzero(np.diff(indptr) < 0)
    if len(falls):
        row = int(falls[0])
        raise DataError(f"{name}: indptr falls from {indptr[row]} to {indptr[row + 1]} at row {row}; it must not fall")


def unused_values(values: np.ndarray, name: str) -> list[str]:
    """Note that the `values` [k] of an adjacency matrix are ignored, unless all are 1.

    name: what messages call the matrix.
    """
    if values.dtype.kind not in "biufc":
        return [f"{name}: each of its {len(values):,} entries is an edge; their values, {values.dtype}, are not used"]
    values = values.reshape(-1)
    counts = dict.fromkeys(("NaN", "infinite", "negative", "zero"), 0)
    ones, parts = 0, values.dtype.kind == "c"
    # In blocks, since values may be mapped and larger than the memory.
    for start in range(0, len(values), _ENTRIES_AT_ONCE):
        block = values[start : start + _ENTRIES_AT_ONCE]
        ones += int((block == 1).sum())
        found = np.isnan(block), np.isinf(block), (block.real if parts else block) < 0, block == 0
        for what, odd in zip(counts, found, strict=True):
            counts[what] += int(odd.sum())
    if ones == len(values):
        return []
    odd = [f"{count:,} {what}" for what, count in counts.items() if count]
    shown = " (" + ", ".join(["complex"] * parts + odd) + ")" if parts or odd else ""
    return [f"{name}: each of its {len(values):,} entries is an edge; their values{shown} are not used"]


def edges_of_rows(indptr: np.ndarray, indices: np.ndarray, name: str, *, rows_are: str) -> EdgeStream:
    """Return the edges of a compressed adjacency whose rows are the "source" or the "destination" of their entries.

    Raises DataError when the arrays do not fit together.
    """
    indptr = whole_numbers(indptr, f"{name}: indptr")
    indices = whole_numbers(indices, f"{name}: indices")
    if indptr.ndim != 1 or len(indptr) == 0 or indices.ndim != 1:
        raise DataError(f"{name}: indptr and indices must be one-dimensional, and indptr not empty")
    check_compressed(indptr, len(indices), len(indptr) - 1, name)
    row, column = (0, 1) if rows_are == "source" else (1, 0)  # of the edges [2, k]

    def chunks() -> Iterator[np.ndarray]:
        for low in range(0, len(indices), _ENTRIES_AT_ONCE):
            high = min(low + _ENTRIES_AT_ONCE, len(indices))
            # Rows `first` to `last` have these entries; the outer two perhaps not all of theirs.
            first, last = np.searchsorted(indptr, [low, high - 1], "right") - 1
            inside = np.clip(indptr[first : last + 2], low, high)
            edges = np.empty((2, high - low), np.int64)
            edges[row] = np.repeat(np.arange(first, last + 1), np.diff(inside))
            edges[column] = indices[low:high]
            yield edges

    return EdgeStream(chunks, len(indices))


@dataclass(frozen=True)
class Source(Member):
    """A graph format that `leapmpi-prep import` reads.

    summary: one line for people. options: the fields of ReadOptions that it takes. can_read: a cheap look at a path.
    read: the graph; raises DataError naming file and place of the first fault, ConfigError for an unsuitable option.
    """

    summary: str
    options: frozenset[str]
    can_read: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], RawGraph]
