"""Forecast of roles without a job: mini-batches are prepared and trained in this process, and timed by share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from leapmpi.config.compatibility import check
from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.engine.disaggregated.share_preparation import SharePreparation, preparing_engine
from leapmpi.engine.disaggregated.share_training import ShareTraining
from leapmpi.engine.disaggregated.shipping import SIZE_BYTES, Shipping
from leapmpi.engine.edge_features import KIND, edge_request, set_dummy_features
from leapmpi.engine.engine import Engine
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.modes.raw import union
from leapmpi.exchange.named_destinations import NamedDestinations
from leapmpi.exchange.raw_sums import merged
from leapmpi.features.shards.row_request import RowRequest
from leapmpi.forecast.virtual_ranks import virtual_ranks
from leapmpi.forecast.virtual_world import VirtualWorld
from leapmpi.plan.homes import rank_offsets
from leapmpi.plan.role_balance import RoleBalance
from leapmpi.plan.roles import Roles
from leapmpi.plan.schedule import Schedule
from leapmpi.session.role_checks import by_role, check_roles
from leapmpi.session.session import facts_of
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.system.phase_timers import median_seconds
from leapmpi.system.worker_threads import set_threads, threads


@dataclass(frozen=True)
class RoleForecast:
    """The prediction for one iteration with a whole batch. Seconds are those of one thread of this machine."""

    strategy: str
    roles: Roles
    balance: RoleBalance
    sent: dict[str, int]
    """Bytes by kind: shares to the ranks that compute; ids and rows between those that prepare."""

    def to_values(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        roles, preparing = self.roles, self.roles.preparing
        return {
            "strategy": self.strategy,
            "ranks": roles.ranks,
            "computing": roles.computing,
            "preparing": preparing,
            "seconds": self.balance.seconds(preparing),
            "busy": self.balance.busy(preparing),
            "sent": self.sent,
            "sentence": f"{roles.sentence()}: {self.balance.sentence(preparing, roles.computing)}",
            **self.balance.to_values(),
        }


def forecast_roles(
    label: str, config: Config, dataset: Dataset, topology: Topology, ranks: int, byte: float
) -> RoleForecast:
    """Predict `config` on `ranks` ranks, some of them preparing, over links of `byte` seconds a byte.

    Raises ConfigError and DataError for impossible settings.
    """
    check(facts_of(config, dataset))
    check_roles(config, dataset, ranks)
    config = by_role(config)
    # With one thread, as the ranks of the forecast job would draw one after the other here.
    before = torch.get_num_threads(), threads()
    torch.set_num_threads(1)
    set_threads(1)
    try:
        return _forecast(label, config, dataset, topology, Roles(ranks, config.strategy.prepare_ranks), byte)
    finally:
        torch.set_num_threads(before[0])
        set_threads(before[1])


def _forecast(
    label: str, config: Config, dataset: Dataset, topology: Topology, roles: Roles, byte: float
) -> RoleForecast:
    # One rank that has all rows stands for every rank: nothing is sent, and everything else is the same.
    whole = config.replaced({"strategy.feature_memory": ""})
    (ctx,) = virtual_ranks(whole, dataset, topology, VirtualWorld(1), dataset.part)
    nobody = ctx.communicator
    shipping = Shipping(nobody, roles, dataset.feature_dim, ctx.features.dtype)
    engine = preparing_engine(ctx, config.strategy, shipping, rank_offsets(dataset.offsets, roles.shares))
    prepares, computes = engine.preparation, ShareTraining(ctx, shipping)
    assert isinstance(prepares, SharePreparation), "it is that of a rank that prepares"
    train = config.train
    batch = ctx.sampler.batches(dataset.splits.train, train.seed, 1, train.batch_size, PRESAMPLE)[0]
    key = DrawKey(PRESAMPLE, train.seed, 1, 0)
    schedule = engine.placement.schedule(batch, key.epoch, key.iteration)

    # Rows of others arrive while a preparation rank prepares the next mini-batch, so the slower of both counts.
    offsets, slowest = rank_offsets(dataset.offsets, roles.preparing), 0.0
    sent = {"ids": 0, "features": 0, "shares": 0}
    arriving, computing = np.zeros(roles.computing), np.zeros(roles.computing)
    for number in range(roles.preparing):
        prepares.shares = roles.prepared_by(number)
        seconds = median_seconds(lambda: prepares.shares_of(_with_rows(prepares, schedule, key)))
        minibatch = _with_rows(prepares, schedule, key)
        ids, rows = _fetched(engine, minibatch, offsets, number)
        sent["features"] += rows
        sent["ids"] += ids
        if ctx.edge_features:
            edges = edge_request(minibatch.micro_batches, rank_offsets(dataset.edge_offsets, roles.preparing), number)
            sent["ids"] += len(edges.remote_ids) * ctx.edge_features.id_codec.id_bytes
            sent[KIND] = sent.get(KIND, 0) + int(ctx.edge_features.answer_bytes(edges).sum())
            rows += int(ctx.edge_features.answer_bytes(edges).sum())
        slowest = max(slowest, seconds, rows * byte)

        # Ranks that compute train the same shares as they would in a job, so that seconds are measured, not modelled.
        for share, prepared in zip(prepares.shares, prepares.shares_of(minibatch), strict=True):
            size = len(prepared[0].to_bytes()) + prepared[1].nbytes + SIZE_BYTES
            sent["shares"] += size
            arriving[roles.trainer_of(share)] += size
            computing[roles.trainer_of(share)] += median_seconds(partial(computes.train, *prepared, key))
    ctx.parameters.gradients.zero_()
    balance = RoleBalance(slowest * roles.preparing, float(arriving.max()) * byte, float(computing.max()))
    return RoleForecast(label, roles, balance, sent)


def _fetched(engine: Engine, minibatch: MiniBatch, offsets: np.ndarray, rank: int) -> tuple[int, int]:
    """Count bytes of ids and of rows, or sums, that preparation rank `rank`, with `offsets`, requests of others."""
    ctx, layer = engine.ctx, engine.ctx.model.layers[0]
    ids = rows = 0
    # Rows as they are stored, unless shares of sums replace them: then only own rows of destinations travel.
    wanted = union(minibatch.micro_batches)
    if engine.mode_name == "sums":
        block, _ = merged([each.first_block for each in minibatch.micro_batches])
        rank_alone = VirtualWorld(len(offsets) - 1).communicators[rank]
        among = replace(ctx, rank_offsets=offsets, communicator=rank_alone)
        named = NamedDestinations(among, layer.sums.holds_own)
        pairs = named.pairs(block)
        ids = int(named.naming_bytes(block, pairs).sum())
        rows = len(pairs.destinations) * layer.in_dim * layer.dtype.itemsize
        wanted = block.dst if layer.sums.needs_own else block.dst[:0]
    request = RowRequest(wanted, offsets, rank)
    ids += len(request.remote_ids) * ctx.features.id_codec.id_bytes
    return ids, rows if ctx.features.sparse else rows + int(ctx.features.answer_bytes(request).sum())


def _with_rows(prepares: SharePreparation, schedule: Schedule, key: DrawKey) -> MiniBatch:
    """Draw the part of `prepares` of `schedule`, with rows and labels."""
    ctx, minibatch = prepares.ctx, prepares.sample(schedule, key)
    for each in minibatch.micro_batches:
        set_dummy_features(ctx, each)
    roots = [each.roots for each in minibatch.micro_batches]
    minibatch.features = ctx.features.local(union(minibatch.micro_batches), ctx.scatters)
    minibatch.labels = ctx.root_labels(np.concatenate(roots), local=True).split([len(each) for each in roots])
    minibatch.root_weights = [ctx.sampler.root_weights(key, each, schedule.batch_size) for each in roots]
    return minibatch
