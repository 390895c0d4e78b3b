"""Random words in torch operations are those of the compiled kernels, to the bit."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.device.hashing import bounded, bounded_wide, fold, in_order, multiple_of_share, signed
from leapmpi.system import counter_rng

words = st.integers(0, 2**64 - 1)


def unsigned(tensor):
    return [int(each) % 2**64 for each in tensor]


@settings(deadline=None, max_examples=100)
@given(words, st.lists(st.integers(0, 2**63 - 1), min_size=1, unique=True), st.integers(1, 2**32))
def test_words_are_those_of_the_kernels(base, names, n):
    found = fold(signed(base), torch.tensor(names))
    expected = [int(counter_rng.fold(np.uint64(base), name)) for name in names]
    assert unsigned(found) == expected
    assert bounded(found, n).tolist() == [(each * n) >> 64 for each in expected]
    assert bounded_wide(found, torch.tensor(n * 2**29 + 7)).tolist() == [
        (each * (n * 2**29 + 7)) >> 64 for each in expected
    ]
    assert in_order(found).argsort().tolist() == np.argsort(np.array(expected, np.uint64)).tolist()


@given(st.integers(1, 2**40), st.integers(0, 2**40))
def test_shares_of_all_words(parts, count):
    count = min(count, parts)
    (found,) = unsigned(multiple_of_share(torch.tensor([parts]), torch.tensor([count])))
    assert found == (2**64 - 1) // parts * count
