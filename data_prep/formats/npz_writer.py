"""Write a graph as the generic .npz that import reads, uncompressed, so that its arrays can be mapped."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from data_prep.edges.edge_stream import as_stream
from data_prep.edges.raw_graph import RawGraph
from data_prep.progress import Progress, Steps
from leapmpi.dataset.hdf5.names import index_dtype
from leapmpi.dataset.hdf5.row_blocks import row_blocks
from leapmpi.system.atomic_files import written_aside


def write_source(path: Path, raw: RawGraph, steps: Steps, *, overwrite: bool) -> None:
    """Write `raw`, whose edges may be a stream of known length, as the archive `path`, whole or not at all.

    Raises ResourceError when the disk is full.
    """
    # Small arrays first; the edges come from a stream.
    arrays = {"features": raw.features, "labels": raw.labels, **(raw.splits or {})}
    numbers = {"vertices": raw.vertices, "classes": raw.classes}
    with (
        written_aside(path, overwrite=overwrite) as aside,
        zipfile.ZipFile(aside, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name, number in numbers.items():
            if number is not None:
                _write(archive, name, (), "<i8", [np.array(number)])

        # Vertex data, then the edges, which may be a stream.
        with steps.step("write vertex data"):
            for name, array in arrays.items():
                if array is not None:
                    narrow = array.dtype.kind == "i" and raw.vertices < 2**31
                    dtype = "<i4" if narrow else array.dtype.newbyteorder("<").str
                    _write(archive, name, array.shape, dtype, row_blocks(array))
        with steps.step("write edges") as progress:
            stream = as_stream(raw.edges)
            progress.start(stream.count, "edges")
            _write(archive, "edges", (stream.count, 2), index_dtype(raw.vertices), _pairs(stream.chunks(), progress))


def _pairs(chunks: Iterable[np.ndarray], progress: Progress) -> Iterator[np.ndarray]:
    for chunk in chunks:
        progress.advance(chunk.shape[1])
        yield chunk.T


def _write(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: str, blocks: Iterable[np.ndarray]
) -> None:
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_2_0(file, about)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).reshape(-1).view(np.uint8))
