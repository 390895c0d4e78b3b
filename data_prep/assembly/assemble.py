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
from data_prep.edges.edge_sort import Adjacency, EdgeCounts
from data_prep.edges.raw_graph import SPLIT_NAMES, RawGraph, far_too_many
from data_prep.edges.sorted_edges import sort_edges
from data_prep.edges.typed_graph import RawVertices
from data_prep.progress import Progress, Steps
from data_prep.workspace import Workspace
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5.attributes import Attributes
from leapmpi.dataset.hdf5.names import FEATURE_DTYPES
from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.errors import ConfigError, DataError, counted

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
    """Meaning of the numbers that label edges, CLASSES or DISTINCT of edge_labels.py."""
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
        raise DataError(
            f"{where} has no vertices" if raw.vertices == 0 else f"{where} states {counted(raw.vertices, 'vertex')}"
        )
    # Edges first: they decide how many vertices there are, where the source does not state it.
    with steps.step("sort edges") as progress:
        adjacency, counts, edge_classes = _adjacency(raw, options, workspace, progress)
    n = adjacency.vertices
    with steps.step("find components") as progress:
        parts = components(adjacency, symmetric=not options.directed, progress=progress)
    # Original ids are kept for vertices that stay, so that users find theirs again.
    keep = parts.root == parts.largest_root if options.largest_component and parts.count > 1 else None
    original_id = None if keep is None else np.flatnonzero(keep)

    # Labels, splits, features and times, of the vertices that stay.
    with steps.step("vertex data") as progress:
        labels, codes, notes = labels_and_codes(raw, n, options, keep, where)
        notes = raw.notes + notes
        features = _features(raw, options, adjacency, workspace, where)
        times = None if raw.times is None else make_times(raw.times, n, where)
        if keep is not None:
            adjacency = induced(adjacency, keep, workspace)
            features = features and features.among(original_id)
            times = None if times is None else times[keep]
        small = None
        if features is not None:
            features = stored(features, options.feature_storage, workspace, progress)
            small = _converted(features, options, where, workspace, progress)
            features = small.rows if small else features
    graph = Graph(
        *(adjacency.indptr, adjacency.indices, features, labels and labels.values, codes, original_id),
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
    graph.attributes |= edge_classes
    return graph, Summary(counts, n, parts.count, parts.largest, parts.isolated, notes)


def _adjacency(
    raw: RawGraph, options: AssemblyOptions, workspace: Workspace, progress: Progress
) -> tuple[Adjacency, EdgeCounts, Attributes]:
    """Sort the edges of `raw` and drop them there; return their adjacency, their counts, and names of their classes."""
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
    # What the source keeps to draw or read its edges may be as large as all vertices.
    raw.edges = np.empty((2, 0), np.int64)
    raw.names = raw.names if ids is None else ids
    data, class_names = with_classes(adjacency.data, options.edge_label_values, raw.edges_name, workspace)
    return replace(adjacency, data=data), counts, _as_attribute("edge_class_names", class_names)


def labels_and_codes(
    source: RawGraph | RawVertices, vertices: int, options: AssemblyOptions, keep: np.ndarray | None, where: str
) -> tuple[Labels | None, np.ndarray | None, list[str]]:
    """Return labels and split codes of the vertices that stay, and notes; `source` holds those of all `vertices`.

    keep: bool[vertices], the vertices that stay; None for all. Raises DataError for faults of the source, ConfigError
    for splits per class of a regression.
    """
    known = options.classes or source.classes
    if known is not None and (known < 1 or far_too_many(known, vertices)):
        raise DataError(
            f"{where}: {counted(known, 'class')} are stated, but the graph has only {counted(vertices, 'vertex')}"
        )
    labels = None if source.labels is None else make_labels(source.labels, vertices, known, where, options.task)
    codes, notes = _given_codes(source.splits, vertices, options.splits, labels, where), labels.notes if labels else []
    if keep is not None:
        notes = notes + _lost_members(codes, keep)
        labels = labels and replace(labels, values=labels.values[keep], notes=[])
        codes = None if codes is None else codes[keep]

    # Draw splits from what is left.
    rule = options.splits
    if rule.kind in ("random", "per-class"):
        if labels and labels.regression and rule.kind == "per-class":
            raise ConfigError(f"--splits {rule.text}: a regression has no classes; use random:0.6,0.2,0.2")
        codes = draw(rule, labels and labels.values, labels.classes if labels else 0, options.seed)
    return labels, codes, notes


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


def _features(
    raw: RawGraph, options: AssemblyOptions, adjacency: Adjacency, workspace: Workspace, where: str
) -> FeatureRows | None:
    """Return the features of all vertices, of the source or made by the rule of --features; None where it has none.

    Raises ConfigError where both have some.
    """
    rows = raw.features
    if options.features is not None:
        if rows is not None:
            raise ConfigError(
                f"--features {options.features.text}: {where} brings features; leave the flag out to use them"
            )
        rows = make(options.features, np.diff(adjacency.indptr), options.seed, workspace)
    dtype = "float16" if options.plain_dtype == "float16" else "float32"
    return None if rows is None else make_features(rows, adjacency.vertices, dtype, options.normalise, where)


def _given_codes(
    splits: dict[str, np.ndarray] | None, vertices: int, rule: SplitRule, labels: Labels | None, where: str
) -> np.ndarray | None:
    """Split codes in the source's numbering, for `splits` of the source or a folder; None where they are drawn."""
    values = labels and labels.values
    if rule.kind == "source" and splits:
        return codes_of(splits, vertices, values, where)
    if rule.kind == "folder":
        return codes_of(read_folder(rule.folder), vertices, values, str(rule.folder))
    return None


def _lost_members(codes: np.ndarray | None, keep: np.ndarray) -> list[str]:
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
    return attributes | _as_attribute("class_names", class_names)


def _as_attribute(name: str, values: list | None) -> Attributes:
    """Return `values` as an attribute; none where they are none, or too long for one."""
    text = json.dumps(values, ensure_ascii=False) if values else ""
    return {name: text} if 0 < len(text) <= _LONGEST_CLASS_NAMES else {}
