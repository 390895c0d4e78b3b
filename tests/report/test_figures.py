"""Figures are tables too; long lines are thinned."""

import numpy as np
import pytest

from leapmpi.report.figures import BarFigure, HeatFigure, Line, LineFigure, thinned
from leapmpi.report.numbers import BYTES, SCORE, SECONDS, SHARE, capital, shown, ticks
from leapmpi.report.page import drawn


def test_long_lines_become_means_of_equal_shares():
    x, y = thinned(np.arange(1000.0), np.arange(1000.0), 10)
    assert x.tolist() == [99.0, 199.0, 299.0, 399.0, 499.0, 599.0, 699.0, 799.0, 899.0, 999.0]
    assert y.tolist() == [49.5 + 100 * share for share in range(10)]
    assert len(thinned(np.arange(1001.0), np.ones(1001), 10)[0]) == 10


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "", "-"),
        (float("nan"), SECONDS, "-"),
        (0.12345, "", "0.123"),
        (3.0, "", "3"),
        (1234567.8, "", "1,234,568"),
        (1536, BYTES, "1.5 KiB"),
        (0.5, SHARE, "50.0 %"),
        (2.5, SECONDS, "2.5 s"),
        (1234.5, SECONDS, "1,234 s"),
        (7.24e-5, SECONDS, "72.4 µs"),
        (0.56, SCORE, "0.560"),
        (1, SCORE, "1.000"),
        (123.4, SCORE, "123"),
    ],
)
def test_numbers_read_well(value, unit, text):
    assert shown(value, unit) == text


def test_names_of_metrics_are_spelled_as_people_do():
    assert [capital(each) for each in ("accuracy", "auc", "f1-macro", "auc (sampled neighbours)")] == [
        "Accuracy", "AUC", "F1-macro", "AUC (sampled neighbours)",
    ]  # fmt: skip


def test_ticks_are_round():
    assert ticks(0, 1, 5) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(3, 3) == [3]


def test_lines_share_a_table():
    figure = LineFigure(
        *("loss", "Loss", "epoch", "loss"),
        [Line("a", np.array([1.0, 2.0]), np.array([0.5, np.nan])), Line("b", np.array([2.0]), np.array([0.25]))],
    )
    assert figure.table() == [["epoch", "a", "b"], ["1", "0.5", "-"], ["2", "-", "0.25"]]
    assert drawn(figure).count("<path") > 2


@pytest.mark.parametrize(
    "figure",
    [
        LineFigure("a", "A", "x", "y", [Line("l", np.array([1.0]), np.array([np.nan]))]),
        LineFigure("a", "A", "x", "y", [Line("l", np.array([1.0, 2.0]), np.array([5.0, 5.0]))]),
        BarFigure("b", "B", ["one"], [("s", [0.0])]),
        BarFigure("b", "B", ["one", "two"], [("s", [float("nan"), 1.0]), ("t", [1.0, 2.0])], stacked=False),
        HeatFigure("h", "H", np.zeros((2, 2)), ["0", "1"], ["0", "1"], "from", "to"),
        HeatFigure("h", "H", np.eye(64), [*map(str, range(64))], [*map(str, range(64))], "from", "to"),
    ],
)
def test_odd_figures_are_drawn(figure):
    found = drawn(figure)
    assert "<svg" in found
    assert "nan" not in found.lower()
    assert "inf" not in found.lower()
