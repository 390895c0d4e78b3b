"""Scores taken apart by class, degree and part add up to those of all."""

import numpy as np
import pytest

from leapmpi.scoring.breakdown import ScoredVertices, breakdown


def scored(outputs, labels, degrees=None, parts=None):
    count = len(outputs)
    degrees, parts = degrees or [1] * count, parts or [0] * count
    return ScoredVertices(np.array(outputs, float), np.array(labels), np.array(degrees), np.array(parts))


def test_classes_degrees_and_parts():
    own = scored(
        [[2, 1], [0, 1], [3, 1], [0, 5], [1, 0]], [0, 1, 1, 1, -1], degrees=[0, 1, 10, 11, 5], parts=[0, 0, 1, 3, 1]
    )
    found = breakdown(own, "multi-class", 4, lambda sums: None)
    assert found["classes"] == {"right": [1, 2], "wrongly": [1, 0], "missed": [0, 1]}
    assert found["confusion"] == [[0, 0, 1], [1, 0, 1], [1, 1, 2]]
    assert found["by_degree"] == [["0", 1, 1.0], ["1", 1, 1.0], ["2-10", 1, 0.0], ["11-100", 1, 1.0]]
    assert found["by_part"] == [["0", 2, 1.0], ["1", 1, 0.0], ["3", 1, 1.0]]


def test_ranks_add_up():
    halves = [scored([[2, 1]], [0]), scored([[2, 1]], [1])]
    sums = []
    for half in halves:
        breakdown(half, "multi-class", 1, lambda each: sums.append(each.copy()))

    def sum_up(own):
        own[:] = sum(sums)

    found = breakdown(halves[0], "multi-class", 1, sum_up)
    assert found == breakdown(scored([[2, 1], [2, 1]], [0, 1]), "multi-class", 1, lambda each: None)


def test_labels_and_targets():
    labels = scored([[1.0, -1.0], [1.0, 1.0]], [[1, 0], [0, np.nan]])
    found = breakdown(labels, "multi-label", 1, lambda sums: None)
    assert found["by_part"] == [["0", 2, 0.5]]
    assert found["classes"] == {"right": [1, 0], "wrongly": [1, 0], "missed": [0, 0]}
    targets = scored([[1.0], [3.0]], [[2.0], [np.nan]])
    found = breakdown(targets, "regression", 1, lambda sums: None)
    assert found["by_part"] == [["0", 1, 1.0]]
    assert "classes" not in found


@pytest.mark.parametrize(("classes", "names"), [(64, {"classes", "confusion"}), (65, {"classes"}), (1025, set())])
def test_of_many_classes_less_is_kept(classes, names):
    found = breakdown(scored(np.eye(classes), range(classes)), "multi-class", 200, lambda sums: None)
    assert set(found) - {"measure", "by_degree", "by_part"} == names
    assert found["by_part"] == [["0-3", classes, 1.0]]
