"""Compiling the kernels before the clock runs: one rank per node compiles, the others find the results in the cache."""

from __future__ import annotations

import numpy as np
import torch

from leapmpi.comm.polling import wait_all
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.engine.context import Surroundings
from leapmpi.nn.loss import weighted_loss
from leapmpi.nn.tensors import to_tensors
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey


def warm_up(world: World, at: Surroundings, config: Config) -> None:
    """Run every kernel of training and evaluation once on a small sample of own vertices. Collective.

    Parameters and counters are left as they were.
    """
    if world.node_comm.rank == 0:
        _run_once(at, config)
    wait_all([world.node_comm.Ibarrier()])
    if world.node_comm.rank != 0:
        _run_once(at, config)


def _run_once(at: Surroundings, config: Config) -> None:
    at.features.warm_up()
    at.labels.warm_up()
    begin, end = at.rank_offsets[at.wire.rank : at.wire.rank + 2]
    roots = np.arange(begin, min(begin + 2, end), dtype=np.int64)
    key = DrawKey(PRESAMPLE, at.seed, 0, 0)
    blocks = [to_tensors(block, at.device) for block in at.sampler.sample(key, roots)]
    dtype = getattr(torch, config.train.dtype)
    features = at.stand_in(blocks[-1].n_src)
    classes = at.labels.shard.width
    labels = torch.zeros((len(roots), classes) if at.labels.dtype == dtype else len(roots), device=at.device)
    weighted_loss(at.model(blocks, features, key), labels.to(at.labels.dtype), 1.0).backward()
    at.parameters.gradients.zero_()
    with torch.no_grad():
        at.model(blocks, features, None)
