"""Two commands with one output: whatever the interleaving, one succeeds and the other says so."""

import os

import numpy as np
import pytest

from leapmpi.dataset.graph_file import open_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.system import atomic_files

SIZES = ("--edges", 40, "--features", 3, "--classes", 2)


@pytest.fixture
def overtaken(prep, monkeypatch):
    """A function that runs two commands with one output: the second from start to end when the first has done all its
    work and is about to take the name. Returns what both left."""

    def run(first, second):
        real, outcomes = atomic_files.put_in_place, []

        def put_in_place(*arguments, **settings):
            if not outcomes:
                outcomes.append(None)
                outcomes[0] = prep(*second)
            real(*arguments, **settings)

        monkeypatch.setattr(atomic_files, "put_in_place", put_in_place)
        last = prep(*first)
        return last, outcomes[0]

    return run


def assert_refused(outcome, path):
    assert outcome.code == 3
    assert outcome.error.startswith(f"leapmpi-prep: error: {path} exists already: another process made it")
    assert outcome.error.count("\n") == 1


@pytest.mark.parametrize("links", [True, False])
def test_two_imports(overtaken, tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links here")))
    for vertices in (7, 8):
        np.savez(tmp_path / f"{vertices}.npz", edges=[[0, 1], [1, 2]], vertices=vertices)
    out = tmp_path / "g.h5"
    late, early = overtaken(("import", tmp_path / "7.npz", out), ("import", tmp_path / "8.npz", out))
    assert early.code == 0, early.error
    assert_refused(late, out)
    assert open_graph(out).vertices == 8
    assert sorted(os.listdir(tmp_path)) == ["7.npz", "8.npz", "g.h5"]


def test_two_imports_of_named_vertices(overtaken, tmp_path):
    """Names and graph belong together: both are those of the one that succeeds."""
    for name, edges in (("a", "a,b\nb,c\n"), ("x", "x,y\ny,z\nz,w\n")):
        (tmp_path / f"{name}.csv").write_text(f"source,target\n{edges}")
    out = tmp_path / "g.h5"
    table = ("--format", "table")
    late, early = overtaken(("import", tmp_path / "a.csv", out, *table), ("import", tmp_path / "x.csv", out, *table))
    assert early.code == 0, early.error
    assert_refused(late, out)
    assert sorted((tmp_path / "g.names.txt").read_text().split()) == ["w", "x", "y", "z"]
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "g.h5", "g.names.txt", "x.csv"]


@pytest.mark.parametrize("name", ["g.h5", "g.npz"])
def test_two_synthetic_graphs(overtaken, tmp_path, name):
    out = tmp_path / name
    late, early = overtaken(("synth", out, "--vertices", 20, *SIZES), ("synth", out, "--vertices", 30, *SIZES))
    assert early.code == 0, early.error
    assert_refused(late, out)
    assert os.listdir(tmp_path) == [name]
    assert open_graph(out).vertices == 30 if name == "g.h5" else np.load(out)["vertices"] == 30


@pytest.mark.parametrize("there", [False, True])
def test_two_partitions(prep, overtaken, tmp_path, there):
    graph, out = tmp_path / "g.h5", tmp_path / "data"
    assert prep("synth", graph, "--vertices", 20, *SIZES).code == 0
    if there:
        out.mkdir()
    words = ("partition", graph, out, "--method", "hash", "--parts")
    late, early = overtaken((*words, 2), (*words, 3))
    assert early.code == 0, early.error
    assert_refused(late, out)
    assert open_dataset(out).parts == 3
    assert sorted(os.listdir(tmp_path)) == ["data", "g.h5"]
