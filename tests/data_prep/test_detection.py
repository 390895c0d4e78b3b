"""Detection of formats: nothing is taken for a graph by a guess, and the user is told what was taken and what left."""

import random
import zipfile

import numpy as np
import pytest

from data_prep.detection import SOURCES, locate
from tests.data_prep.conftest import SYMMETRIC, neighbours

LICENCE = (
    "BSD 3-Clause License\n\nCopyright 2026, the authors\n\n1 Redistributions of source code\n2 and in binary form\n"
)
CITE = "Year Pages\n2012 12 in: Proceedings\n2013 and 14\n2015 in print\n"


@pytest.fixture
def folder(tmp_path):
    """A folder with texts that are not a graph; returns its path."""
    path = tmp_path / "graph"
    path.mkdir()
    for name, text in (("LICENSE", LICENCE), ("LICENSE.txt", LICENCE), ("README.txt", CITE), ("empty.csv", "")):
        (path / name).write_text(text)
    return path


def test_texts_are_no_edge_lists(refused, folder):
    said = refused(folder)
    assert "holds no graph in a known format" in said
    assert "it holds LICENSE, LICENSE.txt, README.txt, empty.csv" in said
    assert "mostly whole numbers (line 1: 'BSD 3-Clause License'); --format edge-list" in refused(
        folder / "LICENSE.txt"
    )
    assert "has an unknown format" in refused(folder / "LICENSE")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.graph", "3 2\n2\n1 3\n2\n"),
        ("g.csv", "from,to\n0,1\n1,2\n"),
        ("g.txt", "# a comment\n\n0 1 0.5\n1 2 0.25\n"),
        ("g.tsv", "0\t1\n1\t2\n"),
    ],
)
def test_the_graph_beside_texts_is_taken(imported, folder, name, text):
    (folder / name).write_text(text)
    (folder / "notes").mkdir()
    graph = imported(folder)
    assert neighbours(graph) == [[1], [0, 2], [1]]
    assert f"taken: {name} (graph); not used: LICENSE, LICENSE.txt, README.txt, empty.csv, notes/" in graph.table
    assert "taken:" not in imported(folder / name).table


def test_several_graphs_are_all_named(refused, folder):
    (folder / "a.csv").write_text("0,1\n")
    (folder / "b.graph").write_text("2 1\n2\n1\n")
    said = refused(folder)
    assert "but holds a.csv (edge-list), b.graph (metis): name what to read, as" in said


def test_comments_of_any_length(tmp_path):
    (tmp_path / "g.csv").write_text("# a line of a comment\n" * 10_000 + "0,1\n1,2\n")
    assert locate(tmp_path / "g.csv")[0] == "edge-list"


def test_npy_folder(imported, folder, small):
    for name, array in small.arrays().items():
        np.save(folder / f"{name.replace('train', 'train-idx')}.npy", array)
    np.save(folder / "weights.npy", np.ones(8))
    graph = imported(folder)
    assert neighbours(graph) == SYMMETRIC
    np.testing.assert_array_equal(graph.features, small.features)
    np.testing.assert_array_equal(graph.labels, small.labels)
    assert graph.split.tolist() == [1, 1, 2, 0, 3, 3]
    assert graph.attributes["source_format"] == "npy"
    assert "edge_index.npy (edge_index), features.npy (features), labels.npy (labels)" in graph.table
    assert "not used: LICENSE, LICENSE.txt, README.txt, empty.csv, weights.npy" in graph.table


def test_npy_folder_refused(refused, folder, small):
    np.save(folder / "edge_index.npy", small.edges)
    np.save(folder / "train-idx.npy", small.train)
    np.save(folder / "train_idx.npy", small.train)
    assert "holds both train-idx.npy and train_idx.npy" in refused(folder)
    (folder / "train_idx.npy").unlink()
    np.save(folder / "edge_index.npy", small.edges.T)
    assert "edge_index.npy must have shape [2, edges]" in refused(folder)
    np.save(folder / "edge_index.npy", np.array([{}]), allow_pickle=True)
    assert "holds Python objects" in refused(folder)
    (folder / "edge_index.npy").write_bytes(b"\x93NUMPY\x01\x00")
    assert "edge_index.npy is truncated or not an .npy file" in refused(folder)
    assert "must be a folder with edge_index.npy" in refused(folder / "README.txt", "--format", "npy")


def test_every_format_has_a_line(prep, capsys):
    with pytest.raises(SystemExit):
        prep("import", "--formats")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == SOURCES.names()


@pytest.fixture
def archive(tmp_path):
    """Write an archive with these files; returns its path."""

    def write(**files):
        with zipfile.ZipFile(tmp_path / "g.zip", "w", zipfile.ZIP_DEFLATED) as out:
            for name, text in files.items():
                out.writestr(name, text)
        return tmp_path / "g.zip"

    return write


EDGES = "0,1\n1,2\n"


def test_archive(imported, archive):
    for files in ({"edges.csv": EDGES}, {"a/b/edges.csv": EDGES, "a/b/LICENSE.txt": LICENCE}):
        graph = imported(archive(**files))
        assert neighbours(graph) == [[1], [0, 2], [1]]
    assert "g.zip/a/b/edges.csv (edge-list)\n" in graph.table
    assert "taken: edges.csv (graph); not used: LICENSE.txt" in graph.table
    assert graph.attributes["source"].endswith("g.zip")


def test_one_of_several_graphs_of_an_archive(imported, refused, archive):
    path = archive(**{"all/PT/g.csv": EDGES, "all/DE/g.csv": "0,1\n", "readme": LICENCE})
    said = refused(path)
    assert f"{path} holds no graph in a known format; it holds all/, readme" in said
    assert neighbours(imported(path / "all" / "PT")) == [[1], [0, 2], [1]]
    assert neighbours(imported(path / "all" / "DE" / "g.csv")) == [[1], [0]]
    assert "g.zip holds nothing at all/FR; it holds all/DE, all/PT" in refused(path / "all" / "FR")


def test_files_of_a_graph_in_an_archive_stay_together(imported, archive):
    files = {
        "all/HR_edges.csv": EDGES,
        "all/HR_genres.json": '{"0": ["a"], "2": ["b", "a"]}',
        "all/RO_edges.csv": EDGES,
    }
    graph = imported(archive(**files) / "all" / "HR_edges.csv", "--format", "musae")
    np.testing.assert_array_equal(graph.labels, [[1, 0], [np.nan, np.nan], [1, 1]])


def test_archive_refused(refused, archive, tmp_path, monkeypatch):
    # Messages name the place in the archive, also of faults that show late.
    path = archive(**{"g/edges.csv": "0,1\n2,-4\n"})
    assert f"error: {path}/g/edges.csv: edge 1 (counted from 0): its destination -4" in refused(path)
    assert "holds no graph" in refused(archive(a=LICENCE))
    whole = archive(**{"g.csv": EDGES * 100}).read_bytes()
    for size in (0, 10, len(whole) - 5):
        path.write_bytes(whole[:size])
        assert f"{path} cannot be unpacked" in refused(path)
    monkeypatch.setattr("data_prep.formats.zip_archive._MOST_ENTRIES", 1)
    assert "holds 2 files; unpack it" in refused(archive(a=EDGES, b=EDGES))
    (tmp_path / "g.tar.gz").write_bytes(b"")
    assert "g.tar.gz is an unsupported archive; unpack it" in refused(tmp_path / "g.tar.gz")


def test_damaged_archives(prep, archive, tmp_path):
    path = archive(**{"a/edges.csv": EDGES * 20, "a/notes": LICENCE, "../up.txt": EDGES})
    whole, choice, said = path.read_bytes(), random.Random(1), set()
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(choice.choice([1, 3])):
            content[choice.randrange(len(content))] = choice.randrange(256)
        path.write_bytes(content[: choice.choice([len(content), choice.randrange(len(content))])])
        outcome = prep("import", path, tmp_path / "out.h5", "--overwrite")
        assert outcome.code in (0, 2, 3, 6)
        assert outcome.error.count("\n") == (outcome.code != 0)
        said.add(outcome.error)
    assert len(said) > 4
    assert not (tmp_path / "up.txt").exists()
