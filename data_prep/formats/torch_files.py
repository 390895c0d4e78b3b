"""Files of torch.save read without torch and without trust: tensors come as numpy arrays, a PyG Data as a dict.

Such a file is a zip archive of one pickle and the bytes of the tensors. As with torch.load(weights_only=True), only
listed constructors are admitted; here these are stand-ins, so that neither torch nor torch_geometric is needed.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np

from data_prep.formats import npz_reader
from data_prep.formats.npz_reader import opened_zip
from data_prep.formats.restricted_unpickler import CarefulUnpickler, StandIn, damage_explained, of_numpy
from data_prep.workspace import Workspace, require_whole
from leapmpi.errors import DataError

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

_TIMES_WIDENED = 5
"""Memory that numbers take while they become twice as wide, as a multiple of their bytes in the file."""


class _Data(StandIn):
    pass


class _Store(StandIn):
    pass


class _SamplingGraph(StandIn):
    pass


class _ScriptObject(StandIn):
    pass


_CLASSES = {
    ("torch_geometric.data.data", "Data"): _Data,
    ("torch_geometric.data.data", "DataEdgeAttr"): StandIn,
    ("torch_geometric.data.data", "DataTensorAttr"): StandIn,
    ("torch_geometric.data.storage", "GlobalStorage"): _Store,
    ("dgl.graphbolt.impl.fused_csc_sampling_graph", "FusedCSCSamplingGraph"): _SamplingGraph,
    ("torch", "ScriptObject"): _ScriptObject,
    ("collections", "OrderedDict"): OrderedDict,
    **{("torch", name): name for name in _STORAGES},
}


class _Unpickler(CarefulUnpickler):
    # No pickle of tensors has byte arrays, which are allocated before they are read.
    dispatch = {key: read for key, read in CarefulUnpickler.dispatch.items() if key != pickle.BYTEARRAY8[0]}


class _Archive:
    """The zip archive at `path`: its pickle, and the storages of tensors."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, workspace: Workspace | None) -> None:
        self.path = path
        self.zip = archive
        self._workspace = workspace
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise DataError(f"{path} is no file of torch.save: it holds no single data.pkl")
        self.folder = pickles[0].removesuffix("data.pkl")
        order = f"{self.folder}byteorder"
        self.big = order in archive.namelist() and archive.read(order) == b"big"

    def load(self) -> object:
        """The object that was saved."""
        admitted = {**_CLASSES, **of_numpy(), ("torch._utils", "_rebuild_tensor_v2"): self.tensor}
        content = "dense tensors and arrays in a dict or a Data of torch_geometric are read"
        with damage_explained(f"{self.path}: its data.pkl"):
            pickled = io.BytesIO(self.zip.read(f"{self.folder}data.pkl"))
            unpickler = _Unpickler(pickled, str(self.path), admitted, content)
            unpickler.persistent_load = self.storage
            return unpickler.load()

    def storage(self, pid: object) -> np.ndarray:
        """The numbers of the storage that `pid` of the pickle names."""
        word, kind, key, _, count = pid
        if word != "storage" or kind not in _STORAGES or not isinstance(key, str):
            raise ValueError("a storage of an unknown type")
        member = f"{self.folder}data/{key}"
        half = _STORAGES[kind] == "bfloat16"
        dtype = np.dtype("u2" if half else _STORAGES[kind]).newbyteorder(">" if self.big else "<")

        # Mapped where they are many.
        size = self.zip.getinfo(member).file_size
        if self._workspace is None or size < npz_reader.MAPPED_FROM:
            values = np.frombuffer(self.zip.read(member), dtype)
        else:
            path, start = npz_reader.unpacked(self.path, self.zip, member, self._workspace)
            values = np.memmap(path, dtype, "r", start, (size // dtype.itemsize,))
        if len(values) != count:
            raise DataError(f"{self.path}: {member} holds {len(values):,} numbers, but {count:,} are announced")
        if half:  # the upper half of a float32
            require_whole(f"{self.path}: {member}", values.nbytes, _TIMES_WIDENED, self._workspace)
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def tensor(self, storage: np.ndarray, offset: int, size: tuple, stride: tuple, *_: object) -> np.ndarray:
        """A view of `storage`, as torch's tensor of these sizes; sizes that reach beyond it are refused."""
        # Nothing in a pickle is trusted.
        numbers = (offset, *size, *stride)
        if not isinstance(storage, np.ndarray) or len(size) != len(stride):
            raise ValueError("a tensor without storage or with odd strides")
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError("a tensor with negative sizes")

        # The last element must lie in the storage; an expanded tensor may not be larger than it.
        count = int(np.prod([float(length) for length in size]))
        last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        if count and (last >= len(storage) or count > len(storage)):
            raise DataError(
                f"{self.path}: a tensor of shape {tuple(size)} reaches beyond its storage of {len(storage):,} numbers"
            )
        if not count:
            return np.empty([min(length, len(storage)) for length in size], storage.dtype)
        steps = [step * storage.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(storage[offset:], size, steps, subok=True, writeable=False)


def load_torch(path: Path, workspace: Workspace | None = None) -> object:
    """The object that torch.save wrote to `path`: tensors as arrays, a PyG Data as the dict of its attributes.

    Of GraphBolt's FusedCSCSamplingGraph it is the dict of dicts of tensors that its __getstate__ gives.

    With a `workspace`, large tensors are mapped. Raises RefusedPickle (a DataError) when it needs any other
    constructor, DataError when it is damaged, ResourceError when tensors that must be held do not fit.
    """
    hint = "; a file of torch before 1.6 must be saved again"
    with opened_zip(path, f"{path} is truncated or no zip archive of torch.save", hint) as archive:
        return _plain(_Archive(path, archive, workspace).load(), path)


def _plain(found: object, path: Path) -> object:
    """`found` with a Data, alone or first in a tuple, made into a dict of its attributes."""
    if isinstance(found, tuple) and found:
        return (_plain(found[0], path), *found[1:])
    if isinstance(found, _SamplingGraph):
        inner = getattr(found, "state", {}).get("_c_csc_graph")
        state = getattr(inner, "state", None)
        # What torch pickles of an object of C++: its state, and the name of its class.
        return state[0] if isinstance(inner, _ScriptObject) and isinstance(state, tuple) and state else found
    if not isinstance(found, _Data):
        return found
    state = getattr(found, "state", None)
    if isinstance(state, dict) and isinstance(state.get("_store"), _Store):
        store = getattr(state["_store"], "state", None)
        state = store.get("_mapping") if isinstance(store, dict) else None
    if not isinstance(state, dict):
        raise DataError(f"{path}: its Data object is damaged (it has no content)")
    return state
