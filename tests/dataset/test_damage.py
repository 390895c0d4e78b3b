"""Damaged, foreign and missing files: one sentence each, never another exception, a crash or a wrong result."""

import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.hdf5 import attributes
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.dataset.verify import verify, verify_digests, verify_graph
from leapmpi.errors import DataError
from tests.support.crafted import digest_of
from tests.support.graphs import random_graph

pytestmark = pytest.mark.compiles


def flip_in_array(path, name, element, value):
    """Overwrite one element of an array in place, behind HDF5's back."""
    with h5py.File(path) as file:
        array = file[name]
        offset, dtype = array.id.get_offset() + element * array.dtype.itemsize, array.dtype
    data = bytearray(path.read_bytes())
    data[offset : offset + dtype.itemsize] = np.array(value, dtype).tobytes()
    path.write_bytes(data)


def rewrite_attributes(path, kind, changes):
    """Change root attributes as a writer of another version would: with a valid digest."""
    with h5py.File(path, "r+") as file:
        found = {**attributes.read_attributes(file), **changes}
        del found["digest"]
        for name, value in changes.items():
            file.attrs[name] = value
        file.attrs["digest"] = np.bytes_(attributes.attributes_digest(found))


def test_missing_and_foreign(tmp_path, folder, graph_file):
    text = tmp_path / "text.h5"
    text.write_text("not HDF5 at all")
    (tmp_path / "empty.h5").touch()
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["x"] = np.arange(3)
    (tmp_path / "nothing").mkdir()
    for opener, path, message in (
        (open_graph, tmp_path / "none.h5", "does not exist"),
        (open_graph, text, "not an HDF5 file"),
        (open_graph, tmp_path / "empty.h5", "not an HDF5 file"),
        (open_graph, tmp_path / "foreign.h5", "foreign HDF5 file"),
        (open_graph, folder, "is a folder"),
        (open_graph, folder / "dataset.h5", "is leapmpi-dataset, not leapmpi-graph"),
        (open_dataset, tmp_path / "none", "does not exist"),
        (open_dataset, tmp_path / "nothing", "has no dataset.h5"),
        (open_dataset, graph_file, "is a file, not a dataset folder"),
    ):
        with pytest.raises(DataError, match=message):
            opener(path)


@pytest.mark.parametrize(("version", "message"), [(0, "older than 1"), (8, "reads up to 7; update leapmpi")])
def test_other_versions(folder, graph_file, version, message):
    rewrite_attributes(graph_file, "leapmpi-graph", {"format_version": version})
    rewrite_attributes(folder / "dataset.h5", "leapmpi-dataset", {"format_version": version})
    with pytest.raises(DataError, match=message):
        open_graph(graph_file)
    with pytest.raises(DataError, match=message):
        open_dataset(folder)


def test_changed_attribute(folder):
    with h5py.File(folder / "dataset.h5", "r+") as file:
        file.attrs["classes"] = 7
    with pytest.raises(DataError, match="root attributes do not match their digest"):
        open_dataset(folder)


def test_missing_part(folder):
    (folder / "part-00001.h5").unlink()
    with pytest.raises(DataError, match=r"part-00001\.h5 is missing: the dataset has 3 parts"):
        open_dataset(folder)


def test_parts_of_other_datasets(folder, tmp_path, graph):
    write_dataset(tmp_path / "other", graph, np.arange(60) % 3, 3, method="test", figures={}, seed=0)
    shutil.copy(tmp_path / "other/part-00001.h5", folder / "part-00001.h5")
    with pytest.raises(DataError, match=r"part-00001\.h5 belongs to another dataset"):
        load_topology(open_dataset(folder))
    shutil.copy(folder / "part-00002.h5", folder / "part-00001.h5")
    with pytest.raises(DataError, match="holds part 2, not 1"):
        open_dataset(folder).part(1)
    with pytest.raises(DataError, match=r"parts 0\.\.2"):
        open_dataset(folder).part(3)


@pytest.mark.parametrize(
    ("name", "element", "value", "message"),
    [
        ("features", 13, np.nan, r"part-00002\.h5: features, row 2, column 3 is nan"),
        ("features", 13, 1.5, r"part-00002\.h5: array features does not match its blake2b-128 digest"),
        ("labels", 4, 9, r"part-00002\.h5: labels, row 4 is 9"),
        ("split", 4, 7, r"part-00002\.h5: split, row 4 is 7"),
        ("topology/indices", 6, 1000, r"part-00002\.h5: topology/indices, row 6: in-neighbour 1000"),
        ("topology/indptr", 1, -5, r"part-00002\.h5: topology/indptr, row 1 is -5"),
        ("original_id", 3, -1, r"part-00002\.h5: original_id, row 3 is -1"),
    ],
)
def test_damaged_bytes_are_found_and_named(folder, name, element, value, message):
    flip_in_array(folder / "part-00002.h5", name, element, value)
    dataset = open_dataset(folder)
    with pytest.raises(DataError, match=message):
        verify(dataset)
    # Digests alone tell it too, of the parts that are looked at.
    verify_digests(dataset, [0, 1])
    verify_digests(dataset, [2], features=False) if name == "features" else None
    with pytest.raises(DataError, match=rf"part-00002\.h5.*{name}"):
        verify_digests(dataset, [1, 2])


def test_damage_behind_valid_digests_is_found(folder):
    path = folder / "part-00002.h5"
    split = np.array(open_dataset(folder).part(2).split)
    row = int(np.flatnonzero(split == 1)[0])
    split[row] = 2
    flip_in_array(path, "split", row, 2)
    with h5py.File(path, "r+") as file:
        file["split"].attrs["digest"] = np.bytes_(digest_of(split))
    with pytest.raises(DataError, match=f"split, row {row} is 2, but .* lists the vertex in splits/train"):
        verify(open_dataset(folder))
    with pytest.raises(DataError, match=f"split, row {row} is 2, but .* lists the vertex in splits/train"):
        verify_digests(open_dataset(folder), [2])


def test_damaged_topology_is_not_loaded(folder):
    flip_in_array(folder / "part-00001.h5", "topology/indices", 2, 10**9)
    with pytest.raises(DataError, match=r"part-00001\.h5: array topology/indices does not match"):
        load_topology(open_dataset(folder))


def test_verify_of_some_parts_only(folder):
    flip_in_array(folder / "part-00001.h5", "features", 0, np.inf)
    dataset = open_dataset(folder)
    verify(dataset, parts=[0, 2])
    verify(dataset, features=False)
    with pytest.raises(DataError, match="features, row 0, column 0 is inf"):
        verify(dataset, parts=[1])


def test_filtered_arrays_are_refused(graph_file):
    with h5py.File(graph_file, "r+") as file:
        features = file["features"][:]
        del file["features"]
        file.create_dataset("features", data=features, chunks=(4, 5), compression="gzip")
    with pytest.raises(DataError, match="not contiguous"):
        open_graph(graph_file)


FUZZ = """
import sys
from pathlib import Path
import numpy as np
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.verify import verify, verify_graph
from leapmpi.errors import DataError

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
files = [folder / "graph.h5", folder / "data/dataset.h5", folder / "data/part-00001.h5"]
whole = {file: file.read_bytes() for file in files}
arrays = {name: np.array(array) for name, array in verify_graph(files[0]).arrays().items()}
description = open_dataset(folder / "data").describe()
random = np.random.default_rng(3)
refused = 0
for i in range(rounds):
    file = files[i % 3]
    data = bytearray(whole[file])
    if random.random() < 0.3:
        data = data[: random.integers(0, len(data))]
    else:
        for at in random.integers(0, len(data), random.integers(1, 4)):
            data[at] ^= int(random.integers(1, 256))
    file.write_bytes(data)
    try:
        if file == files[0]:
            for name, array in verify_graph(file).arrays().items():
                np.testing.assert_array_equal(array, arrays[name])
        else:
            dataset = open_dataset(folder / "data")
            verify(dataset)
            assert dataset.describe() == description
    except DataError as error:
        assert "\\n" not in str(error)
        refused += 1
    file.write_bytes(whole[file])
print(refused)
"""


def test_random_damage_is_refused_or_harmless(folder, graph_file):
    """Truncated anywhere or with flipped bytes: a DataError, or bytes that carry no content; never a crash."""
    rounds = 300
    command = [sys.executable, "-c", FUZZ, str(graph_file.parent), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 0.8 * rounds


FULL = """
import resource, shutil, sys
from pathlib import Path
import numpy as np
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.graph_file import open_graph, write_graph
from leapmpi.errors import ResourceError

folder = Path(sys.argv[1])
graph = open_graph(folder / "graph.h5")
write_dataset(folder / "full", graph, np.arange(60) % 2, 2, method="x", figures={}, seed=0)
shutil.rmtree(folder / "full")
graph.features = np.ones((graph.vertices, 500), np.float32)
graph.uuid = None
sys.dont_write_bytecode = True  # Python would cut it short without a word
largest = 130_000
content_uuid(graph)  # compiles the kernel, whose cache would not fit either
for limit in (0, 100, 1500, 4000, 8000, 40_000, 100_000, 120_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, largest))
    for write in (
        lambda: write_graph(folder / "full.h5", graph),
        lambda: write_dataset(folder / "full", graph, np.arange(60) // 59, 2, method="x", figures={}, seed=0),
    ):
        try:
            write()
        except ResourceError as error:
            assert "disk is full" in str(error)
        else:
            raise AssertionError(limit)
"""


def test_full_disk_leaves_nothing(graph_file):
    """No byte fits, or the data but not the closing metadata: a sentence, no crash in HDF5, nothing left."""
    before = sorted(graph_file.parent.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(graph_file.parent)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    assert sorted(graph_file.parent.iterdir()) == before


def test_verify_graph_finds_damage(graph_file):
    flip_in_array(graph_file, "features", 7, 2.5)
    open_graph(graph_file)
    with pytest.raises(DataError, match="array features does not match"):
        verify_graph(graph_file)


def test_mixed_up_order_within_a_list(tmp_path):
    """A list in the order of new numbers instead of original ids would change draws: it is refused."""
    graph = random_graph(degree=8)
    write_dataset(tmp_path / "d", graph, (np.arange(60) < 30).astype(int), 2, method="test", figures={}, seed=0)
    part = open_dataset(tmp_path / "d").part(0)
    row = next(v for v in range(30) if (np.diff(part.indices[part.indptr[v] : part.indptr[v + 1]]) < 0).any())
    first, last = part.indptr[row], part.indptr[row + 1]
    for position, value in zip(range(first, last), np.sort(part.indices[first:last]), strict=True):
        flip_in_array(part.path, "topology/indices", position, value)
    with pytest.raises(DataError, match="out of order"):
        verify(open_dataset(tmp_path / "d"))
