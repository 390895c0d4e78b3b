"""From the RawGraph of a source to a Graph: adjacency, features, labels, splits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data_prep.assembly.edge_splits.edge_labels import CLASSES, with_classes
from data_prep.assembly.feature_rows import FeatureRows, stored
from data_prep.assembly.made_features import FeatureRule, make
from data_prep.assembly.output import Summary
from data_prep.assembly.splits import SplitRule, codes_of, draw, read_folder
from data_prep.assembly.stored_dtype import StoredFeatures, as_stored
from data_prep.assembly.vertex_data import Labels, make_features, make_labels, make_times
from data_prep.edges.components import components, induced
from data_prep.edges.edge_sort import Adjacency
from data_prep.edges.edge_stream import sort_edges
from data_prep.edges.raw_graph import SPLIT_NAMES, RawGraph, SparseRows, far_too_many
from data_prep.progress import Progress, Steps
from data_prep.workspace import Workspace
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.names import FEATURE_DTYPES
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.errors import ConfigError, DataError

# Longer attributes would be truncated, and a truncated list is not JSON.
_LONGEST_CLASS_NAMES = 4000 // 4


@dataclass(frozen=True)
class AssemblyOptions:
    """Flags that concern the cleaning, the same for every source."""

    splits: SplitRule
    seed: int = 0
    directed: bool = False
    largest_component: bool = False
    normalise: str = "none"
    feature_dtype: str | None = None
    """One of FEATURE_DTYPES, or by type of vertices "NAME=DTYPE,..."; None: float32, of a typed graph also float16."""
    feature_storage: str = "auto"
    classes: int | None = None
    task: str | None = None
    features: FeatureRule | None = None
    edge_data: str = "keep"
    """Whether what edges carry is kept ("keep") or not ("drop")."""
    edge_label_values: str = CLASSES
    """Meaning of the numbers that label edges, one of edge_labels.LABEL_VALUES."""
    target: str | None = None
    """Of a typed graph, the type of vertices with labels and splits; None: the source says it."""
    add_reverse: bool = False
    """Whether relations of a typed graph get reverse relations."""

    def feature_dtypes(self, types: Sequence[str], where: str) -> dict[str, str]:
        """Return the dtypes stated for features by type, of a typed graph with these `types`. Raises ConfigError."""
        if self.feature_dtype is None or self.feature_dtype in FEATURE_DTYPES:
            return dict.fromkeys(types, self.feature_dtype) if self.feature_dtype else {}
        pairs = dict(pair.rpartition("=")[::2] for pair in self.feature_dtype.split(","))
        for name, dtype in pairs.items():
            if name not in types or dtype not in FEATURE_DTYPES:
                raise ConfigError(
                    f"--feature-dtype {self.feature_dtype}: {name}={dtype} is not a type of {where} "
                    f"({', '.join(types)}) with one of {', '.join(FEATURE_DTYPES)}"
                )
        return pairs

    def check_plain(self) -> None:
        """Raise ConfigError for a dtype that the features of a plain graph cannot have."""
        if self.plain_dtype not in FEATURE_DTYPES:
            known = ", ".join(FEATURE_DTYPES)
            raise ConfigError(
                f"--feature-dtype {self.plain_dtype}: expected one of {known}, as this graph has no types"
            )

    @property
    def plain_dtype(self) -> str:
        """Type of the features of a plain graph."""
        return self.feature_dtype or "float32"


def make_graph(
    raw: RawGraph, options: AssemblyOptions, where: str, workspace: Workspace, steps: Steps | None = None
) -> tuple[Graph, Summary]:
    """Build the cleaned Graph of `raw`, and its Summary; large arrays are temporary files of `workspace`.

    `where` opens the messages about features, labels and splits. Values of dense features are checked only when rows
    are taken, by write_graph. Raises DataError for the first other fault of the source.
    """
    steps = steps or Steps(silent=True)
    if not callable(raw.vertices) and raw.vertices < 1:
        raise DataError(f"{where} has no vertices" if raw.vertices == 0 else f"{where} states {raw.vertices} vertices")
    with steps.step("sort edges") as progress:
        adjacency, counts, ids = sort_edges(
            raw.edges,
            raw.vertices,
            compact=raw.compact,
            directed=options.directed,
            name=raw.edges_name,
            workspace=workspace,
            progress=progress,
            arrays=raw.edge_arrays,
            notes=raw.notes,
            carried=options.edge_data == "keep",
        )
    # What the source keeps to draw or read its edges is needed no longer; it may be as large as all vertices.
    raw.edges = np.empty((2, 0), np.int64)
    data, edge_class_names = with_classes(adjacency.data, options.edge_label_values, raw.edges_name, workspace)
    adjacency = replace(adjacency, data=data)
    n = adjacency.vertices
    raw.names = raw.names if ids is None else ids
    with steps.step("find components") as progress:
        parts = components(adjacency, symmetric=not options.directed, progress=progress)
    with steps.step("vertex data") as progress:
        # Labels, features and given splits, in the numbering of the source.
        known = options.classes or raw.classes
        if known is not None and (known < 1 or far_too_many(known, n)):
            raise DataError(f"{where}: {known:,} classes are stated, but there are only {n:,} vertices")
        labels = None if raw.labels is None else make_labels(raw.labels, n, known, where, options.task)
        rows = raw.features if options.features is None else _made_features(raw, options, adjacency, workspace, where)
        features = None
        if rows is not None:
            dtype = "float16" if options.plain_dtype == "float16" else "float32"
            features = make_features(rows, n, dtype, options.normalise, where)
        times = None if raw.times is None else make_times(raw.times, n, where)
        notes = raw.notes + (labels.notes if labels else [])
        codes = given_codes(raw.splits, n, options.splits, labels, where)

        # Keep the largest component alone.
        original_id = None
        if options.largest_component and parts.count > 1:
            keep = parts.root == parts.largest_root
            notes += lost_members(codes, keep)
            original_id = np.flatnonzero(keep)
            adjacency = induced(adjacency, keep, workspace)
            features = features and features.among(original_id)
            labels = labels and replace(labels, values=labels.values[keep], notes=[])
            codes = None if codes is None else codes[keep]
            times = None if times is None else times[keep]

        # Draw splits from what is left; decide how features are stored.
        if options.splits.kind in ("random", "per-class"):
            if labels and labels.regression and options.splits.kind == "per-class":
                raise ConfigError(
                    f"--splits {options.splits.text}: a regression has no classes; use random:0.6,0.2,0.2"
                )
            codes = draw(options.splits, labels and labels.values, labels.classes if labels else 0, options.seed)
        small = None
        if features is not None:
            features = stored(features, options.feature_storage, workspace, progress)
            small = _converted(features, options, where, workspace, progress)
            features = small.rows if small else features
    arrays = adjacency.indptr, adjacency.indices, features, labels and labels.values, codes, original_id
    graph = Graph(
        *arrays,
        labels.classes if labels else 0,
        origin_attributes(raw.class_names, raw.split_origin, options, features is not None, codes is not None),
        edge_data=adjacency.data,
        time=times,
        regression=bool(labels and labels.regression),
        feature_scale=small.scale if small else None,
    )
    if small:
        graph.attributes |= small.attributes
        notes += [small.note(options.plain_dtype)]
    if edge_class_names and len(text := json.dumps(edge_class_names)) <= _LONGEST_CLASS_NAMES:
        graph.attributes["edge_class_names"] = text
    return graph, Summary(counts, n, parts.count, parts.largest, parts.isolated, notes)


def _converted(
    features: FeatureRows | SparseFeatures,
    options: AssemblyOptions,
    where: str,
    workspace: Workspace,
    progress: Progress,
) -> StoredFeatures | None:
    """Convert dense `features` as --feature-dtype says; None where they are written as they are.

    Raises ConfigError where features are stored sparse, for types that sparse ones do not have.
    """
    dtype = options.plain_dtype
    if isinstance(features, SparseFeatures):
        if dtype not in ("float32", "float16"):
            raise ConfigError(
                f"--feature-dtype {dtype}: features of {where} are stored sparse, as float32 or float16; take float16, "
                "or --feature-storage dense"
            )
        return None
    return None if dtype == "float32" else as_stored(features.exact(), dtype, where, workspace, progress)


def _made_features(
    raw: RawGraph, options: AssemblyOptions, adjacency: Adjacency, workspace: Workspace, where: str
) -> np.ndarray | SparseRows:
    """Make features by the rule of --features. Raises ConfigError where the source has features."""
    if raw.features is not None:
        raise ConfigError(
            f"--features {options.features.text}: {where} brings features; leave the flag out to use them"
        )
    return make(options.features, np.diff(adjacency.indptr), options.seed, workspace)


def given_codes(
    splits: dict[str, np.ndarray] | None, vertices: int, rule: SplitRule, labels: Labels | None, where: str
) -> np.ndarray | None:
    """Split codes in the source's numbering, for `splits` of the source or a folder; None where they are drawn."""
    values = labels and labels.values
    if rule.kind == "source" and splits:
        return codes_of(splits, vertices, values, where)
    if rule.kind == "folder":
        return codes_of(read_folder(rule.folder), vertices, values, str(rule.folder))
    return None


def lost_members(codes: np.ndarray | None, keep: np.ndarray) -> list[str]:
    """Describe members of splits outside `keep` bool[n]. Raises DataError where a split would become empty."""
    if codes is None:
        return []
    before, after = (np.bincount(some, minlength=4)[1:] for some in (codes, codes[keep]))
    for name, kept, had in zip(SPLIT_NAMES, after, before, strict=True):
        if had and not kept:
            raise DataError(f"--largest-component: no vertex of the {name} split is in the largest component")
    lost = [f"{had - kept:,} {name}" for name, had, kept in zip(SPLIT_NAMES, before, after, strict=True) if had > kept]
    return [f"outside the largest component, left out: {', '.join(lost)} vertices"] if lost else []


def origin_attributes(
    class_names: list[str] | None, split_origin: str, options: AssemblyOptions, features: bool, splits: bool
) -> Attributes:
    """Return the attributes that describe the origin of a graph, with its `features` and `splits` made here or not."""
    rule = options.splits
    attributes = {
        "directed": options.directed,
        "feature_normalisation": options.normalise if features else "none",
        "largest_component": options.largest_component,
        "feature_origin": "none" if not features else options.features.text if options.features else "source",
        "split_origin": "none" if not splits else split_origin if rule.kind == "source" else rule.text,
    }

    # Seeds only where something was drawn.
    if rule.kind in ("random", "per-class"):
        attributes["split_seed"] = options.seed
    if options.features and options.features.kind == "random":
        attributes["feature_seed"] = options.seed
    if class_names and len(text := json.dumps(class_names, ensure_ascii=False)) <= _LONGEST_CLASS_NAMES:
        attributes["class_names"] = text
    return attributes
