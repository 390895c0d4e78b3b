"""Speed-ups come with intervals, the same for the same epochs."""

import numpy as np

from leapmpi.report.sections.comparison import speed_up


def test_an_interval_holds_the_true_ratio_and_is_the_same_again():
    generator = np.random.default_rng(3)
    slow, fast = generator.normal(2.0, 0.02, 12), generator.normal(1.0, 0.02, 12)
    found = speed_up(slow, fast)
    assert found.low < 2.0 < found.high
    assert found == speed_up(slow, fast)
    assert "no clear difference" not in found.text()


def test_equal_runs_do_not_differ():
    generator = np.random.default_rng(4)
    found = speed_up(generator.normal(1.0, 0.1, 9), generator.normal(1.0, 0.1, 9))
    assert "no clear difference" in found.text()


def test_few_epochs_give_no_interval():
    assert speed_up([2.0, 2.0], [1.0, 1.0, 1.0]).low is None
    assert speed_up([], [1.0]) is None
    assert speed_up([1.0], [0.0]) is None
