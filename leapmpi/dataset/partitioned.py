"""Reader of a partitioned dataset: a folder with `dataset.h5` and one file per part.

Vertices are renumbered so that a part is one contiguous range: a search in `offsets` finds the part of a vertex. Within
a part vertices ascend by original id, unless `vertex_order` differs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from leapmpi.dataset.edge_data import edge_classes, edge_feature_dim, map_edge_data
from leapmpi.dataset.edge_splits import EdgeSplits, check_held_back, map_edge_splits
from leapmpi.dataset.graph import VertexRows, feature_dtype
from leapmpi.dataset.graph_file import feature_dtypes, label_kind, map_rows, map_scale, map_times
from leapmpi.dataset.graph_types import GraphTypes, map_types
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.digests import check_digest
from leapmpi.dataset.hdf5.opened_file import OpenedFile
from leapmpi.dataset.hdf5.reader import map_array, opened, reading, required
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.dataset.typed_rows import check_type_offsets, map_typed_rows
from leapmpi.errors import DataError, counted


def column_bounds(width: int, ranks: int) -> np.ndarray:
    """Return int64[ranks + 1]: rank r holds the columns bounds[r] to bounds[r + 1]; numbers differ by at most one."""
    return np.arange(ranks + 1, dtype=np.int64) * width // ranks


@dataclass(kw_only=True)
class Part(VertexRows):
    """One part, its arrays mapped read-only from its file; indices are renumbered ids.

    columns: part p of P may also hold feature columns of all n vertices, in the order of the
    renumbered vertices, that rank p of P holds under strategy p3; None where features are stored by rows alone.
    """

    number: int
    path: Path
    columns: np.ndarray | None

    @property
    def dense_features(self) -> np.ndarray:
        """Features [rows, F] of a part whose rows are dense and of one width."""
        assert isinstance(self.features, np.ndarray)
        return self.features

    @property
    def sparse_features(self) -> SparseFeatures:
        """Features of a part whose rows are stored without zeros."""
        assert isinstance(self.features, SparseFeatures)
        return self.features

    @property
    def known_labels(self) -> np.ndarray:
        """Labels of a part of a graph that has some."""
        assert self.labels is not None
        return self.labels


@dataclass(frozen=True)
class Splits:
    """Renumbered vertex ids int64 of each split, in ascending order of their ORIGINAL ids; mapped from the file."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """An open dataset of P parts; holds no open file.

    offsets: int64[P+1], part p holds the renumbered vertices offsets[p] to offsets[p+1]; edge_offsets: int64[P+1],
    the same for the in-edges of its vertices; attributes: all root attributes of dataset.h5, from vertices on fields
    too. feature_dim and classes are 0 without features or labels; graph_uuid is the identity of the graph's content,
    uuid that of content and partition; has_columns: whether part files hold feature columns too.
    """

    folder: Path
    attributes: Attributes
    offsets: np.ndarray
    edge_offsets: np.ndarray
    splits: Splits
    vertices: int
    edges: int
    parts: int
    feature_dim: int
    classes: int
    label_kind: str
    """Kind of the labels, by the name of the task that reads them; one of names.LABEL_KINDS."""
    has_split: bool
    graph_uuid: str
    uuid: str
    sparse: bool
    has_columns: bool
    edge_splits: EdgeSplits | None = None
    """Edges held back for link prediction, in renumbered ids."""
    types: GraphTypes | None = None
    """Schema of a typed graph; None for a plain one."""
    type_offsets: np.ndarray | None = None
    """int64[P, T + 1] of a typed graph: part p has the vertices [p, t] to [p, t + 1] of type t."""
    relation_edges: np.ndarray | None = None
    """int64[R] of a typed graph: the edges of each relation."""
    last_part: Path | None = None
    """File of the last part, where it holds new rows of the target table (task_rows.py); None: in the folder."""

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return self.label_kind == names.MULTI_LABEL

    @property
    def has_edge_weight(self) -> bool:
        """Whether edges have weights."""
        return bool(self.attributes.get(names.HAS_EDGE_WEIGHT, False))

    @property
    def has_edge_time(self) -> bool:
        """Whether edges have times."""
        return bool(self.attributes.get(names.HAS_EDGE_TIME, False))

    @property
    def feature_dtype(self) -> str | None:
        """Type of dense features, one of names.FEATURE_DTYPES; None without features."""
        return feature_dtype(self.part(0).dense_features.dtype) if self.feature_dim and not self.sparse else None

    @property
    def vertex_order(self) -> str:
        """Order of the vertices within a part: names.SOURCE_ORDER or COMMUNITIES."""
        return str(self.attributes.get(names.VERTEX_ORDER, names.SOURCE_ORDER))

    @property
    def has_vertex_time(self) -> bool:
        """Whether vertices have times."""
        return bool(self.attributes.get(names.HAS_VERTEX_TIME, False))

    def of_edges(self) -> Dataset:
        """Return the dataset as tasks on edges read it: vertices of all types of a typed graph may be roots."""
        return self if self.types is None else replace(self, types=replace(self.types, any_root=True))

    @property
    def replicated_types(self) -> tuple[str, ...]:
        """Names of the types of vertices with rows on every rank, as partitioning has recorded them."""
        try:
            return tuple(map(str, json.loads(str(self.attributes.get(names.REPLICATED_TYPES, "[]")))))
        except (ValueError, TypeError):
            error = f"{self.folder}: {names.REPLICATED_TYPES} is not a list of types; partition again"
            raise DataError(error) from None

    @property
    def edge_classes(self) -> int:
        """Number of classes of edge labels, 0 without labels."""
        return edge_classes(self.attributes, self.folder / names.DATASET_FILE)

    @property
    def edge_feature_dim(self) -> int:
        """Number of features Fe of an edge, 0 without."""
        return edge_feature_dim(self.attributes, self.folder / names.DATASET_FILE)

    def part_path(self, part: int) -> Path:
        """Return the path of the file of part `part`."""
        if self.last_part is not None and part == self.parts - 1:
            return self.last_part
        return self.folder / names.part_file_name(part)

    def part(self, part: int) -> Part:
        """Open part `part` (0 to P-1), its arrays mapped; sizes and identity are checked, contents are not.

        Raises DataError if its file is missing, damaged, of another dataset, or of another size.
        """
        if not 0 <= part < self.parts:
            raise DataError(f"{self.folder} has parts 0..{self.parts - 1}, there is no part {part}")
        # Sizes follow from dataset.h5; an array of another size is refused.
        path = self.part_path(part)
        rows = int(self.offsets[part + 1] - self.offsets[part])
        edges = int(self.edge_offsets[part + 1] - self.edge_offsets[part])
        with opened(path, names.PART_FORMAT) as (file, found):
            # Files of two partitions have the same names: one that was copied into the wrong folder is noticed here.
            if found.get(names.UUID) != self.uuid:
                raise DataError(
                    f"{path} belongs to another dataset (uuid {found.get(names.UUID)}, but {names.DATASET_FILE} has "
                    f"{self.uuid}); put the right file there or partition again"
                )
            if found.get("part") != part:
                raise DataError(f"{path} holds part {found.get('part')}, not {part}; put the right file there")
            arrays = map_rows(file, path, self.attributes, rows, edges)
            columns = None
            if self.has_columns:
                width = int(np.diff(column_bounds(self.feature_dim, self.parts))[part])
                columns = map_array(file, names.COLUMNS, feature_dtypes(self.attributes, path), (self.vertices, width))
            edge_data = map_edge_data(file, path, self.attributes, edges)
            times = map_times(file, self.attributes, rows)
            scale = map_scale(file, path, self.attributes)
            typed = None
            if self.types is not None and self.type_offsets is not None:
                typed = map_typed_rows(file, self.types, self.type_offsets[part] - self.offsets[part])
            return Part(
                *arrays,
                number=part,
                path=path,
                columns=columns,
                edge_data=edge_data,
                time=times,
                feature_scale=scale,
                typed=typed,
            )

    def describe(self) -> dict:
        """Return the output of `leapmpi-prep info`: all attributes, sizes of the splits and of each part."""
        splits = vars(self.splits)
        per_split = {name: np.histogram(ids, self.offsets)[0].tolist() for name, ids in splits.items()}

        # One entry per part, then the totals.
        parts = [
            {
                "part": p,
                "file": names.part_file_name(p),
                "bytes": self.part_path(p).stat().st_size,
                "vertices": int(self.offsets[p + 1] - self.offsets[p]),
                "edges": int(self.edge_offsets[p + 1] - self.edge_offsets[p]),
                **{name: per_part[p] for name, per_part in per_split.items()},
            }
            for p in range(self.parts)
        ]
        sizes = {name: len(ids) for name, ids in splits.items()}
        storage = {names.FEATURE_STORAGE: names.DENSE} if self.feature_dim else {}
        storage |= {names.FEATURE_DTYPE: found} if (found := self.feature_dtype) else {}
        storage |= {names.LABEL_KIND: self.label_kind} if self.classes else {}
        storage[names.VERTEX_ORDER] = self.vertex_order
        types = {}
        if self.types is not None and self.type_offsets is not None and self.relation_edges is not None:
            types = self.types.describe(self.type_offsets, self.relation_edges)
        return {**storage, **self.attributes, **types, "splits": sizes, "part_list": parts}


def open_dataset(folder: Path | str, *, typed: bool = False) -> Dataset:
    """Open the dataset in `folder`; everything in dataset.h5 is checked, part files must exist.

    typed: whether the caller can handle typed graphs; if not, one is a DataError. Raises DataError, too, if the folder,
    dataset.h5 or a part is missing, or dataset.h5 is foreign, truncated, damaged or of an unknown version.
    """
    folder = Path(folder)
    path = folder / names.DATASET_FILE
    with reading(folder):
        _check_folder(folder, path)

    # Arrays of dataset.h5.
    with opened(path, names.DATASET_FORMAT) as (file, found):
        parts = required(found, "parts", int, path)
        sizes = {names.OFFSETS: parts + 1, names.EDGE_OFFSETS: parts + 1}
        sizes |= {f"{names.SPLITS}/{name}": required(found, name, int, path) for name in names.SPLIT_NAMES.values()}
        arrays = {name: map_array(file, name, ("<i8",), (size,)) for name, size in sizes.items()}
        held_back = map_edge_splits(file, path, found)
        types = map_types(file, path, found)
        if types is not None and not typed:
            raise DataError(
                f"{folder} is a typed graph ({counted(len(types.vertices), 'type')} of vertices, "
                f"{counted(len(types.relations), 'relation')}), which this command does not read yet; give a plain one"
            )
        of_types = {} if types is None else _type_arrays(file, types, parts)
    of_edges = held_back.file_arrays() if held_back else {}
    check_digest(path, names.DATASET_FORMAT, {**arrays, **of_edges, **of_types})
    # Splits may be nearly as long as the graph: they stay mapped.
    offsets, edge_offsets = (np.array(arrays.pop(name)) for name in (names.OFFSETS, names.EDGE_OFFSETS))
    splits = arrays.values()

    # Its attributes.
    vertices, edges, width, classes = (
        required(found, name, int, path) for name in ("vertices", "edges", "feature_dim", "classes")
    )
    dataset = Dataset(
        *(folder, found, offsets, edge_offsets, Splits(*splits), vertices, edges, parts, width, classes),
        label_kind=label_kind(found, path),
        has_split=required(found, "has_split", bool, path),
        graph_uuid=required(found, names.GRAPH_UUID, str, path),
        uuid=required(found, names.UUID, str, path),
        sparse=found.get(names.FEATURE_STORAGE) == names.SPARSE,
        has_columns=bool(found.get(names.HAS_COLUMNS, False)),
        edge_splits=held_back,
        types=types,
        type_offsets=of_types.get(names.TYPE_OFFSETS),
        relation_edges=of_types.get(names.RELATION_EDGES),
    )

    _check_ranges(dataset, path)

    # The part files.
    for part in range(parts):
        if not (place := dataset.part_path(part)).is_file():
            raise DataError(f"{place} is missing: the dataset has {counted(parts, 'part')}; copy it or partition again")
    _check_sizes(dataset)
    return dataset


def _type_arrays(file: OpenedFile, types: GraphTypes, parts: int) -> dict[str, np.ndarray]:
    """Copy the arrays of dataset.h5 about types and relations, by name."""
    shapes = {names.TYPE_OFFSETS: (parts, len(types.vertices) + 1), names.RELATION_EDGES: (len(types.relations),)}
    of_types = {name: np.array(map_array(file, name, ("<i8",), shape)) for name, shape in shapes.items()}
    return {**of_types, names.SCHEMA: types.as_bytes()}


def _check_ranges(dataset: Dataset, path: Path) -> None:
    """Raise DataError for numbers outside their ranges in dataset.h5 at `path`: digests can be forged."""
    vertices = dataset.vertices
    _check_offsets(dataset.offsets, vertices, 1, path, names.OFFSETS)
    _check_offsets(dataset.edge_offsets, dataset.edges, 0, path, names.EDGE_OFFSETS)
    if dataset.type_offsets is not None:
        check_type_offsets(dataset.type_offsets, dataset.offsets, path)
    for ids in vars(dataset.splits).values():
        if len(ids) and (ids.min() < 0 or ids.max() >= vertices):
            raise DataError(f"{path}: a split names a vertex outside 0..{vertices - 1}; partition again")
    if dataset.edge_splits:
        check_held_back(dataset.edge_splits, vertices, dataset.edge_classes, str(path))


def _check_sizes(dataset: Dataset) -> None:
    """Raise DataError if the part files are far too small for the contents of dataset.h5, before any allocation.

    A part that is slightly too short is found when it is opened, with a clearer message.
    """
    width = np.dtype(names.index_dtype(dataset.vertices)).itemsize
    listed = 16 * dataset.vertices + width * dataset.edges
    found = sum(dataset.part_path(part).stat().st_size for part in range(dataset.parts))
    if listed > 2 * found + 2**20:
        raise DataError(
            f"{dataset.folder / names.DATASET_FILE} lists {counted(dataset.vertices, 'vertex')} and "
            f"{counted(dataset.edges, 'edge')}, more "
            f"than its part files hold ({counted(found, 'byte')}); the files do not belong together or are truncated: "
            "copy them "
            "again"
        )


def _check_folder(folder: Path, path: Path) -> None:
    if folder.is_file():
        raise DataError(
            f"{folder} is a file, not a dataset folder; make one with leapmpi-prep partition {folder} DATA/"
        )
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; make a dataset with leapmpi-prep partition")
    if not path.is_file():
        if (folder / "config.toml").is_file():
            raise DataError(f"{folder} is a run folder, not a dataset; leapmpi report writes a page about it")
        raise DataError(
            f"{folder} is not a dataset: it has no {names.DATASET_FILE}; make one with leapmpi-prep partition"
        )


def _check_offsets(offsets: np.ndarray, last: int, step: int, path: Path, name: str) -> None:
    if offsets[0] != 0 or offsets[-1] != last or (np.diff(offsets) < step).any():
        raise DataError(f"{path}: {name} does not ascend from 0 to {last}; partition again")
