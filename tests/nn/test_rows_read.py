"""Rows that are read, and their numbers among these, in the light of numpy."""

import numpy as np
import pytest
import torch

from leapmpi.nn.sum_layer import rows_read


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("lengths", [(0, 0), (1, 0), (0, 3), (40, 7), (500, 500)])
def test_they_are_the_distinct_numbers(lengths, dtype):
    torch.manual_seed(1)
    numbers = [torch.randint(90, (length,), dtype=dtype) for length in lengths]
    read = rows_read(numbers, 100)
    distinct = np.unique(torch.cat(numbers).numpy())
    assert read.rows.tolist() == distinct.tolist()
    for each in numbers:
        found = read.numbers(each)
        assert found.dtype == dtype
        assert torch.equal(read.rows[found.long()], each.long())
