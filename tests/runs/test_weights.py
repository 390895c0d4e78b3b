"""Files of weights: written as a whole, read bit for bit, refused when damaged."""

import h5py
import numpy as np
import pytest

from leapmpi.errors import DataError
from leapmpi.nn.parameters import digest
from leapmpi.runs.weights import read_weights, write_weights

SHAPES = {"bias": (8,), "norm.gain": (5,), "neighbour.weight": (8, 5)}


def random_array(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def written(tmp_path):
    arrays = {f"layers.{n}.{name}": random_array(n, shape) for n in (0, 1) for name, shape in SHAPES.items()}
    arrays["temperature"] = np.array(0.5, np.float32)
    path = tmp_path / "weights.h5"
    write_weights(path, arrays, {"epoch": 3, "classes": 3, "nested": {"lr": 0.1}})
    return path, arrays


def test_weights_are_read_bit_for_bit_and_in_order(written):
    path, arrays = written
    found, about = read_weights(path)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
    assert about == {"epoch": 3, "classes": 3, "nested": {"lr": 0.1}}


def test_weights_are_replaced_as_a_whole(written):
    path, arrays = written
    write_weights(path, {name: array + 1 for name, array in arrays.items()}, {})
    assert digest(read_weights(path)[0]) != digest(arrays)
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_missing_weights(tmp_path):
    with pytest.raises(DataError, match="no such weights file"):
        read_weights(tmp_path / "weights.h5")


def change(path, action):
    with h5py.File(path, "r+") as file:
        action(file)


def _set_value(file):
    file["parameters/layers.0.bias"][0] = 7


def _set_text(file):
    file["about"][3] ^= 1


DAMAGE = {
    "a value": (_set_value, r"layers\.0\.bias does not match"),
    "the description": (_set_text, "about does not match"),
    "format": (lambda file: file.attrs.modify("format", "other"), "other, not leapmpi-weights"),
    "no format": (lambda file: file.attrs.__delitem__("format"), "not leapmpi-weights"),
    "version": (lambda file: file.attrs.modify("format_version", 9), "format version 9.*update leapmpi"),
    "no version": (lambda file: file.attrs.__delitem__("format_version"), "format version None"),
    "another creator": (lambda file: file.attrs.modify("creator", "me"), "attributes do not match"),
    "a parameter": (lambda file: file.__delitem__("parameters/layers.0.bias"), "damaged"),
    "all parameters": (lambda file: file.__delitem__("parameters"), "damaged"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_weights_are_refused(written, what):
    path, _ = written
    action, message = DAMAGE[what]
    change(path, action)
    with pytest.raises(DataError, match=message) as caught:
        read_weights(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [0, 10, 600])
def test_truncated_files_are_refused(written, size):
    path, _ = written
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"not an HDF5 file|damaged|truncated") as caught:
        read_weights(path)
    assert str(path) in str(caught.value)


def test_a_flipped_bit_is_detected_or_harmless(written):
    path, arrays = written
    content = path.read_bytes()
    for position in range(0, len(content), 97):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
        try:
            found, _ = read_weights(path)
        except DataError:
            continue
        assert digest(found) == digest(arrays)
