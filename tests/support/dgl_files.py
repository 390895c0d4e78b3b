"""Writes what DGL writes, without DGL: tensors (save_tensors), and GraphBolt's sampling graph (torch.save)."""

import struct
import sys
import types

import numpy as np
import torch

_KINDS = {"i": 0, "u": 1, "f": 2}


def save_tensors(path, arrays):
    """The file of dgl.data.save_tensors with `arrays` by name."""
    out = [struct.pack("<QQQ", 0xDD5A9FBE3FA2443F, len(arrays), len(arrays))]
    for name, array in arrays.items():
        array = np.ascontiguousarray(array.astype(np.uint8) if array.dtype == bool else array)
        kind, bits = _KINDS[array.dtype.kind], 8 * array.dtype.itemsize
        out += [struct.pack("<Q", len(name)), name.encode()]
        out += [struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, kind, bits, 1)]
        out += [struct.pack(f"<{array.ndim}q", *array.shape), struct.pack("<q", array.nbytes), array.tobytes()]
    path.write_bytes(b"".join(out))


def save_sampling_graph(path, indptr, indices, of_vertices=None, of_edges=None, **independent):
    """GraphBolt's FusedCSCSamplingGraph as torch.save pickles it: its C++ object by the state of __getstate__."""
    tensors = {"version_number": np.array([6199]), "indptr": indptr, "indices": indices, **independent}
    state = {"independent_tensors": tensors, "node_attributes": of_vertices, "edge_attributes": of_edges}
    state = {
        key: {name: torch.from_numpy(np.asarray(each)) for name, each in found.items()}
        for key, found in state.items()
        if found is not None
    }
    modules = ("dgl", "dgl.graphbolt", "dgl.graphbolt.impl", "dgl.graphbolt.impl.fused_csc_sampling_graph")
    kind = type("FusedCSCSamplingGraph", (), {"__module__": modules[-1]})
    inner = type("ScriptObject", (), {"__module__": "torch", "__getstate__": lambda self: self.content})
    before = torch.ScriptObject
    sys.modules.update({name: types.ModuleType(name) for name in modules})
    try:
        sys.modules[modules[-1]].FusedCSCSamplingGraph = kind
        torch.ScriptObject = inner
        graph, script = kind(), inner()
        script.content = (state, "__torch__.torch.classes.graphbolt.FusedCSCSamplingGraph")
        graph._c_csc_graph = script
        torch.save(graph, path)
    finally:
        torch.ScriptObject = before
        for name in modules:
            del sys.modules[name]
