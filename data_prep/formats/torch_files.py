"""Files of torch.save read without torch and without trust: tensors come as numpy arrays, a PyG Data as a dict.

Such a file is a zip archive of one pickle and the bytes of the tensors. As with torch.load(weights_only=True), only
listed constructors are admitted; here these are stand-ins, so that neither torch nor torch_geometric is needed.
"""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.formats import npz_reader
from data_prep.formats.array_files import read_array
from data_prep.formats.npz_reader import opened_zip
from data_prep.formats.restricted_unpickler import (
    CarefulUnpickler,
    StandIn,
    damage_explained,
    of_numpy,
    ordered_dict,
)
from data_prep.workspace import Workspace, require_whole
from leapmpi.errors import DataError, counted

_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}

_MOST_DIMENSIONS = 64
"""Dimensions of a tensor of torch."""

_TIMES_WIDENED = 5
"""Memory that numbers take while they become twice as wide, as a multiple of their bytes in the file."""


class _Data(StandIn):
    pass


class _HeteroData(StandIn):
    pass


class _Store(StandIn):
    pass


class _SamplingGraph(StandIn):
    pass


class _ScriptObject(StandIn):
    pass


_CLASSES = {
    ("torch_geometric.data.data", "Data"): _Data,
    ("torch_geometric.data.hetero_data", "HeteroData"): _HeteroData,
    ("torch_geometric.data.graph_store", "EdgeAttr"): StandIn,
    ("torch_geometric.data.feature_store", "TensorAttr"): StandIn,
    **{("torch_geometric.data.storage", f"{kind}Storage"): _Store for kind in ("Base", "Node", "Edge")},
    ("torch_geometric.data.data", "DataEdgeAttr"): StandIn,
    ("torch_geometric.data.data", "DataTensorAttr"): StandIn,
    ("torch_geometric.data.storage", "GlobalStorage"): _Store,
    ("dgl.graphbolt.impl.fused_csc_sampling_graph", "FusedCSCSamplingGraph"): _SamplingGraph,
    ("torch", "ScriptObject"): _ScriptObject,
    ("collections", "OrderedDict"): ordered_dict,
    **{("torch", name): name for name in _STORAGES},
}


@dataclass(frozen=True)
class _Storage:
    """The numbers of a storage of torch, read by this module from its own member of the archive."""

    values: np.ndarray


class _Archive:
    """The zip archive at `path`: its pickle, and the storages of tensors."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, workspace: Workspace | None) -> None:
        self.path = path
        self.zip = archive
        self._workspace = workspace
        self._storages: dict[tuple[str, str], _Storage] = {}
        self._held = 0
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise DataError(f"{path} is not a file of torch.save: it holds no single data.pkl")
        self.folder = pickles[0].removesuffix("data.pkl")
        order = f"{self.folder}byteorder"
        self.big = order in archive.namelist() and archive.read(order) == b"big"

    def load(self) -> object:
        """Load the saved object. Raises DataError when the pickle is damaged or reaches beyond its storages."""
        admitted = {**_CLASSES, **of_numpy(), ("torch._utils", "_rebuild_tensor_v2"): self.tensor}
        content = "dense tensors and arrays in a dict or a Data of torch_geometric are read"
        name = f"{self.folder}data.pkl"
        self._hold(name)
        unpickler = CarefulUnpickler(io.BytesIO(self.zip.read(name)), str(self.path), admitted, content)
        unpickler.persistent_load = self.storage
        return unpickler.load()

    def storage(self, pid: object) -> _Storage:
        """Return the storage that `pid` of the pickle names, read once. Raises ValueError where it names none."""
        if not isinstance(pid, tuple) or len(pid) != 5:
            raise ValueError("a storage without a name")
        word, kind, key, _, count = pid
        texts = all(isinstance(each, str) for each in (word, kind, key))
        if not texts or word != "storage" or kind not in _STORAGES or type(count) is not int:
            raise ValueError("a storage of an unknown type")
        if (kind, key) not in self._storages:
            self._storages[kind, key] = _Storage(self._numbers(kind, f"{self.folder}data/{key}"))
        found = self._storages[kind, key]
        if len(found.values) != count:
            held = f"{key} holds {len(found.values):,} numbers"
            raise DataError(f"{self.path}: {self.folder}data/{held}, but {count:,} are announced")
        return found

    def _numbers(self, kind: str, member: str) -> np.ndarray:
        """Read the numbers of type `kind` in `member`, mapped where they are many."""
        half = _STORAGES[kind] == "bfloat16"
        dtype = np.dtype("u2" if half else _STORAGES[kind]).newbyteorder(">" if self.big else "<")
        size = self.zip.getinfo(member).file_size
        if size % dtype.itemsize:
            raise ValueError(
                f"{member} has {counted(size, 'byte')}, which are not numbers of {counted(dtype.itemsize, 'byte')} each"
            )
        if self._workspace is None or size < npz_reader.MAPPED_FROM:
            self._hold(member)
            values = np.frombuffer(self.zip.read(member), dtype) if size else np.empty(0, dtype)
        else:
            path, start = npz_reader.unpacked(self.path, self.zip, member, self._workspace)
            values = np.memmap(path, dtype, "r", start, (size // dtype.itemsize,))
        if half or self.big:
            self._hold(member, _TIMES_WIDENED)
        if half:  # the upper half of a float32
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def _hold(self, member: str, times: int = 1) -> None:
        """Count the bytes of `member`, `times` as many in memory. Raises ResourceError where all do not fit."""
        self._held += times * self.zip.getinfo(member).file_size
        require_whole(f"{self.path}: {member} and what is read of it before", self._held, 1, self._workspace)

    def tensor(self, storage: object, offset: object, size: object, stride: object, *_: object) -> np.ndarray:
        """View `storage` as torch's tensor of these sizes. Raises ValueError or DataError where it is none."""
        if not isinstance(storage, _Storage) or not isinstance(size, tuple) or not isinstance(stride, tuple):
            raise ValueError("a tensor without storage, sizes or strides")
        if len(size) != len(stride) or len(size) > _MOST_DIMENSIONS:
            raise ValueError("a tensor of several numbers of dimensions")
        numbers = (offset, *size, *stride)
        if any(type(number) is not int or not 0 <= number < 2**63 for number in numbers):
            raise ValueError("a tensor with negative sizes")

        # The last element must be in the storage; an expanded tensor may not be larger than it.
        values, count = storage.values, math.prod(size)
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if count and (last >= len(values) or count > len(values)):
            raise DataError(
                f"{self.path}: a tensor of shape {size} reaches beyond its storage of {counted(len(values), 'number')}"
            )
        if not count:
            return np.empty(size, values.dtype)
        steps = [step * values.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(values[offset:], size, steps, subok=True, writeable=False)


def load_torch(path: Path, workspace: Workspace | None = None) -> object:
    """Load the object that torch.save wrote to `path`: tensors as arrays, a PyG Data as the dict of its attributes.

    A HeteroData is the dict of these dicts by type and relation.

    Of GraphBolt's FusedCSCSamplingGraph it is the dict of dicts of tensors that its __getstate__ gives.

    With a `workspace`, large tensors are mapped. Raises RefusedPickle (a DataError) when it needs any other
    constructor, DataError when it is damaged, ResourceError when tensors that must be held do not fit.
    """
    hint = "; a file of torch before 1.6 must be saved again"
    with (
        opened_zip(path, f"{path} is truncated or no zip archive of torch.save", hint) as archive,
        damage_explained(f"{path}: its data.pkl"),
    ):
        return _plain(_Archive(path, archive, workspace).load(), path)


def _plain(found: object, path: Path) -> object:
    """Convert a Data, alone or first in a tuple, to a dict of its attributes; return other objects as they are."""
    if isinstance(found, tuple) and found:
        return (_attributes(found[0], path), *found[1:])
    return _attributes(found, path)


def _attributes(found: object, path: Path) -> object:
    """Return the attributes of a Data or of a GraphBolt graph; another object as it is."""
    if isinstance(found, _SamplingGraph):
        inner = found.state.get("_c_csc_graph") if isinstance(found.state, dict) else None
        # What torch pickles of an object of C++: its state, and the name of its class.
        state = inner.state if isinstance(inner, _ScriptObject) else None
        return state[0] if isinstance(state, tuple) and state else found
    if isinstance(found, _HeteroData):
        return _stores(found.state, path)
    if not isinstance(found, _Data):
        return found
    state = found.state
    if isinstance(state, dict) and isinstance(state.get("_store"), _Store):
        store = state["_store"].state
        state = store.get("_mapping") if isinstance(store, dict) else None
    if not isinstance(state, dict):
        raise DataError(f"{path}: its Data object is damaged (it has no content)")
    return state


def _stores(state: object, path: Path) -> dict:
    """Return the attributes of a HeteroData by type and relation. Raises DataError where it has none."""
    found: dict = {}
    for name in ("_node_store_dict", "_edge_store_dict"):
        stores = state.get(name) if isinstance(state, dict) else None
        for key, store in stores.items() if isinstance(stores, dict) else ():
            content = (
                store.state.get("_mapping") if isinstance(store, _Store) and isinstance(store.state, dict) else None
            )
            if isinstance(content, dict):
                found[key] = content
    if not found:
        raise DataError(f"{path}: its HeteroData object is damaged (it has no content)")
    return found


def read_tensor(path: Path, workspace: Workspace | None = None) -> np.ndarray:
    """Read the array in a file of numpy or torch."""
    if path.suffix not in (".pt", ".pth"):
        return read_array(path)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    found = load_torch(path, workspace)
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} holds a {type(found).__name__}; expected one tensor")
    return found
