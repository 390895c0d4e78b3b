"""Names, versions and codes of all HDF5 formats. `data_prep/FORMAT.md` describes graph files and datasets."""

from __future__ import annotations

GRAPH_FORMAT = "leapmpi-graph"
DATASET_FORMAT = "leapmpi-dataset"
PART_FORMAT = "leapmpi-part"
WEIGHTS_FORMAT = "leapmpi-weights"
CHECKPOINT_FORMAT = "leapmpi-checkpoint"
FORMAT_VERSION = 7
"""Newest version that can be read. A file is written as the oldest version that can hold it."""
OLDEST_VERSION = 1

DATASET_FILE = "dataset.h5"

# Attributes of every file.
FORMAT = "format"
VERSION = "format_version"
CREATOR = "creator"
CREATED = "created_utc"
GRAPH_UUID = "graph_uuid"
UUID = "uuid"
SOURCE = "source"
COMMAND = "command"

# Attribute of every array (over its bytes) and of every root group (over the other root attributes).
DIGEST = "digest"
DIGEST_ALGORITHM = "blake2b-128"
DIGEST_BYTES = 16

# Arrays of graph files and part files.
FEATURES = "features"
FEATURE_INDPTR = "features/indptr"
FEATURE_INDICES = "features/indices"
FEATURE_DATA = "features/data"
FEATURE_SCALE = "feature_scale"
FEATURE_DTYPE = "feature_dtype"
COLUMNS = "columns"
HAS_COLUMNS = "has_columns"
VERTEX_ORDER = "vertex_order"
SOURCE_ORDER, COMMUNITIES = "source", "communities"
"""Orders of the vertices of a part: as in the source, or community by community."""
FEATURE_STORAGE = "feature_storage"
FEATURE_ENTRIES = "feature_entries"
LABELS = "labels"
EDGE_WEIGHT = "edge_weight"
EDGE_FEATURES = "edge_features"
EDGE_TIME = "edge_time"
EDGE_LABELS = "edge_labels"
HAS_EDGE_WEIGHT = "has_edge_weight"
HAS_EDGE_TIME = "has_edge_time"
EDGE_FEATURE_DIM = "edge_feature_dim"
EDGE_CLASSES = "edge_classes"
VERTEX_TIME = "vertex_time"
HAS_VERTEX_TIME = "has_vertex_time"
LABEL_KIND = "label_kind"
SPLIT = "split"
EDGE_SPLITS = "edge_splits"
HELD_BACK = "held_back"
HAS_SPLIT_TIME = "has_edge_split_time"
ORIGINAL_ID = "original_id"
INDPTR = "topology/indptr"
INDICES = "topology/indices"

# Typed graphs: the schema, the relation of each edge, and what dataset.h5 counts.
VERTEX_TYPES = "vertex_types"
RELATIONS = "relations"
SCHEMA = "schema"
RELATION = "relation"
TYPE_OFFSETS = "type_offsets"
RELATION_EDGES = "relation_edges"
REPLICATED_TYPES = "replicated_types"
VERTEX_TYPE_LIST, RELATION_LIST = "vertex_type_list", "relation_list"
"""Keys under which `describe` lists types and relations."""

# Arrays of dataset.h5.
OFFSETS = "offsets"
EDGE_OFFSETS = "edge_offsets"
SPLITS = "splits"

# Codes in `split`.
NO_SPLIT, TRAIN, VAL, TEST = 0, 1, 2, 3
SPLIT_NAMES = {TRAIN: "train", VAL: "val", TEST: "test"}

NEGATIVE_COUNTS = tuple(f"{SPLIT_NAMES[code]}_negatives" for code in (VAL, TEST))
"""Root attributes with the number of given negatives of each split."""

UNLABELLED = -1

MULTI_CLASS, MULTI_LABEL, REGRESSION = "multi-class", "multi-label", "regression"
LABEL_KINDS = MULTI_CLASS, MULTI_LABEL, REGRESSION
"""Kinds of labels, by the names of the tasks that read them. Files mark those of a regression."""

HELD_EDGES, HELD_LABELS = "edges", "labels"
"""Values of `held_back`, what validation and test edges lack in the topology; a file without it holds edges back."""

DENSE, SPARSE = "dense", "sparse"
"""Values of `feature_storage`; a file without it is dense."""


FEATURE_DTYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2", "int8": "|i1"}
"""The types of dense features, and those of their arrays: of bfloat16 the bits, of int8 steps (`feature_scale`)."""


def part_file_name(part: int) -> str:
    """Return the name of the file of part `part` (counted from 0)."""
    return f"part-{part:05d}.h5"


def type_features(number: int) -> str:
    """Return the name of the features of the vertices of type `number`."""
    return f"types/{number}/features"


def type_scale(number: int) -> str:
    """Return the name of the steps and middles of the int8 features of type `number`."""
    return f"types/{number}/feature_scale"


def index_dtype(vertices: int) -> str:
    """Return the little-endian dtype of vertex ids in `topology/indices` of a graph of `vertices` vertices."""
    return "<i4" if vertices < 2**31 else "<i8"
