"""Synthetic graphs: the sizes asked for, the same for the same seed, and learnable."""

import numpy as np
import pytest

from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.graph_file import open_graph


@pytest.fixture
def made(prep, tmp_path):
    def run(*arguments):
        target = tmp_path / "synthetic.h5"
        outcome = prep("synth", target, "--overwrite", *arguments)
        assert outcome.code == 0, outcome.error
        return open_graph(target)

    return run


SIZES = ("--vertices", 3000, "--edges", 24000, "--features", 40, "--classes", 6)


def test_sizes(made):
    graph = made(*SIZES, "--train", 0.5)
    assert graph.vertices == 3000
    assert graph.edges == 48000
    assert graph.features.shape == (3000, 40)
    assert graph.features.dtype == np.float32
    assert graph.classes == 6
    assert np.bincount(graph.split).tolist() == [0, 1500, 750, 750]
    assert set(np.unique(graph.labels)) == set(range(6))
    assert graph.attributes["source"] == "synthetic"
    assert "--train 0.5" in graph.attributes["command"]


def test_seed_decides_everything(made):
    first = content_uuid(made(*SIZES, "--seed", 3))
    assert content_uuid(made(*SIZES, "--seed", 3)) == first
    assert content_uuid(made(*SIZES, "--seed", 4)) != first


def row_of(graph):
    return np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))


def test_mixing_and_strays_make_edges_leave_their_class(made):
    def homophily(*arguments):
        graph = made(*SIZES, *arguments)
        labels = np.asarray(graph.labels)
        return (labels[row_of(graph)] == labels[graph.indices]).mean()

    assert homophily("--mixing", 0, "--strays", 0) == 1
    assert homophily("--mixing", 1, "--strays", 0) == pytest.approx(1 / 6, abs=0.05)
    assert homophily() == pytest.approx(0.72, abs=0.08)


def test_degrees_have_a_heavy_tail(made):
    degree = np.diff(made(*SIZES).indptr)
    assert degree.max() > 8 * degree.mean()
    assert np.median(degree) < degree.mean()


def nearest_mean_accuracy(x, graph):
    labels, split = np.asarray(graph.labels), np.asarray(graph.split)
    mean = np.stack([x[(labels == label) & (split == 1)].mean(axis=0) for label in range(graph.classes)])
    test = split == 3
    guess = ((x[test, None] - mean) ** 2).sum(axis=2).argmin(axis=1)
    return (guess == labels[test]).mean()


def test_neighbours_tell_more_than_features_alone(made):
    graph = made(*SIZES)
    x = np.asarray(graph.features)
    around = np.zeros_like(x)
    np.add.at(around, row_of(graph), x[graph.indices])
    around /= np.maximum(np.diff(graph.indptr), 1)[:, None]
    alone, together = nearest_mean_accuracy(x, graph), nearest_mean_accuracy(around, graph)
    assert 1.5 / 6 < alone < 0.7
    assert together > alone + 0.1
    assert together < 0.97


def test_no_features(made):
    graph = made("--vertices", 50, "--edges", 100, "--features", 0, "--classes", 2)
    assert graph.features is None
    assert graph.edges == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--vertices", 10, "--edges", 46), "only 45 pairs"),
        (("--vertices", 20, "--edges", 150, "--communities", 10, "--classes", 2, "--mixing", 0), "do not fit"),
        (("--classes", 10, "--communities", 4), "--communities 4"),
        (("--vertices", 10, "--edges", 9, "--classes", 11), "--classes 11"),
        (("--mixing", 1.5), "'1.5' is not a number from 0.0 to 1.0"),
        (("--signal", "nan"), "'nan' is not a number"),
        (("--vertices", 1), "'1' is not a whole number from 2 on"),
        (("--vertex", 1), "did you mean '--vertices'?"),
    ],
)
def test_refused(prep, tmp_path, arguments, said):
    outcome = prep("synth", tmp_path / "g.h5", *arguments)
    assert outcome.code in (2, 3)
    assert said in outcome.error
    assert outcome.error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
