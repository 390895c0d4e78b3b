"""What FORMAT.md promises, read by plain h5py and hashlib alone; and memory that does not grow with the features."""

import hashlib
import struct
import tracemalloc

import h5py
import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import open_graph, write_graph
from tests.support.graphs import from_lists


def documented_line(name, value):
    if isinstance(value, bytes):
        return f"{name} str {value.decode()}\n"
    if isinstance(value, np.bool_):
        return f"{name} bool {int(value)}\n"
    if isinstance(value, np.integer):
        return f"{name} int {value}\n"
    return f"{name} float {struct.pack('<d', value).hex()}\n"


def blake(data):
    return hashlib.blake2b(data, digest_size=16).hexdigest().encode()


def test_layout_and_digests_are_as_documented(folder, graph_file):
    for path in (graph_file, *folder.iterdir()):
        with h5py.File(path, "r") as file:
            lines = [documented_line(name, file.attrs[name]) for name in sorted(file.attrs) if name != "digest"]
            assert file.attrs["digest"] == blake("".join(lines).encode())
            arrays = []
            file.visititems(
                lambda _, item, found=arrays: found.append(item) if isinstance(item, h5py.Dataset) else None
            )
            for array in arrays:
                assert array.chunks is None
                assert array.dtype.byteorder in "<=|"
                assert array.attrs["digest"] == blake(array[:].tobytes())
            assert len(arrays) == (5 if path.name == "dataset.h5" else 6)


def test_uuid_of_the_dataset_is_as_documented(folder):
    with h5py.File(folder / "dataset.h5", "r") as file:
        data = file.attrs["graph_uuid"] + file["offsets"][:].tobytes()
        uuid = file.attrs["uuid"]
    for part in sorted(folder.glob("part-*.h5")):
        with h5py.File(part, "r") as file:
            assert file.attrs["uuid"] == uuid
            data += file["original_id"][:].tobytes()
    assert blake(data) == uuid


@pytest.mark.parametrize("parts", [1, 2])
def test_features_are_streamed(tmp_path, parts):
    rows, width = 20_000, 1000
    features = np.broadcast_to(np.float32(1.5), (rows, width))
    write_graph(tmp_path / "g.h5", from_lists([[]] * rows, features=features))
    graph = open_graph(tmp_path / "g.h5")
    assert graph.features.nbytes == 80_000_000
    tracemalloc.start()
    write_dataset(tmp_path / "d", graph, np.arange(rows) % parts, parts, method="test", figures={}, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000
