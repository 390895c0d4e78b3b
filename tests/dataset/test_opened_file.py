"""What a file says of its arrays is read once, and again as soon as the file changes."""

import time

import h5py
import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.hdf5 import opened_file
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.verify import verify
from leapmpi.errors import DataError
from tests.support.crafted import change_attributes


@pytest.fixture
def opening(monkeypatch):
    """The paths of files that HDF5 opens for reading, in order."""
    paths, h5_file = [], opened_file.h5py.File

    def recorded(path, *arguments, **options):
        paths.append(path)
        return h5_file(path, *arguments, **options)

    monkeypatch.setattr(opened_file.h5py, "File", recorded)
    return paths


@pytest.fixture
def settled(monkeypatch):
    """Files count as settled at once."""
    monkeypatch.setattr(opened_file, "_SETTLED_SECONDS", 0.0)
    time.sleep(0.02)


def test_a_dataset_is_opened_by_hdf5_once_a_file(graph_file, tmp_path, settled, opening):
    write_dataset(tmp_path / "data", open_graph(graph_file), np.arange(60) % 2, 2, method="x", figures={}, seed=0)
    time.sleep(0.02)
    opening.clear()
    verify(open_dataset(tmp_path / "data"))
    first = list(opening)
    verify(open_dataset(tmp_path / "data"))
    assert opening == first
    arrays = [open_dataset(tmp_path / "data").part(number).features for number in range(2)]
    assert opening == first
    whole = open_graph(graph_file)
    assert all(np.array_equal(arrays[number], whole.features[number::2]) for number in range(2))


def test_a_file_that_changed_is_read_again(graph_file, settled, opening):
    assert open_graph(graph_file).vertices == 60
    with h5py.File(graph_file, "r+") as file:
        del file["labels"]
    with pytest.raises(DataError, match="array labels is missing"):
        open_graph(graph_file)
    change_attributes(graph_file, classes=0)
    assert open_graph(graph_file).labels is None


def test_a_file_that_was_replaced_is_read_again(graph_file, tmp_path, settled):
    other = tmp_path / "other.h5"
    other.write_bytes(graph_file.read_bytes())
    change_attributes(other, source="elsewhere")
    before = open_graph(graph_file).attributes.get("source")
    other.replace(graph_file)
    assert open_graph(graph_file).attributes["source"] == "elsewhere" != before


def test_a_file_that_was_just_written_is_not_relied_on(graph_file, opening):
    open_graph(graph_file)
    once = len(opening)
    open_graph(graph_file)
    assert len(opening) == 2 * once > 0


def test_another_kind_of_file_is_refused_each_time(graph_file, settled):
    open_graph(graph_file)
    folder = graph_file.parent / "folder"
    folder.mkdir()
    for _ in range(2):
        graph_file.rename(folder / "dataset.h5")
        with pytest.raises(DataError, match="is leapmpi-graph, not leapmpi-dataset"):
            open_dataset(folder)
        (folder / "dataset.h5").rename(graph_file)
