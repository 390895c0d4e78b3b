"""Kernels of training and evaluation run once before the first iteration, so that none is compiled in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.engine.edge_features import set_dummy_features
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch
from leapmpi.nn.attention_links import with_links
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.sampling.block import Block
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey


def warm_up(world: World, ctx: RankContext, config: Config) -> None:
    """Run every kernel of training and evaluation once on a small sample of own vertices. Local.

    One rank of a node compiles a kernel, the others wait for it and find it in the cache. Parameters and counters are
    left as they were.
    """
    compile_unsampled(world, ctx, config)
    roots = _few_roots(ctx)
    sampled = ctx.sampler.sample_here(DrawKey(PRESAMPLE, ctx.seed, 0, 0), roots)
    _compute_once(ctx, config, roots, sampled)
    ctx.features.warm_up()
    ctx.labels.warm_up()


def compile_unsampled(world: World, ctx: RankContext, config: Config) -> None:
    """Run the kernels that need no sample, on all but the first rank of a node, which samples meanwhile. Local."""
    if not world.node_comm.rank:
        return
    # The second rank of a node compiles the model; the third those that move rows.
    if world.node_comm.rank > 1:
        ctx.features.warm_up()
        ctx.labels.warm_up()
    # A user's module sees no edges but those of the graph, with what they carry.
    # The first layers of a typed graph read other types than the roots'.
    if not isinstance(ctx.model, OwnModel) and ctx.sampler.types is None:
        roots = _few_roots(ctx)
        _compute_once(ctx, config, roots, _edges_to_themselves(roots, len(ctx.model.layers)))


def _few_roots(ctx: RankContext) -> np.ndarray:
    """Return a few own vertices that may be roots: int64[k]. Local."""
    first, end = ctx.local_range
    types = ctx.sampler.types
    if types is None or types.target_number is None:
        return np.arange(first, min(first + 2, end), dtype=np.int64)
    own = np.arange(first, end)
    return own[types.of_original(ctx.sampler.original_ids(own)) == types.target_number][:2]


def _edges_to_themselves(vertices: np.ndarray, hops: int) -> list[Block]:
    """Return blocks of `hops` hops in which each of `vertices` (int64[n]) has one edge, from itself."""
    count = len(vertices)
    indptr, indices = np.arange(count + 1), np.arange(count, dtype=np.int32)
    described = vertices, indptr, indices, vertices, np.ones(count, np.int64)
    return [Block(hop, count, *described) for hop in range(hops)]


def _compute_once(ctx: RankContext, config: Config, roots: np.ndarray, blocks: list[Block]) -> None:
    """Compute forward and backward, in training and evaluation, on placeholders for the rows of `blocks`. Local."""
    sampled, key = MicroBatch(roots, blocks, None), DrawKey(PRESAMPLE, ctx.seed, 0, 0)
    set_dummy_features(ctx, sampled)
    tensors = with_links(ctx.model.layers, sampled.on_device(ctx.device))
    features = ctx.dummy_rows(tensors[-1].n_src)
    if isinstance(features, TypedMatrix) and ctx.sampler.types is not None:
        # A user's module reads rows by the types of the block's relations.
        types = ctx.sampler.types.of_original(blocks[-1].src_original).astype(np.int64)
        features = replace(features, types=torch.from_numpy(types).to(ctx.device))
    labels = ctx.task.dummy_labels(len(roots), getattr(torch, config.train.parameter_dtype), ctx.device)
    ctx.task.checked(ctx.task.loss(ctx.model(tensors, features, key), labels, 1.0)).backward()
    ctx.parameters.gradients.zero_()
    with torch.no_grad():
        ctx.model(tensors, features, None)
