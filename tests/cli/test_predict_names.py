"""`leapmpi predict` in the user's words: names of vertices and classes, scores of pairs, best partners."""

import csv
import json

import h5py
import numpy as np
import pytest

from data_prep.cli import main as prepare
from leapmpi import load_run
from leapmpi.cli.main import main
from leapmpi.dataset.partitioned import open_dataset

PEOPLE = 60


def name_of(number):
    return f"p{number * 7 % PEOPLE:02d}, jr" if number == 3 else f"p{number * 7 % PEOPLE:02d}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset of named people with named classes, a run of it, and one that predicts links."""
    place = tmp_path_factory.mktemp("people")
    (place / "tables").mkdir()
    rng = np.random.default_rng(0)
    with (place / "tables/vertices.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "a", "b", "label", "split"])
        splits = ["train", "train", "val", "test"]
        rows.writerows(
            [name_of(v), v % 2 + rng.normal() / 9, rng.normal(), ("cat", "dog")[v % 2], splits[v % 4]]
            for v in range(PEOPLE)
        )
    with (place / "tables/edges.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "target"])
        rows.writerows([name_of(u), name_of((u + 2 * d) % PEOPLE)] for u in range(PEOPLE) for d in (1, 2, 3))
    for options, name in (([], "data"), (["--split-edges", "0.8,0.1,0.1"], "links")):
        assert prepare(["import", str(place / "tables"), str(place / f"{name}.h5"), *options]) == 0
        assert prepare(["partition", str(place / f"{name}.h5"), str(place / name), "--parts", "2"]) == 0
        more = ["--task", "link"] if options else []
        train = ["train", str(place / name), "--run", str(place / f"run-{name}"), "--hidden", "8", "--epochs", "2"]
        assert main([*train, "--fanout", "5,5", "--threads", "1", *more]) == 0
    return place


@pytest.fixture
def predict(folder, capsys):
    """Run predict on the dataset called `name`, with its run; returns what it printed as JSON."""

    def run(name, *arguments):
        capsys.readouterr()
        code = main(["predict", str(folder / name), str(folder / f"run-{name}"), *map(str, arguments), "--json"])
        output, errors = capsys.readouterr()
        return json.loads(output.splitlines()[-1]) if code == 0 else errors

    return run


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_classes_and_vertices_have_their_names(predict, tmp_path):
    predict("data", "--out", tmp_path / "c.csv", "--what", "classes")
    rows = rows_of(tmp_path / "c.csv")
    assert [row["vertex"] for row in rows] == [name_of(v) for v in range(PEOPLE)]
    assert [path.name for path in tmp_path.iterdir()] == ["c.csv"]
    predict("data", "--out", tmp_path / "c.npy", "--what", "classes")
    assert [row["class"] for row in rows] == [("cat", "dog")[each] for each in np.load(tmp_path / "c.npy")]


def test_every_format_has_the_same_numbers(predict, tmp_path):
    for suffix in ("csv", "h5", "npy"):
        predict("data", "--out", tmp_path / f"l.{suffix}")
    rows, numbers = rows_of(tmp_path / "l.csv"), np.load(tmp_path / "l.npy")
    assert list(rows[0]) == ["vertex", "logit_cat", "logit_dog"]
    text = [[float(row["logit_cat"]), float(row["logit_dog"])] for row in rows]
    np.testing.assert_allclose(text, numbers, rtol=1e-6)
    with h5py.File(tmp_path / "l.h5") as file:
        np.testing.assert_array_equal(file["predictions"], numbers)
        assert [name.decode() for name in file["names"][:]] == [name_of(v) for v in range(PEOPLE)]
        assert json.loads(file.attrs["class_names"]) == ["cat", "dog"]


def test_parquet_has_names(predict, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    predict("data", "--out", tmp_path / "c.parquet", "--what", "classes")
    rows = parquet.read_table(tmp_path / "c.parquet").to_pylist()
    assert [row["name"] for row in rows] == [name_of(v) for v in range(PEOPLE)]
    assert all(row["class_name"] == ("cat", "dog")[row["class"]] for row in rows)


def test_a_page_about_the_data_names_vertices(folder, tmp_path):
    for data in ("data", "data.h5"):
        assert prepare(["report", str(folder / data), "-o", str(tmp_path / "d.html")]) == 0
        # All have six neighbours; the first ones are shown.
        expected = ", ".join(f"{name_of(vertex)} (6)" for vertex in range(5))
        assert f"<th>largest in-degrees</th><td>{expected}</td>" in (tmp_path / "d.html").read_text()


def test_vertices_are_chosen_by_name(predict, tmp_path):
    (tmp_path / "some.txt").write_text(f"{name_of(9)}\n{name_of(2)}\n")
    predict("data", "--out", tmp_path / "c.csv", "--vertices", tmp_path / "some.txt")
    assert [row["vertex"] for row in rows_of(tmp_path / "c.csv")] == [name_of(9), name_of(2)]
    (tmp_path / "some.txt").write_text(f"{name_of(9)}\nnobody\n")
    said = predict("data", "--out", tmp_path / "d.csv", "--vertices", tmp_path / "some.txt")
    assert "some.txt, line 2: 'nobody' is not a name of a vertex" in said
    said = predict("data", "--out", tmp_path / "d.csv", "--vertices", "1,2")
    assert "--vertices 1,2: cannot be read (No such file or directory); give a file with a vertex on each line" in said
    assert not (tmp_path / "d.csv").exists()


def test_vectors_of_a_link_run_are_called_embeddings(predict, tmp_path):
    assert predict("links", "--out", tmp_path / "e.h5")["what"] == "embeddings"
    with h5py.File(tmp_path / "e.h5") as file:
        assert file.attrs["what"] == "embeddings"
    predict("links", "--out", tmp_path / "e.csv")
    assert list(rows_of(tmp_path / "e.csv")[0])[:2] == ["vertex", "embedding_0"]


def test_pairs_are_scored_by_their_embeddings(predict, tmp_path):
    predict("links", "--out", tmp_path / "e.npy")
    embeddings = np.load(tmp_path / "e.npy")
    pairs = [(0, 1), (5, 40), (40, 5), (7, 7), (0, 1)]
    (tmp_path / "pairs.csv").write_text("source,target\n" + "".join(f"{name_of(u)},{name_of(v)}\n" for u, v in pairs))
    found = predict("links", "--out", tmp_path / "s.csv", "--pairs", tmp_path / "pairs.csv")
    assert (found["what"], found["rows"], found["columns"]) == ("scores", 5, 1)
    rows = rows_of(tmp_path / "s.csv")
    assert [(row["source"], row["destination"]) for row in rows] == [(name_of(u), name_of(v)) for u, v in pairs]
    expected = [embeddings[u] @ embeddings[v] for u, v in pairs]
    np.testing.assert_allclose([float(row["score"]) for row in rows], expected, rtol=1e-4, atol=1e-6)
    np.save(tmp_path / "pairs.npy", np.array(pairs))
    predict("links", "--out", tmp_path / "s.h5", "--pairs", tmp_path / "pairs.npy")
    with h5py.File(tmp_path / "s.h5") as file:
        assert file["pairs"][:].tolist() == [list(pair) for pair in pairs]
        np.testing.assert_allclose(file["scores"][:], expected, rtol=1e-4, atol=1e-6)


def test_best_partners_are_no_neighbours(predict, folder, tmp_path):
    predict("links", "--out", tmp_path / "e.npy")
    scores = (embeddings := np.load(tmp_path / "e.npy")) @ embeddings.T
    np.fill_diagonal(scores, -np.inf)
    dataset = open_dataset(folder / "links")
    parts = [dataset.part(number) for number in range(2)]
    ids = np.concatenate([part.original_id for part in parts])
    for part in parts:
        ends = np.repeat(part.original_id, np.diff(part.indptr))
        scores[ids[part.indices], ends] = -np.inf
    (tmp_path / "some.txt").write_text(f"{name_of(9)}\n{name_of(2)}\n{name_of(9)}\n")
    predict("links", "--out", tmp_path / "t.csv", "--top", 4, "--vertices", tmp_path / "some.txt")
    rows = rows_of(tmp_path / "t.csv")
    assert [row["source"] for row in rows] == [name_of(v) for v in (9, 2, 9) for _ in range(4)]
    for start, vertex in ((0, 9), (4, 2)):
        best = np.sort(scores[vertex])[::-1][:4]
        np.testing.assert_allclose([float(row["score"]) for row in rows[start : start + 4]], best, rtol=1e-4, atol=1e-6)
        assert name_of(vertex) not in {row["destination"] for row in rows[start : start + 4]}
    assert rows[8:] == rows[:4]
    # Of all vertices, and more than there are.
    assert predict("links", "--out", tmp_path / "a.h5", "--top", 1000)["rows"] == np.isfinite(scores).sum()


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("data", "--out s.csv --pairs p.npy", "--pairs: the task multi-class scores no pairs; train with --task link"),
        ("data", "--out s.csv --top 3", "--top: the task multi-class scores no pairs"),
        ("links", "--out s.npy --pairs p.npy", "--out s.npy: with --pairs p.npy the name has to end in .h5 or .csv"),
        ("links", "--out s.csv --pairs p.npy --top 2", "give either --pairs or --top 2"),
        ("links", "--out s.csv --top 2 --what logits", "scores of pairs have no --what"),
        ("links", "--out s.csv --pairs none.npy", "--pairs none.npy: no ids can be read (No such file or directory)"),
        (
            "links",
            "--out s.csv --pairs wide.npy",
            "wide.npy: it holds int64 of shape [1, 3]; expected whole numbers [k, 2]",
        ),
        (
            "links",
            "--out s.csv --pairs far.npy",
            "--pairs far.npy: entry 1 names vertex 600, which the graph does not have",
        ),
        ("links", "--out s.csv --pairs short.txt", "short.txt, line 2: expected 2 vertices, found 1"),
    ],
)
def test_refused(predict, tmp_path, monkeypatch, name, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    np.save("p.npy", np.array([[0, 1]]))
    np.save("wide.npy", np.array([[0, 1, 2]]))
    np.save("far.npy", np.array([[0, 600]]))
    (tmp_path / "short.txt").write_text(f"{name_of(0)} {name_of(1)}\n{name_of(2)}\n")
    said = predict(name, *arguments.split())
    assert sentence in said
    assert said.count("\n") == 1
    assert not (tmp_path / "s.csv").exists()


def test_a_dataset_without_its_names_has_numbers(folder, tmp_path, capsys):
    file = folder / "data/vertex-names.txt"
    text = file.read_text()
    file.unlink()
    try:
        capsys.readouterr()
        words = ["--out", str(tmp_path / "c.csv"), "--what", "classes"]
        assert main(["predict", str(folder / "data"), str(folder / "run-data"), *words]) == 0
        said = capsys.readouterr()
        assert (said.out + said.err).count("vertex-names.txt, the names of the vertices of") == 1
        assert [row["vertex"] for row in rows_of(tmp_path / "c.csv")] == list(map(str, range(PEOPLE)))
        assert prepare(["check", str(folder / "data")]) != 0
    finally:
        file.write_text(text)
    assert prepare(["check", str(folder / "data")]) == 0
    assert load_run(folder / "run-data").finished


def test_graph_files_of_one_stem_have_names_of_their_own(folder, tmp_path):
    for suffix in ("h5", "hdf5"):
        assert prepare(["import", str(folder / "tables"), str(tmp_path / f"g.{suffix}")]) == 0
    assert (tmp_path / "g.names.txt").exists()
    assert (tmp_path / "g.hdf5.names.txt").exists()
