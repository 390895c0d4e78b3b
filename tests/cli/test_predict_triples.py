"""A knowledge graph from files of triples to predicted links, in the names of the source."""

import csv
import json
import shutil
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from data_prep.cli import main as prepare
from leapmpi.cli.main import main
from leapmpi.dataset.names_of_vertices import VertexNames
from leapmpi.errors import DataError
from leapmpi.inference.prediction.prediction_request import PredictionRequest
from leapmpi.runs.run import load_run

pytestmark = pytest.mark.compiles

ENTITIES, RELATIONS = 40, ("knows", "likes", "leads")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset of triples in two parts, and a run of rows alone."""
    place = tmp_path_factory.mktemp("triples")
    random = np.random.default_rng(0)
    triples = {
        (f"e{h:02d}", RELATIONS[r], f"e{(h + 3 * r + d) % ENTITIES:02d}")
        for h in range(ENTITIES)
        for r in range(3)
        for d in (1, 2)
    }
    ordered = random.permutation(sorted(triples)).tolist()
    (place / "kg").mkdir()
    for name, part in (("train", ordered[20:]), ("valid", ordered[:10]), ("test", ordered[10:20])):
        (place / f"kg/{name}.txt").write_text("".join("\t".join(each) + "\n" for each in part))
    assert prepare(["import", str(place / "kg"), str(place / "kg.h5"), "--add-reverse"]) == 0
    assert prepare(["partition", str(place / "kg.h5"), str(place / "data"), "--parts", "2"]) == 0
    train = ["train", str(place / "data"), "--task", "link", "--model", "embedding", "--hidden", "8", "--fanout", "1"]
    train += ["--relation-fanout", "*=0", "--scorer", "complex", "--loss", "cross-entropy", "--negatives", "shared"]
    train += ["--negatives-per-edge", "40", "--metric", "mrr", "--eval-negatives", "all", "--epochs", "30"]
    train += ["--batch-size", "64", "--lr", "0.05", "--dropout", "0", "--eval-every", "10", "--threads", "1"]
    assert main([*train, "--run", str(place / "run")]) == 0
    # Ends after 20 epochs, and goes on from the checkpoint, with all rows in files.
    in_files = [*train, "--run", str(place / "files"), "--feature-memory", "8K"]
    assert main([*in_files, "--epochs", "20"]) == 0
    assert main(in_files) == 0
    return place


def predicted(folder, *arguments) -> int:
    return main(["predict", str(folder / "data"), str(folder / "run"), *map(str, arguments)])


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_rows_and_vectors_learn_the_pattern(folder):
    assert "sampled" not in (folder / "run/log.txt").read_text()
    # Tails are h + 1 or h + 2, shifted by relation; by chance the rank of an edge is some 20 of 40.
    assert json.loads((folder / "run/summary.json").read_text())["best"]["val"] > 0.3


def test_rows_in_files_learn_the_same(folder, tmp_path):
    assert "learned rows are in unnamed files in " in (folder / "files/log.txt").read_text()
    runs = [load_run(folder / name) for name in ("run", "files")]
    for which in ("final", "best"):
        ours, theirs = (each.weights(which) for each in runs)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    found = []
    for name in ("run", "files"):
        out = tmp_path / f"{name}.npy"
        assert main(["predict", str(folder / "data"), str(folder / name), "--out", str(out)]) == 0
        found.append(np.load(out))
    assert np.array_equal(*found)


def test_pairs_are_scored_by_the_formula_and_partners_are_the_best_of_them(folder, tmp_path):
    assert predicted(folder, "--out", tmp_path / "e.npy") == 0
    rows, found = np.load(tmp_path / "e.npy").astype(np.float64), {}
    with h5py.File(folder / "run/weights-best.h5") as weights:
        weights.visititems(lambda name, each: found.update({name: each[()]}) if hasattr(each, "shape") else None)
    vectors = next(value for name, value in found.items() if name.endswith("scorer.relation"))

    def score(h: int, r: int, t: int) -> float:
        u, v, w = (each[:4] + 1j * each[4:] for each in (rows[h], rows[t], vectors[r].astype(np.float64)))
        return float((u * w * v.conj()).sum().real)

    pairs = [(0, 1), (5, 30), (30, 5)]
    (tmp_path / "pairs.txt").write_text("".join(f"e{h:02d}\te{t:02d}\n" for h, t in pairs))
    relation = 2  # in the order of names: knows, leads, likes
    given = "--relation", "entity:likes:entity"
    assert predicted(folder, "--out", tmp_path / "s.csv", "--pairs", tmp_path / "pairs.txt", *given) == 0
    found = rows_of(tmp_path / "s.csv")
    assert [(row["source"], row["destination"]) for row in found] == [(f"e{h:02d}", f"e{t:02d}") for h, t in pairs]
    wanted = [score(h, relation, t) for h, t in pairs]
    np.testing.assert_allclose([float(row["score"]) for row in found], wanted, rtol=1e-4, atol=1e-5)

    (tmp_path / "some.txt").write_text("e07\n")
    assert predicted(folder, "--out", tmp_path / "t.csv", "--top", 3, "--vertices", tmp_path / "some.txt", *given) == 0
    train = [line.split("\t") for line in (folder / "kg/train.txt").read_text().splitlines()]
    known = {tail for head, name, tail in train if (head, name) == ("e07", "likes")} | {"e07"}
    others = [f"e{t:02d}" for t in range(ENTITIES) if f"e{t:02d}" not in known]
    best = sorted(others, key=lambda name: -score(7, relation, int(name[1:])))[:3]
    assert [row["destination"] for row in rows_of(tmp_path / "t.csv")] == best
    # The name alone says which relation it is, as in files of edges.
    few = ["--top", 3, "--vertices", tmp_path / "some.txt", "--relation", "likes"]
    assert predicted(folder, "--out", tmp_path / "n.csv", *few) == 0
    assert rows_of(tmp_path / "n.csv") == rows_of(tmp_path / "t.csv")


def test_vertices_of_a_typed_graph_are_given_by_name(folder, tmp_path, capsys):
    assert predicted(folder, "--out", tmp_path / "all.npy") == 0
    (tmp_path / "some.txt").write_text("e30\ne05\n")
    assert predicted(folder, "--out", tmp_path / "some.npy", "--vertices", tmp_path / "some.txt") == 0
    assert np.array_equal(np.load(tmp_path / "some.npy"), np.load(tmp_path / "all.npy")[[30, 5]])
    np.save(tmp_path / "ids.npy", [30, 5])
    assert predicted(folder, "--out", tmp_path / "by-id.npy", "--vertices", tmp_path / "ids.npy") == 0
    assert np.array_equal(np.load(tmp_path / "by-id.npy"), np.load(tmp_path / "some.npy"))
    (tmp_path / "some.txt").write_text("e30\nnobody\n")
    assert predicted(folder, "--out", tmp_path / "n.npy", "--vertices", tmp_path / "some.txt") != 0
    assert "line 2: 'nobody' is not a name of a vertex" in capsys.readouterr().err


def test_names_count_within_the_requested_type_and_those_of_another_are_refused(tmp_path):
    (tmp_path / "names.txt").write_text("".join(f"{kind}{number}\n" for kind in "ab" for number in range(3)))
    types = SimpleNamespace(bases=np.array([0, 3, 6]), vertices=[SimpleNamespace(name=each) for each in "ab"])
    names, given = VertexNames(tmp_path / "names.txt"), tmp_path / "given.txt"
    request = PredictionRequest(out=tmp_path / "o.npy", vertices=str(given))
    given.write_text("b2\nb0\n")
    assert request.wanted(SimpleNamespace(types=types), names, 1).tolist() == [2, 0]
    given.write_text("b2\na1\n")
    with pytest.raises(DataError, match="'a1' is of type a; give vertices of type b, or --type a"):
        request.wanted(SimpleNamespace(types=types), names, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--out s.csv --top 3", "--relation is missing: pairs of a typed graph have one; leapmpi-prep info lists them"),
        ("--out s.csv --top 3 --relation hates", "--relation hates: the graph has no such relation"),
        ("--out e.h5 --relation entity:knows:entity", "it is that of pairs; add --pairs FILE or --top K"),
        ("--out s.csv --top 3 --type entity --relation entity:knows:entity", "scores of pairs have no --type"),
        (
            "--out s.csv --top 3 --relation entity:rev_likes:entity",
            "give --relation entity:likes:entity, and the other",
        ),
        ("--out s.csv --pairs /dev/null --relation entity:likes:entity", "/dev/null: the file names no vertex; give 2"),
        ("--out s.csv --vertices train", "--vertices train: "),
    ],
)
def test_what_does_not_fit_is_refused(arguments, sentence, folder, capsys):
    assert predicted(folder, *arguments.split()) != 0
    assert sentence in capsys.readouterr().err


def test_scores_are_shown_by_relation(folder, capsys):
    command = ["evaluate", str(folder / "data"), str(folder / "run"), "--per-class", "--metric", "mrr,hits-3", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    for split in ("val", "test"):
        relations = found["relations"][split]
        assert set(relations) <= {f"entity:{name}:entity" for name in RELATIONS}
        assert sum(each["edges"] for each in relations.values()) == 10
        mean = sum(each["edges"] * each["mrr"] for each in relations.values()) / 10
        assert mean == pytest.approx(found["figures"][split]["mrr"])
    assert main(command[:-1]) == 0
    assert "relation" in capsys.readouterr().out


def test_names_other_than_those_of_the_dataset_are_refused(folder, tmp_path, capsys):
    shutil.copytree(folder / "data", tmp_path / "data")
    names = tmp_path / "data/vertex-names.txt"
    names.write_text("".join(reversed(names.read_text().splitlines(keepends=True))))
    command = ["predict", str(tmp_path / "data"), str(folder / "run"), "--out", str(tmp_path / "t.csv"), "--top", "3"]
    assert main([*command, "--relation", "entity:likes:entity"]) != 0
    assert "their digests differ" in capsys.readouterr().err


def test_without_edges_held_back_all_relations_are_trained_and_nothing_is_scored(folder, tmp_path):
    (tmp_path / "kg").mkdir()
    for name in ("train", "valid", "test"):
        lines = (folder / "kg/train.txt").read_text() if name == "train" else ""
        (tmp_path / f"kg/{name}.txt").write_text(lines)
    assert prepare(["import", str(tmp_path / "kg"), str(tmp_path / "kg.h5"), "--add-reverse"]) == 0
    assert prepare(["partition", str(tmp_path / "kg.h5"), str(tmp_path / "data"), "--parts", "1"]) == 0
    command = ["train", str(tmp_path / "data"), "--task", "link", "--model", "rgcn", "--hidden", "8", "--fanout", "3"]
    assert main([*command, "--epochs", "1", "--threads", "1", "--run", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run/summary.json").read_text())["best"]["val"] is None
