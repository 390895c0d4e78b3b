"""What crosses from the ranks that prepare to those that compute comes out as it went in."""

import numpy as np

from leapmpi.engine.disaggregated.prepared_share import ROWS, SPARSE_ROWS, PreparedShare, packed, unpacked
from leapmpi.sampling.block import Block


def same(got, wanted):
    if wanted is None:
        assert got is None
        return
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def test_arrays_of_any_type_and_shape_come_back():
    arrays = [
        np.arange(5, dtype=np.int32), None, np.ones((2, 3)), np.empty((0, 4), np.float32), np.array([True, False]),
        np.arange(7, dtype=np.uint8), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.float16([1.5]),
    ]  # fmt: skip
    found = unpacked(packed(arrays))
    assert len(found) == len(arrays)
    for got, wanted in zip(found, arrays, strict=True):
        same(got, wanted)


def test_a_share_comes_back_with_weights_features_of_edges_and_sparse_rows():
    rng = np.random.default_rng(0)
    src = np.array([7, 3, 9], np.int64)
    block = Block(
        1, 2, src, np.array([0, 2, 3]), np.array([2, 1, 0], np.int32), src * 3, src + 1,
        rng.random(3, np.float32), None, rng.random(3, np.float32), rng.random(2), rng.random(3),
    )  # fmt: skip
    plain = Block(0, 1, src[:2], np.array([0, 1]), np.array([1], np.int32), src[:1], src[:1])
    features = [rng.random((1, 3)), rng.random((3, 3))]
    sparse = (np.array([0, 1, 1, 2]), np.array([4, 0], np.int32), rng.random(2))
    for weights in (0.25, rng.random(2)):
        for edge_features, entries in ((features, sparse), (None, sparse), (features, ()), (None, ())):
            form = SPARSE_ROWS if entries else ROWS
            share = PreparedShare(form, [plain, block], np.array([3, 1]), weights, edge_features, entries)
            found = PreparedShare.from_bytes(share.to_bytes())
            assert (found.form, type(found.weights)) == (form, type(weights))
            np.testing.assert_array_equal(found.weights, weights)
            same(found.labels, share.labels)
            for got, wanted in zip(found.blocks, share.blocks, strict=True):
                assert (got.hop, got.n_dst, got.n_src, got.edges) == (
                    wanted.hop,
                    wanted.n_dst,
                    wanted.n_src,
                    wanted.edges,
                )
                for name in set(vars(wanted)) - {"hop", "n_dst", "src", "edge_numbers"}:
                    same(getattr(got, name), getattr(wanted, name))
            assert (found.edge_features is None) == (edge_features is None)
            for got, wanted in zip(found.edge_features or [], edge_features or [], strict=True):
                same(got, wanted)
            assert len(found.rows) == len(entries)
            for got, wanted in zip(found.rows, entries, strict=True):
                same(got, wanted)
