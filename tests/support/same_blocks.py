"""Whether blocks hold the same bits, wherever they lie."""

from collections.abc import Sequence

import numpy as np

from leapmpi.sampling.block import Block

FIELDS = (
    *("src", "indptr", "indices", "src_original", "src_degree", "weight"),
    *("edge_numbers", "edge_weight", "drawn_weight", "src_weight_sum", "relation"),
)


def same_blocks(found: Sequence[Block], expected: Sequence[Block]) -> None:
    """Assert that all arrays are equal, and of the same types."""
    for block, plain in zip(found, expected, strict=True):
        assert (block.hop, block.n_dst) == (plain.hop, plain.n_dst)
        for name in FIELDS:
            mine, theirs = getattr(block, name), getattr(plain, name)
            assert (mine is None) == (theirs is None), name
            if theirs is not None:
                assert mine.dtype == theirs.dtype, name
                np.testing.assert_array_equal(mine, theirs, err_msg=name)
