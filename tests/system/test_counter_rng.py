"""The hash under all draws: reference values, agreement with its twin, limits of keys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.errors import ConfigError
from leapmpi.system.counter_rng import DrawKey, bounded, fold, fold_all, key_hash, mix
from tests.support import twin

words = st.integers(0, 2**64 - 1)


def test_fold_gives_the_published_outputs_of_splitmix64():
    state = np.uint64(1234567)
    outputs = [fold(state, np.uint64(i)) for i in range(5)]
    assert outputs == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@settings(derandomize=True)
@given(words, words, st.integers(1, 2**32))
def test_kernels_agree_with_the_twin(base, word, n):
    assert mix(np.uint64(word)) == twin.mix(word)
    assert fold(np.uint64(base), np.uint64(word)) == twin.fold(base, word)
    assert bounded(np.uint64(word), np.int64(n)) == twin.bounded(word, n) < n


@settings(derandomize=True)
@given(words, st.integers(1, 2**63 - 1))
def test_wide_bounds_are_exact(word, n):
    assert bounded(np.uint64(word), np.int64(n)) == twin.bounded(word, n) < n


def test_signed_words_count_modulo_two_to_the_64():
    assert fold(np.uint64(3), -1) == twin.fold(3, 2**64 - 1)
    ids = np.array([-1, 0, 2**62], np.int64)
    expected = [twin.fold(9, int(i) % 2**64) for i in ids]
    assert fold_all(np.uint64(9), ids).tolist() == twin.fold_array(9, ids).tolist() == expected


def test_bounded_is_uniform():
    n, draws = 7, 70_000
    values = [bounded(h, n) for h in fold_all(np.uint64(1), np.arange(draws))]
    counts = np.bincount(values, minlength=n)
    assert len(counts) == n
    assert ((counts - draws / n) ** 2 / (draws / n)).sum() < 22.5  # chi-square, 6 degrees of freedom, p = 0.001


def test_key_hash_takes_large_words_and_tells_keys_apart():
    largest = 2**63 - 1
    keys = [DrawKey(s, d, e, i) for s in (1, 2) for d in (0, 1, largest) for e in (0, 1) for i in (0, 1, largest)]
    hashes = {int(key_hash(key)) for key in keys}
    assert hashes == {twin.key_hash(key) for key in keys}
    assert len(hashes) == len(keys)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "7", None])
def test_key_hash_refuses_words_that_would_collide_or_are_no_numbers(seed):
    with pytest.raises(ConfigError, match="seed must"):
        key_hash(DrawKey(1, seed, 0, 0))


def test_key_hash_takes_numpy_integers():
    assert key_hash(DrawKey(1, np.int64(5), np.int32(0), 0)) == key_hash(DrawKey(1, 5, 0, 0))
