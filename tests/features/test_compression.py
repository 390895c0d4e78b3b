"""Rows in fewer bytes: the compiled forms give the bits of numpy's and torch's, and errors are what was lost."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.features.compression import ENCODINGS, RowErrors, encoding_for
from leapmpi.features.host_shard import HostShard

pytestmark = pytest.mark.compiles

ODD = [
    *(0.0, -0.0, 1.0, -1.5, 3.4e38, -3.4e38, 65504.0, 65519.996, 65520.0, -1e6, 2.0**-14, 6.1e-5, 6e-8, 2.9e-8),
    *(1e-45, 1.1754944e-38, 3.3895314e38, 3.3961775e38, 1 / 3, 127.5, 1.00048828125, 1.00146484375),
]
FLOATS = st.one_of(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from(ODD))


def encoded_on_host(name, rows, ids=None, parts=1):
    """The bytes, what they decode to, and the errors; vertex ids start at 100."""
    encoding, errors = ENCODINGS[name], RowErrors()
    ids = np.arange(len(rows)) if ids is None else ids
    shard = HostShard(np.array_split(rows, parts), 100)
    out = np.empty((len(ids), encoding.row_bytes(rows.shape[1])), np.uint8)
    encoding.encode(shard.exact(ids + 100), out, errors)
    target = np.full((len(ids), rows.shape[1]), 9, np.float64)
    encoding.decode(out, target, np.arange(len(ids))[::-1])
    return out, target[::-1], errors


def encoded_by_torch(name, rows):
    encoding, errors = ENCODINGS[name], RowErrors()
    out = encoding.encode_tensor(torch.from_numpy(rows), errors)
    return out.numpy(), encoding.decode_tensor(out).numpy(), errors


@pytest.mark.parametrize("name", ENCODINGS)
@settings(max_examples=40)
@given(st.integers(1, 6), st.data())
def test_host_and_torch_give_the_same_bits_and_errors(name, width, data):
    rows = data.draw(st.lists(st.lists(FLOATS, min_size=width, max_size=width), min_size=1, max_size=5))
    rows = np.array(rows, np.float32)
    on_host, by_torch = encoded_on_host(name, rows), encoded_by_torch(name, rows)
    np.testing.assert_array_equal(on_host[0], by_torch[0])
    np.testing.assert_array_equal(on_host[1], by_torch[1])
    assert on_host[2].rows == by_torch[2].rows == len(rows)
    assert on_host[2].total == pytest.approx(by_torch[2].total, rel=1e-6)
    assert on_host[2].largest == pytest.approx(by_torch[2].largest, rel=1e-6)


def test_every_half_precision_value_comes_back():
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).reshape(-1, 64)
    found = encoded_on_host("float16", values)[1]
    np.testing.assert_array_equal(found.astype(np.float32), values)


def test_every_brain_value_comes_back():
    values = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).reshape(-1, 64)
    values = values[np.isfinite(values).all(axis=1)]
    found = encoded_on_host("bfloat16", values)[1]
    np.testing.assert_array_equal(found, values.astype(np.float64))


def test_rounding_is_numpys():
    values = np.random.default_rng(0).standard_normal((50, 33)).astype(np.float32) * 10
    found = encoded_on_host("float16", values)[1]
    np.testing.assert_array_equal(found, values.astype(np.float16).astype(np.float64))


def test_steps_are_a_127th_of_the_rows_largest_value():
    values = np.random.default_rng(0).standard_normal((40, 31)).astype(np.float32)
    values[7] = 0
    _, found, errors = encoded_on_host("int8", values)
    step = np.abs(values).max(axis=1, keepdims=True) / 127
    assert (np.abs(found - values) <= step * 0.5000001).all()
    assert not found[7].any()
    others = np.delete(np.arange(40), 7)
    lost = np.linalg.norm(found - values, axis=1)[others] / np.linalg.norm(values[others], axis=1)
    assert errors.largest == pytest.approx(lost.max(), rel=1e-6)
    assert errors.total == pytest.approx(lost.sum(), rel=1e-6)
    assert errors.take().rows == 40
    assert errors == RowErrors()


@pytest.mark.parametrize("name", ENCODINGS)
def test_values_that_are_not_finite_stay_so(name):
    rows = np.array([[np.inf, 1], [-np.inf, 1], [np.nan, 1], [1, 2]], np.float32)
    for found in (encoded_on_host(name, rows)[1], encoded_by_torch(name, rows)[1]):
        assert not np.isfinite(found[:3, 0]).any()
        np.testing.assert_allclose(found[3], [1, 2], rtol=0.01)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("at_rest", [np.float32, np.float16])
def test_any_rows_of_any_parts_are_encoded(name, at_rest):
    values = np.random.default_rng(3).standard_normal((30, 5)).astype(at_rest)
    ids = np.array([29, 0, 13, 13, 7])
    found = encoded_on_host(name, values, ids, parts=4)[1]
    np.testing.assert_array_equal(found, encoded_by_torch(name, values[ids])[1])


@pytest.mark.parametrize("name", ENCODINGS)
def test_nothing_is_encoded_to_nothing(name):
    for out, found, errors in (
        encoded_on_host(name, np.ones((2, 3), np.float32), np.empty(0, np.int64)),
        encoded_by_torch(name, np.ones((0, 3), np.float32)),
    ):
        assert out.shape == (0, ENCODINGS[name].row_bytes(3))
        assert found.shape == (0, 3)
        assert errors == RowErrors()


def test_sixteen_bits_at_rest_gain_nothing_from_sixteen_others():
    assert encoding_for("native", "float32") is None
    assert encoding_for("bfloat16", np.float16) is None
    assert encoding_for("int8", np.int8) is None
    assert encoding_for("int8", np.float16).name == "int8"
    assert encoding_for("float16", "float32").row_bytes(10) == 20
    assert encoding_for("int8", "float32").row_bytes(10) == 14
