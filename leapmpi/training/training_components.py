"""Components of one training on a rank: batches, engine, models, evaluator, rows in memory; and their preparation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from leapmpi.comm.world import World
from leapmpi.config.schema import Config, variations
from leapmpi.engine.ahead.prefetch_depth import choose_depth
from leapmpi.engine.engine import Engine
from leapmpi.engine.placement import strategy_named
from leapmpi.engine.tuning import choose_placement
from leapmpi.evaluation.evaluator import Evaluator
from leapmpi.exchange.context import Loaded, RankContext
from leapmpi.exchange.selection import leading_model, modes_for
from leapmpi.nn.model import model_of
from leapmpi.plan.role_balance import RoleBalance
from leapmpi.session.role_loading import LoadedByRole
from leapmpi.session.warm_up import warm_up
from leapmpi.system.allocator import set_aside_lasting_objects
from leapmpi.training.feature_cache import FeatureCache
from leapmpi.training.one_model import OneModel
from leapmpi.training.role_training import RoleTraining
from leapmpi.training.root_batches import EdgeBatches, RootBatches, VertexBatches, with_root_edges
from leapmpi.training.several_models import SeveralModels
from leapmpi.training.trained_models import TrainedModels


@dataclass(frozen=True, eq=False)
class Components:
    """Everything that one training works with on this rank. `roles` is None if all ranks do the same."""

    config: Config
    world: World
    loaded: Loaded
    batches: RootBatches
    engine: Engine
    models: TrainedModels
    evaluator: Evaluator
    feature_cache: FeatureCache
    roles: RoleTraining | None
    batch_sizes: np.ndarray
    """int64[batches]: roots of each batch of an epoch, by which losses are averaged."""

    @property
    def ctx(self) -> RankContext:
        """Context of this rank; with roles, its communicator joins the ranks of both."""
        return self.loaded.ctx

    def planned_batches(self, epoch: int) -> Sequence[np.ndarray] | None:
        """Return the epoch's batches on the rank that plans, None elsewhere. If all ranks plan, collective."""
        planner = self.roles.planner if self.roles else 0
        if self.world.rank != planner and not self.batches.all_ranks_plan:
            return None
        with self.ctx.phases("plan"):
            return self.batches.of_epoch(epoch)

    def moved(self, loaded: Loaded) -> Components:
        """Return the components over `loaded`, in which ranks hold other parts; the same models. Collective.

        Raises ResourceError, on all ranks alike, where an iteration does not fit then.
        """
        engine = Engine(loaded.ctx, self.config.strategy, tuning_log=self.engine.tuning_log)
        engine.restore({**self.engine.state(), "decisions": []})
        cache = FeatureCache(self.config, self.world, loaded, engine, self.batches)
        evaluator = Evaluator(self.config, loaded)
        evaluator.place.around = self.evaluator.place.around
        found = replace(self, loaded=loaded, engine=engine, feature_cache=cache, evaluator=evaluator)
        batches = found.planned_batches(0)
        engine.plan(batches[0] if batches else None, 0, 0)
        self.models.dry_run_evaluation(evaluator)
        return found


@dataclass(frozen=True)
class Prepared:
    """Choices made before the first iteration.

    prefetch_depth: mini-batches prepared ahead. predicted_bytes: bytes of the first iteration by exchange mode, if the
    mode was chosen. balance: seconds that a mini-batch costs each role, if ranks have roles.
    """

    prefetch_depth: int
    predicted_bytes: dict[str, int]
    balance: RoleBalance | None = None


def components_of(config: Config, world: World, loaded: Loaded) -> Components:
    """Assemble a training of `config` over `loaded`. Collective.

    Raises ConfigError, DataError and ResourceError on all ranks alike.
    """
    if loaded.ctx.task.roots == "edges":
        loaded = with_root_edges(world, loaded)
    placement = strategy_named(config.strategy.name)
    return world.on_all(lambda: _assembled(config, world, placement.place(world, loaded)))


def _assembled(config: Config, world: World, loaded: Loaded) -> Components:
    sampler, edges, fetching = loaded.ctx.sampler, loaded.root_edges, config
    batches: RootBatches = VertexBatches(sampler, loaded.dataset.splits.train, config.train)
    if edges is not None:
        batches = EdgeBatches(sampler, edges, config.train)
    roles = RoleTraining(loaded) if isinstance(loaded, LoadedByRole) else None

    # Batches that a sampler makes count alike; else the last one may be short.
    sizes = np.full(batches.per_epoch, config.train.batch_size)
    if not sampler.supplies_roots:
        sizes[-1] = batches.count - sizes[:-1].sum()

    # Of several models, one with the widest inputs stands for all where inputs are fetched.
    models: TrainedModels
    if config.strategy.vary:
        configs = variations(config)
        several = [model_of(each, loaded.dataset).to(loaded.ctx.device) for each in configs.values()]
        modes = modes_for(several, loaded.ctx.features, config)
        fetching = config.replaced({"strategy.remote": modes[-1]})
        loaded = replace(loaded, ctx=replace(loaded.ctx, model=several[leading_model(several)]))
        models = SeveralModels(config, loaded, configs, several, modes, sizes)
    else:
        models = OneModel(config, loaded, batches.per_epoch)
    if roles:
        engine = roles.engine(fetching)
    else:
        engine = Engine(loaded.ctx, fetching.strategy, scatters=bool(config.strategy.vary))
    cache = FeatureCache(config, world, loaded, engine, batches)
    evaluator = Evaluator(fetching, loaded)
    return Components(config, world, loaded, batches, engine, models, evaluator, cache, roles, sizes)


def prepare(components: Components, saved_choices: dict[str, Any] | None = None) -> Prepared:
    """Compile all kernels, and choose what the settings leave open. Collective.

    `saved_choices` is the engine's state in the checkpoint of a run that is resumed. Raises TooLarge, on all ranks,
    where an iteration takes more memory than it may or than there is.
    """
    config, world, engine, roles = components.config, components.world, components.engine, components.roles
    predicted_bytes: dict[str, int] = {}
    balance = None
    with components.ctx.phases("load"):
        # Warming up draws first samples: what is refused there is refused by all ranks together.
        world.on_all(lambda: roles.warm_up(config) if roles else warm_up(world, components.ctx, config))
        batches = components.planned_batches(0)
        first = batches[0] if batches else None

        # The cache is chosen first: it bears on the bytes by which a mode is chosen.
        if saved_choices is not None:
            engine.restore(saved_choices)
        components.feature_cache.choose()
        if saved_choices is None:
            predicted_bytes = components.models.choose_mode(engine, first)
        choose_placement(engine, first)
        components.feature_cache.fill()
        components.feature_cache.keep_hottest()

        # A first iteration and a first evaluation leave nothing but compiled kernels.
        if roles:
            balance = roles.measure(engine, first)
        else:
            components.models.dry_run(engine, first)
        components.models.dry_run_evaluation(components.evaluator)
        components.feature_cache.begin()
        set_aside_lasting_objects()
    return Prepared(choose_depth(engine), predicted_bytes, balance)
