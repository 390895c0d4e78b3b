"""Help for files that are not read: what they hold, and the command that makes a readable file of them."""

from __future__ import annotations

import struct
from pathlib import Path

from data_prep.formats.npz_reader import NpzFile, opened_zip, read_header
from leapmpi.errors import DataError

_GRAPHS_OF_DGL = struct.pack("<Q", 0xDD2E4FF046B4A13F)
"""Beginning of a file of dgl.save_graphs (kDGLSerializeMagic in DGL's src/graph/serialize/graph_serialize.h)."""

_DGL = (
    "import dgl, numpy; g = dgl.load_graphs({path!r})[0][0]; numpy.savez({out!r}, num_nodes=g.num_nodes(), "
    "edge_index=numpy.stack([e.numpy() for e in g.edges(order={order!r})]), "
    "**{{k: v.numpy() for k, v in g.ndata.items()}}, **{{f{edge!r}: v.numpy() for k, v in g.edata.items()}})"
)
_MATRIX = "import numpy, scipy.sparse; scipy.sparse.save_npz({out!r}, scipy.sparse.csr_matrix(numpy.load({path!r})))"
_ARRAYS = "import numpy; f = numpy.load({path!r}); numpy.savez({out!r}, {chosen})"

_LIKELY = {
    "edge_index": ("edgeindex", "edge_list", "edgelist", "adj_list", "edge", "links", "pairs"),
    "features": ("feats", "attr", "attrs", "node_features", "node_feats", "attributes", "emb", "embeddings"),
    "labels": ("node_labels", "target", "targets", "class", "classes", "gt"),
}
"""Names under which others keep what the generic .npz calls by the key."""


def describe(path: Path) -> str | None:
    """Return what is in the file `path`, of an unknown format, and how to convert it; None for an unknown kind of file.

    Raises DataError for a damaged array file.
    """
    if path.suffix == ".npz":
        return _of_npz(path)
    if path.suffix == ".npy":
        return _of_npy(path)
    with path.open("rb") as file:
        if file.read(len(_GRAPHS_OF_DGL)) == _GRAPHS_OF_DGL:
            command = _line(_DGL, path, order="eid", edge="edge_{k}")
            return f"holds graphs of DGL, which DGL alone reads; where it is installed, {command}"
    return None


def _line(code: str, path: Path, **words: str) -> str:
    """Return the words "run ... and import ..." with the `code` that converts `path`."""
    out = str(path.with_name(f"{path.stem}-graph.npz"))
    command = code.format(path=str(path), out=out, **words).replace('"', r"\"")
    return f'run: python -c "{command}" and import {out}'


def _of_npy(path: Path) -> str:
    """Describe one array, which holds no pairs of vertices."""
    try:
        with path.open("rb") as file:
            shape, _, dtype = read_header(file, path.stat().st_size)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is truncated or not an .npy file ({error})") from error
    held = f"holds one array, {dtype} {list(shape)}"
    if len(shape) == 2 and shape[0] == shape[1]:
        return f"{held}, perhaps an adjacency matrix; if so, {_line(_MATRIX, path)}"
    what = "labels" if len(shape) == 1 else "features"
    return f"{held}, which is not a list of edges, [2, edges] or [edges, 2]; name the edges, and this file by --{what}"


def _of_npz(path: Path) -> str:
    """Describe the arrays of an archive, and how to rename them."""
    shapes = _shapes(path)
    listed = ", ".join(f"{name} {list(shape)}" for name, (shape, _) in sorted(shapes.items())[:8]) or "nothing"
    pairs = {name for name, (shape, kind) in shapes.items() if len(shape) == 2 and 2 in shape and kind in "iu"}
    likely = {
        known: next((name for name in sorted(shapes) if name.lower() in others), None)
        for known, others in _LIKELY.items()
    }
    likely["edge_index"] = likely["edge_index"] if likely["edge_index"] in pairs else next(iter(sorted(pairs)), None)
    if likely["edge_index"] is None:
        return f"holds {listed}: an unknown format"
    edges = likely["edge_index"]
    turned = "" if shapes[edges][0][0] == 2 else ".T"
    chosen = [f"edge_index=f[{edges!r}]{turned}"]
    chosen += [f"{known}=f[{name!r}]" for known, name in likely.items() if name and known != "edge_index"]
    command = _line(_ARRAYS, path, chosen=", ".join(chosen))
    return f"holds {listed}: an unknown format; if edges are {edges}, {command}"


def _shapes(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and kind of type of the arrays in the archive `path`. Raises DataError where it is damaged."""
    found = {}
    with opened_zip(path, f"{path} is truncated or damaged") as archive:
        for name in NpzFile(path).names:
            if f"{name}.npy" not in archive.namelist():
                continue
            with archive.open(f"{name}.npy") as file:
                shape, _, dtype = read_header(file, archive.getinfo(f"{name}.npy").file_size)
            found[name] = shape, dtype.kind
    return found
