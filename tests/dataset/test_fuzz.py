"""Damaged headers: some hundred of the thousands that `python -m tests.soak.fuzz` reads."""

import h5py
import numpy as np
import pytest

from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.hdf5 import reader
from leapmpi.errors import DataError
from leapmpi.runs.weights import read_weights, write_weights
from tests.soak.fuzz import soak

pytestmark = pytest.mark.compiles

TRIALS = 200


@pytest.mark.timeout(600)
def test_damaged_headers_are_refused_without_a_crash_a_hang_or_a_large_allocation(tmp_path):
    counts, faults = soak(TRIALS, seed=1, base=tmp_path)
    assert not faults, faults[:5]
    assert sum(counts.values()) == TRIALS
    assert counts["refused"] > TRIALS // 3


def outside(folder, name, data):
    """A file beside the ones that are read, which must never be opened."""
    with h5py.File(folder / name, "w") as file:
        file["features"] = data
    return folder / name


@pytest.mark.parametrize("kind", ["external", "soft", "hidden"])
def test_links_are_not_followed(tmp_path, graph_file, kind):
    with h5py.File(graph_file, "r+") as file:
        data, digest = file["features"][:], file["features"].attrs["digest"]
        del file["features"]
        if kind == "external":
            file["features"] = h5py.ExternalLink(str(outside(tmp_path, "other.h5", data)), "features")
        else:
            kept = file.create_dataset("elsewhere", data=data, track_times=False)
            kept.attrs["digest"] = digest
            file["features"] = h5py.SoftLink("/elsewhere")
        if kind == "hidden":
            del file["topology/indptr"]
            file["topology"].attrs["x"] = 1
            file["topology/indptr"] = h5py.ExternalLink(str(graph_file), "topology/indices")
    with pytest.raises(DataError, match="is a link to another place, which is not followed"):
        open_graph(graph_file)


@pytest.mark.parametrize("kind", ["external storage", "virtual"])
def test_numbers_in_other_files_are_not_read(tmp_path, graph_file, kind):
    with h5py.File(graph_file, "r+") as file:
        data, digest = file["features"][:], file["features"].attrs["digest"]
        del file["features"]
        if kind == "virtual":
            layout = h5py.VirtualLayout(data.shape, data.dtype)
            layout[...] = h5py.VirtualSource(outside(tmp_path, "other.h5", data), "features", data.shape)
            array = file.create_virtual_dataset("features", layout)
        else:
            (tmp_path / "raw").write_bytes(data.tobytes())
            array = file.create_dataset(
                "features", data.shape, data.dtype, external=[(str(tmp_path / "raw"), 0, 10**6)]
            )
        array.attrs["digest"] = digest
    with pytest.raises(DataError, match="is stored in other files, which are not opened"):
        open_graph(graph_file)


def test_arrays_that_share_their_bytes_are_not_copied_again_and_again(tmp_path):
    path, big = tmp_path / "weights.h5", np.zeros(1000, "f4")
    names = [f"w{number}" for number in range(50)]
    write_weights(path, dict.fromkeys(names, big[:1]) | {"big": big}, {})
    with h5py.File(path, "r+") as file:
        for name in names:
            del file[f"parameters/{name}"]
            file[f"parameters/{name}"] = file["parameters/big"]
    with pytest.raises(DataError, match="share their bytes"):
        read_weights(path)


def test_an_attribute_of_another_size_is_not_read(graph_file):
    with h5py.File(graph_file, "r+", libver="latest") as file:
        file.attrs["huge"] = np.zeros(10**6)
    with (
        pytest.raises(DataError, match="attribute huge takes 8000000 bytes"),
        reader.opened(graph_file, "leapmpi-graph"),
    ):
        pass
