"""First-layer weights split over the ranks: whole again wherever names, files, norms and scores are asked for."""

import numpy as np
import pytest
import torch

from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.config.sections import ModelConfig, TrainConfig
from leapmpi.dataset.partitioned import column_bounds
from leapmpi.errors import DataError
from leapmpi.nn.model import build_model
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.sharded_parameters import ShardedParameterLayout
from leapmpi.training.optimizer import Optimizer

FEATURES = 7


def whole_model(name):
    return build_model(ModelConfig(name=name, hidden=8), 2, FEATURES, 3, seed=1, dtype=torch.float64)


@pytest.fixture(params=["gcn", "sage", "gat"])
def layouts(request, world_comm):
    """The split layout of this rank, and the plain one of an equal model."""
    communicator = MPICommunicator(world_comm)
    split = ShardedParameterLayout(whole_model(request.param), communicator, column_bounds(FEATURES, communicator.size))
    return split, ParameterLayout(whole_model(request.param))


def test_columns_are_dealt_evenly():
    assert column_bounds(7, 3).tolist() == [0, 2, 4, 7]
    assert column_bounds(300, 4).tolist() == [0, 75, 150, 225, 300]


def test_split_weights_are_this_ranks_columns_and_not_reduced(layouts):
    split, plain = layouts
    rank, size = split.communicator.rank, split.communicator.size
    first, end = column_bounds(FEATURES, size)[rank : rank + 2]
    name, weight = next((n, p) for n, p in plain.model.named_parameters() if n.endswith("neighbour.weight"))
    assert torch.equal(dict(split.model.named_parameters())[name], weight[:, first:end])
    held = sum(p.numel() for n, p in plain.model.named_parameters() if n not in split.split)
    assert len(split.shared_gradients) == held
    split.gradients.fill_(1)
    split.shared_gradients.fill_(2)
    for each, parameter in split.model.named_parameters():
        wanted = 1 if each in split.split and size > 1 else 2
        assert (parameter.grad == wanted).all()


def test_names_digest_and_whole_model_are_those_of_an_unsplit_layout(layouts):
    split, plain = layouts
    assert list(split.by_name()) == list(plain.by_name())
    assert split.digest() == plain.digest()
    for mine, theirs in zip(split.whole_model().parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_assign_takes_the_weights_of_any_layout_and_any_flat_state(layouts):
    split, plain = layouts
    arrays = {name: array + 1 for name, array in plain.by_name().items()}
    moments = torch.zeros_like(split.values)
    split.assign(arrays, "here")
    split.assign(arrays, "here", moments)
    for flat in (None, moments):
        for name, array in split.by_name(flat).items():
            np.testing.assert_array_equal(array, arrays[name])
    with pytest.raises(DataError, match="another model"):
        split.assign({name: array[:1] for name, array in arrays.items()}, "here")


@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw"])
def test_clipped_and_decayed_steps_are_those_of_an_unsplit_layout(layouts, rule):
    split, plain = layouts
    config = TrainConfig(optimizer=rule, momentum=0.9 if rule == "sgd" else 0.0, weight_decay=0.1, clip_norm=0.5)
    rules = [Optimizer(config, layout, 1) for layout in layouts]
    generator = np.random.default_rng(3)
    for number in range(3):
        gradients = {name: generator.standard_normal(array.shape) for name, array in plain.by_name().items()}
        for layout, optimizer in zip(layouts, rules, strict=True):
            layout.assign(gradients, "here", layout.gradients)
            optimizer.step(number)
    for name, array in split.by_name().items():
        np.testing.assert_allclose(array, plain.by_name()[name], rtol=1e-12)
