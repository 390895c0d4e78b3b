"""All parameters in one buffer, and their files: whole, named, digested, refused when damaged."""

import h5py
import numpy as np
import pytest
import torch

from leapmpi.config.sections import ModelConfig
from leapmpi.errors import DataError
from leapmpi.nn.build import build_model
from leapmpi.nn.parameters import ParameterLayout, digest
from leapmpi.runs.weights import read_weights, write_weights

pytestmark = pytest.mark.compiles


def layout_of(name="gat", seed=1, dtype=torch.float64):
    model = build_model(ModelConfig(name=name, hidden=8, heads=2, norm="layer", residual=True), 2, 5, 3, seed, dtype)
    return model, ParameterLayout(model)


def test_parameters_and_gradients_are_views_of_one_buffer():
    model, layout = layout_of()
    plain = dict(layout_of()[0].named_parameters())
    assert layout.state.numel() == 2 * layout.count == 2 * sum(each.numel() for each in plain.values())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, plain[name])
    layout.values.fill_(2)
    layout.gradients.fill_(3)
    assert all((each == 2).all() and (each.grad == 3).all() for each in model.parameters())
    layout.gradients.zero_()
    sum(each.square().sum() for each in model.parameters()).backward()
    assert (layout.gradients == 4).all()
    assert (layout.state[layout.count :] == 4).all()


def test_by_name_copies_and_assign_brings_back():
    model, layout = layout_of()
    kept = layout.by_name()
    assert list(kept) == [name for name, _ in model.named_parameters()]
    before = layout.digest()
    layout.values.add_(1)
    assert layout.digest() != before
    layout.assign(kept, "here")
    assert layout.digest() == before == digest(kept)


def test_weights_of_another_model_are_refused():
    _, layout = layout_of()
    kept = layout.by_name()
    with pytest.raises(DataError, match=r"runs/a: .*another model"):
        layout_of("sage")[1].assign(kept, "runs/a")
    name = next(iter(kept))
    kept[name] = kept[name][:-1]
    with pytest.raises(DataError, match=name):
        layout.assign(kept, "runs/a")


def test_a_digest_tells_names_values_and_types_apart():
    arrays = {"a": np.arange(4.0), "b": np.zeros(2)}
    others = [
        {"a": np.arange(4.0), "c": np.zeros(2)},
        {"a": np.arange(4.0), "b": np.array([0.0, -0.0])},
        {"a": np.arange(4.0, dtype=np.float32), "b": np.zeros(2)},
        {"b": np.zeros(2), "a": np.arange(4.0)},
    ]
    assert len({digest(each) for each in [arrays, *others]}) == 5
    assert digest({"a": np.arange(4.0, dtype=">f8"), "b": np.zeros(2)}) == digest(arrays)


@pytest.fixture
def written(tmp_path):
    arrays = layout_of(dtype=torch.float32)[1].by_name()
    path = tmp_path / "weights.h5"
    write_weights(path, arrays, {"epoch": 3, "classes": 3, "nested": {"lr": 0.1}})
    return path, arrays


def test_weights_come_back_bit_for_bit_and_in_order(written):
    path, arrays = written
    found, about = read_weights(path)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].tobytes() == array.tobytes()
    assert about == {"epoch": 3, "classes": 3, "nested": {"lr": 0.1}}


def test_weights_are_replaced_whole(written):
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
    "what is said about it": (_set_text, "about does not match"),
    "format": (lambda file: file.attrs.modify("format", "other"), "other, not leapmpi-weights"),
    "no format": (lambda file: file.attrs.__delitem__("format"), "not leapmpi-weights"),
    "version": (lambda file: file.attrs.modify("format_version", 3), "format version 3.*update leapmpi"),
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
def test_files_cut_short_are_refused(written, size):
    path, _ = written
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=r"not an HDF5 file|damaged|truncated") as caught:
        read_weights(path)
    assert str(path) in str(caught.value)


def test_a_flipped_bit_anywhere_is_noticed_or_harmless(written):
    path, arrays = written
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            found, _ = read_weights(path)
        except DataError:
            continue
        assert digest(found) == digest(arrays)
