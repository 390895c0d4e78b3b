"""Encoders of columns: statistics of some rows, and every value encoded by them, missing and new ones too."""

from statistics import NormalDist

import numpy as np
import pytest

from data_prep.database.encoder import ENCODERS, settled
from leapmpi.errors import ConfigError, DataError

pyarrow = pytest.importorskip("pyarrow")


def encoded(name, training, later, **options):
    """Encode `later` by the statistics of `training`, which come in two batches."""
    member = ENCODERS.load(name)
    statistics = member.statistics(settled(member, options, "column 'x'"), "column 'x'")
    half = len(training) // 2
    for some in (training.slice(0, half), training.slice(half)):
        statistics.take(some)
    state = statistics.state()
    found = member.encode(state, later, "column 'x'")
    assert found.dtype == np.float32
    assert found.shape == (len(later), member.width(state))
    assert np.isfinite(found).all()
    return found


def test_standard_equals_its_formula():
    values = np.array([3.0, 5.0, 1e6, -2.0, 7.5])
    found = encoded("standard", pyarrow.array(values), pyarrow.array([3.0, 9.0]))
    np.testing.assert_allclose(found[:, 0], (np.array([3.0, 9.0]) - values.mean()) / values.std(), rtol=1e-6)


def test_numbers_that_are_missing_or_infinite_have_a_column():
    training = pyarrow.array([1.0, None, 3.0, float("inf")])
    found = encoded("standard", training, pyarrow.array([None, 2.0, float("nan"), 1e300]))
    assert found.tolist() == [[0, 1], [0, 0], [0, 1], [100, 0]]


def test_a_constant_column_is_zero():
    assert encoded("standard", pyarrow.array([0.1] * 7), pyarrow.array([0.1])).tolist() == [[0]]
    assert encoded("rank-gauss", pyarrow.array([0.1] * 7), pyarrow.array([0.1, 9.0])).tolist() == [[0], [0]]


@pytest.mark.parametrize("name", ["standard", "log", "rank-gauss", "date"])
def test_a_column_without_a_training_value(name):
    found = encoded(name, pyarrow.array([None, None], pyarrow.float64()), pyarrow.array([None, 1.0]))
    assert found[0, -1] == 1
    assert found[1, -1] == 0


def test_rank_gauss_makes_any_distribution_normal():
    values = np.random.default_rng(0).exponential(5, 20_000) ** 3
    found = encoded("rank-gauss", pyarrow.array(values), pyarrow.array(np.quantile(values, [0.1, 0.5, 0.9])))
    np.testing.assert_allclose(found[:, 0], [NormalDist().inv_cdf(each) for each in (0.1, 0.5, 0.9)], atol=0.03)


def test_one_hot_keeps_the_most_frequent_and_has_codes_for_new_and_missing():
    training = pyarrow.array(["b", "a", "b", None, "c", "a"])
    found = encoded("one-hot", training, pyarrow.array(["a", "b", "c", "new", None]), most=2)
    assert found.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_whole_numbers_are_the_same_categories_where_some_are_missing():
    training = pyarrow.array([5, 7, 5])
    found = encoded("one-hot", training, pyarrow.array([5.0, None, 7.0]))
    assert found.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_numbers_that_int64_does_not_hold_are_categories():
    training = pyarrow.array([5.0, 1e300, float("inf")])
    found = encoded("one-hot", training, pyarrow.array([1e300, 5.0, float("inf")]))
    assert found.argmax(axis=1).tolist() == [
        encoded("one-hot", training, pyarrow.array([each]))[0].argmax() for each in (1e300, 5.0, float("inf"))
    ]
    assert len(set(found.argmax(axis=1))) == 3


def test_several_categories_of_a_row():
    training = pyarrow.array(["x|y", "z", None, "x"])
    expected = [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]
    later = pyarrow.array(["y|x", "z|q", None])
    assert encoded("one-hot", training, later, separator="|").tolist() == expected
    lists = pyarrow.array([["x", "y"], ["z"], None, ["x"]])
    later = pyarrow.array([["y", "x"], ["z", "q"], None])
    assert encoded("one-hot", lists, later).tolist() == expected


def test_hashed_tells_categories_apart():
    words = pyarrow.array([f"word {v}" for v in range(200)])
    found = encoded("hashed", words, words, columns=64)
    assert (np.abs(found).sum(axis=1) == 1).all()
    assert len(np.unique(found, axis=0)) > 90
    both = encoded("hashed", words, pyarrow.array(["word 1,word 2"]), columns=64, separator=",")
    np.testing.assert_array_equal(both[0], found[1] + found[2])


@pytest.mark.parametrize(("yes", "no"), [(True, False), ("yes", "no"), (1, 0), ("T", "F")])
def test_boolean(yes, no):
    column = pyarrow.array([yes, no, None])
    assert encoded("boolean", column, column).tolist() == [[1], [-1], [0]]


def test_dates_have_cyclic_parts():
    days = pyarrow.array([0, 86_400 * 7, 86_400 * 14])
    found = encoded("date", days, pyarrow.array([86_400 * 21, 86_400 * 3]))
    assert found.shape == (2, 5)
    np.testing.assert_allclose(found[0, 3:], encoded("date", days, days)[0, 3:], atol=1e-6)
    hours = pyarrow.array([3_600, 7_200])
    assert encoded("date", hours, hours).shape == (2, 7)


def test_vectors_of_one_length():
    lists = pyarrow.array([[1.0, 2.0], None, [3.0, 4.0]])
    assert encoded("vector", lists, lists).tolist() == [[1, 2, 0], [0, 0, 1], [3, 4, 0]]
    with pytest.raises(DataError, match="has not 2 numbers"):
        encoded("vector", lists, pyarrow.array([[1.0]]))


def test_unknown_options_are_refused():
    member = ENCODERS.load("hashed")
    with pytest.raises(ConfigError, match="option 'size' is none of columns, separator"):
        settled(member, {"size": 3}, "column 'x'")


WORDS = """
import numpy as np

def vectors(texts):
    return np.array([[len(text), text.count("a")] for text in texts])

def ragged(texts):
    return [0.5] * len(texts)

def infinite(texts):
    return np.full((len(texts), 2), np.inf)

def fails(texts):
    return {}[texts[0]]
"""


@pytest.fixture
def words(tmp_path):
    (tmp_path / "words.py").write_text(WORDS)
    return f"{tmp_path / 'words.py'}:"


def test_a_function_makes_vectors_of_texts(words):
    training, later = pyarrow.array([None, "banana", "kiwi"]), pyarrow.array(["papaya", None, ""])
    found = encoded("text", training, later, function=f"{words}vectors")
    assert found.tolist() == [[6, 3, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("ragged", DataError, r"returned an array of shape \(1,\); expected 1 row of equally many numbers"),
        ("infinite", DataError, "float64 that are not all finite numbers"),
        ("fails", DataError, "failed: KeyError: 'banana', at words.py, line 14, in fails"),
        ("vector", ConfigError, "defines no vector; did you mean 'vectors'"),
    ],
)
def test_functions_that_make_no_vectors_are_refused(function, error, message, words):
    with pytest.raises(error, match=message):
        encoded("text", pyarrow.array(["banana", "kiwi"]), pyarrow.array([]), function=f"{words}{function}")


def test_a_text_needs_a_function():
    with pytest.raises(ConfigError, match="text needs a function"):
        encoded("text", pyarrow.array(["a"]), pyarrow.array(["a"]))
