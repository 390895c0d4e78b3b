"""Random graphs, their samples and model configs for the tests of networks."""

import dataclasses

import numpy as np
import pytest
import torch

from leapmpi.config.options import MODELS
from leapmpi.config.sections import ModelConfig
from leapmpi.config.setting import names_code
from leapmpi.dataset.topology import Topology
from leapmpi.nn.tensors import to_tensors
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey
from leapmpi.system.worker_threads import set_threads

KEY = DrawKey(TRAIN, 5, 2, 7)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    set_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def random_graph():
    """A function: vertices, mean degree, seed -> undirected Topology, whose last two vertices have no edges."""

    def make(vertices: int = 60, degree: int = 6, seed: int = 0) -> Topology:
        rng = np.random.default_rng(seed)
        adjacent = np.zeros((vertices, vertices), bool)
        for _ in range(vertices * degree // 2):
            a, b = rng.integers(0, vertices - 2, 2)
            adjacent[a, b] = adjacent[b, a] = a != b
        indptr = np.concatenate([[0], adjacent.sum(1).cumsum()])
        indices = np.nonzero(adjacent)[1].astype(np.int32)
        return Topology(indptr, indices, np.arange(vertices) * 3 + 11)

    return make


@pytest.fixture(scope="session")
def sampled():
    """A function: topology, fan-outs, roots, [key, device] -> list of BlockTensors."""

    def sample(topology, fanouts, roots, key=KEY, device="cpu"):
        blocks = NodeWiseSampler(topology, fanouts).sample(key, np.asarray(roots, np.int64))
        return [to_tensors(block, device) for block in blocks], blocks[-1].src

    return sample


@pytest.fixture(scope="session")
def model_config():
    """A function: name, [changed settings and options] -> ModelConfig; options that the model has not are left out."""

    def make(name, **changes):
        known = {field.name for field in dataclasses.fields(ModelConfig)}
        declared = None if names_code(name) or name == "none" else MODELS.load(name).options
        names = {field.name for field in dataclasses.fields(declared)} if declared else set()
        options = {key: value for key, value in {"heads": 2, **changes}.items() if key in names}
        values = {"hidden": 8, "dropout": 0.0, "input_dropout": 0.0, "norm": "none", "residual": False}
        values |= {key: value for key, value in changes.items() if key in known}
        return ModelConfig(name=name, **values, options=tuple(f"{key}={value}" for key, value in options.items()))

    return make


@pytest.fixture
def set_order(monkeypatch):
    """A function: says of a layer, a block and rows whether sources are projected before they are aggregated."""

    def set_order(projects_first):
        for module in ("layer", "sum_layer", "models.gin"):
            monkeypatch.setattr(f"leapmpi.nn.{module}.projects_first", projects_first)

    return set_order


@pytest.fixture(params=["csr", "csr_torch"])
def either_operations(request, monkeypatch):
    """Runs a test by the compiled kernels, and by the torch operations for other devices, both on the CPU."""
    if request.param == "csr_torch":
        from leapmpi.nn import aggregate, messages, tensors
        from leapmpi.nn.kernels import csr_torch, message_sums_torch
        from leapmpi.nn.typed import relation_sums

        for module in (aggregate, relation_sums, tensors):
            monkeypatch.setattr(module, "operations", lambda device: csr_torch)
        monkeypatch.setattr(messages, "kernels", lambda device: message_sums_torch)
    return request.param
