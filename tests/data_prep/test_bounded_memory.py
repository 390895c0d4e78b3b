"""Preparation under --max-mem: the same graph by every way, refusals before work, nothing left by killed processes."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from data_prep.edges import edge_sort
from data_prep.formats import npz_reader
from data_prep.workspace import Workspace, memory_budget, workspace_beside
from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import ConfigError, ResourceError
from tests.support.file_size import largest_file


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A thousandth of the graph of jobs/bench/preparation, as an archive with its edges in random order."""
    from data_prep.cli import main

    path = tmp_path_factory.mktemp("source") / "g.npz"
    sizes = ["--vertices", "100000", "--edges", "500000", "--features", "16", "--classes", "47", "--communities", "940"]
    assert main(["synth", str(path), *sizes, "--train", "0.01", "--feature-dtype", "float16"]) == 0
    return path


@pytest.fixture
def squeezed(monkeypatch):
    """As if memory were far smaller: edges go to files, buckets are cut into groups, all arrays are mapped."""
    monkeypatch.setattr(edge_sort, "_EDGES_IN_MEMORY", 50_000)
    monkeypatch.setattr(edge_sort, "_BYTES_PER_KEY", 1 << 14)
    monkeypatch.setattr(npz_reader, "MAPPED_FROM", 1)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_thousandth_of_a_billion_edges(prep, tmp_path, source, squeezed, monkeypatch, compressed):
    arrays = dict(np.load(source))
    if compressed:
        source = tmp_path / "packed.npz"
        np.savez_compressed(source, **arrays)
    outcome = prep("import", source, tmp_path / "g.h5", "--max-mem", "512M", "--feature-dtype", "float16")
    assert outcome.code == 0, outcome.error
    graph = open_graph(tmp_path / "g.h5")
    low, high = np.sort(arrays["edges"].astype(np.int64), axis=1).T
    assert graph.edges == 2 * len(np.unique((low * 100_000 + high)[low != high]))
    np.testing.assert_array_equal(graph.features, arrays["features"])
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(graph.split) == 1), np.sort(arrays["train"]))
    monkeypatch.undo()
    assert prep("import", source, tmp_path / "plain.h5", "--feature-dtype", "float16").code == 0
    assert open_graph(tmp_path / "plain.h5").uuid == graph.uuid == content_uuid(graph)
    if not compressed:
        for name, code in (("partition", ["--parts", 8, "--method", "hash"]), ("check", [])):
            folder = [tmp_path / "data"]
            words = [tmp_path / "g.h5", *folder] if name == "partition" else folder
            outcome = prep(name, *words, *code, "--max-mem", "512M")
            assert outcome.code == 0, outcome.error
        assert open_dataset(tmp_path / "data").graph_uuid == graph.uuid


def heterophilous(path, arrays):
    masks = {"train_masks": np.isin(np.arange(100_000), arrays["train"])[None]}
    named = {"node_features": arrays["features"], "node_labels": arrays["labels"]}
    np.savez_compressed(path.with_suffix(".npz"), edges=arrays["edges"], **named, **masks)
    return path.with_suffix(".npz"), ["edges", "node_features", "node_labels", "train_masks"]


def gnn_benchmark(path, arrays):
    source, destination = arrays["edges"][np.argsort(arrays["edges"][:, 0], kind="stable")].T
    indptr = np.searchsorted(source, np.arange(100_001))
    np.savez(path.with_suffix(".npz"), adj_indptr=indptr, adj_indices=destination, labels=arrays["labels"])
    return path.with_suffix(".npz"), ["adj_indptr", "adj_indices", "labels"]


def pyg(path, arrays):
    tensors = {"edge_index": arrays["edges"].astype(np.int64).T, "x": arrays["features"], "y": arrays["labels"]}
    torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, path.with_suffix(".pt"))
    return path.with_suffix(".pt"), ["data/0", "data/1", "data/2"]


@pytest.mark.parametrize("write", [heterophilous, gnn_benchmark, pyg])
def test_large_arrays_of_other_formats_are_mapped(prep, tmp_path, source, squeezed, monkeypatch, write):
    path, names = write(tmp_path / "source", dict(np.load(source)))
    mapped = []

    def unpacked(path, archive, member, workspace, real=npz_reader.unpacked):
        mapped.append(member.removesuffix(".npy"))
        return real(path, archive, member, workspace)

    monkeypatch.setattr(npz_reader, "unpacked", unpacked)
    outcome = prep("import", path, tmp_path / "g.h5", "--max-mem", "512M")
    assert outcome.code == 0, outcome.error
    assert all(any(found.endswith(name) for found in mapped) for name in names)
    monkeypatch.undo()
    assert prep("import", path, tmp_path / "plain.h5").code == 0
    assert open_graph(tmp_path / "plain.h5").uuid == open_graph(tmp_path / "g.h5").uuid


def test_steps_are_listed(prep, tmp_path, source):
    out = prep("import", source, tmp_path / "g.h5").out
    rows = [line.split() for line in out.partition("step  ")[2].splitlines()[1:]]
    assert [" ".join(row[:-3]) for row in rows] == [
        "read",
        "sort edges",
        "find components",
        "vertex data",
        "write",
        "all",
    ]
    for row in rows:
        seconds, own, resident = (float(number.replace(",", "")) for number in row[-3:])
        assert seconds >= 0
        assert 20 < own <= resident


def test_budgets():
    assert memory_budget("2G") == 2 * 2**30
    assert memory_budget(None) >= 2**30
    with pytest.raises(ConfigError, match="--max-mem 100M is too small; the least is 512M"):
        memory_budget("100M")
    with pytest.raises(ConfigError, match="--max-mem: 'much' is not a size"):
        memory_budget("much")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["synth", "{}/s.h5", "--vertices", "50000000"], "making 50,000,000 vertices needs"),
        (["import", "{}/sparse.npz", "{}/s.h5"], "importing 50,000,000 vertices needs"),
        (["partition", "{}/large.h5", "{}/d", "--parts", "2", "--method", "metis"], "method metis needs"),
    ],
)
def test_what_cannot_fit_is_said_before(prep, tmp_path, words, said):
    np.savez(tmp_path / "sparse.npz", edges=np.zeros((100_000, 2), np.int64), vertices=50_000_000)
    if "partition" in words:
        edges = np.random.default_rng(0).integers(0, 3_000, (2_500_000, 2))
        np.savez(tmp_path / "large.npz", edges=edges)
        assert prep("import", tmp_path / "large.npz", tmp_path / "large.h5").code == 0
    before = sorted(tmp_path.iterdir())
    outcome = prep(*(word.format(tmp_path) for word in words), "--max-mem", "512M")
    assert outcome.code == ResourceError.exit_code
    assert said in outcome.error
    assert "0.5 GiB (--max-mem)" in outcome.error
    assert outcome.error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_workspace_goes_and_those_of_killed_commands_with_it(tmp_path):
    (tmp_path / ".g.h5.work-1-00000000").mkdir()
    with workspace_beside(tmp_path / "g.h5", 2**30) as workspace:
        assert isinstance(workspace, Workspace)
        assert list(tmp_path.iterdir()) == [workspace.folder]
    assert not workspace.folder.exists()


@pytest.mark.parametrize("step", ["_scattered", "finish"])
def test_killed_import_leaves_nothing_that_looks_finished(prep, tmp_path, source, step):
    """Killed while it sorts: no graph file appears, and the next start clears what was left."""
    code = (
        "import sys, time; from data_prep.edges.edge_sort import EdgeSorter; from data_prep.cli import main\n"
        f"def stop(self, *_): print('here', flush=True); time.sleep(60)\nEdgeSorter.{step} = stop\n"
        f"main(['import', {str(source)!r}, {str(tmp_path / 'g.h5')!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"here\n"
        time.sleep(0.05)
        process.kill()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(f".g.h5.work-{process.pid}-")
    assert prep("import", source, tmp_path / "g.h5").code == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["g.h5"]


@pytest.mark.parametrize("limit", [1, 30_000, 2_000_000, 6_000_000])
def test_full_disk_at_any_step_is_one_sentence(prep, tmp_path, source, limit):
    """In the first temporary file, in those of the sort, and in the graph file itself."""
    with largest_file(limit):
        outcome = prep("import", source, tmp_path / "g.h5")
    assert outcome.code == ResourceError.exit_code
    assert "g.h5: the disk is full or a quota is reached" in outcome.error
    assert outcome.error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_matrices_that_memory_cannot_hold_are_not_read(prep, tmp_path):
    entries = 12_000_000
    arrays = {"data": np.zeros(entries, np.float64), "indices": np.zeros(entries, np.int32)}
    arrays |= {"indptr": np.array([0, entries]), "shape": np.array([1, 1])}
    np.savez(
        tmp_path / "parts.npz",
        adj_indptr=[0, 0],
        adj_indices=np.empty(0, np.int64),
        **{f"attr_{k}": v for k, v in arrays.items()},
    )
    pickled = np.empty(1, object)
    pickled[0] = arrays["data"]
    np.savez(tmp_path / "pickled.npz", adj_matrix=pickled, allow_pickle=True)
    for name, said in (("parts", "parts.npz: attr_*"), ("pickled", "pickled.npz: array 'adj_matrix'")):
        outcome = prep("import", tmp_path / f"{name}.npz", tmp_path / "g.h5", "--max-mem", "512M")
        assert outcome.code == 6
        assert f"{said}: reading " in outcome.error
        assert "GiB of memory, but may use 0.5 GiB (--max-mem); allow more, or save" in outcome.error
        assert not (tmp_path / "g.h5").exists()
