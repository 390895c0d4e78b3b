"""`--strategy auto` in a job: the choice of this start, or that of the run that it goes on with or replays."""

from __future__ import annotations

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.config.compatibility import check
from leapmpi.config.schema import Config
from leapmpi.config.sections import flattened
from leapmpi.dataset.topology import Topology
from leapmpi.engine.placement import strategy_named
from leapmpi.engine.tuning_log import STRATEGY
from leapmpi.errors import ResourceError
from leapmpi.exchange.context import Loaded
from leapmpi.forecast.strategy_choice import AUTO, FIRST, choose, first_of
from leapmpi.job.resume import SavedRun
from leapmpi.plan.chosen_strategy import Choice
from leapmpi.runs.file_names import METRICS
from leapmpi.runs.run import Run, load_run, require
from leapmpi.runs.schemas import STRATEGY_CHOICE
from leapmpi.session.session import facts_of


def settle(config: Config, world: World, loaded: Loaded, saved: SavedRun | None) -> tuple[Config, Choice | None]:
    """Return `config` with the strategy that auto stands for, and the choice; None where nothing was to choose.
    Collective.

    One rank trains with what stands where nothing is counted. Raises ConfigError, DataError and RunFolderError on all
    ranks alike.
    """
    choice, name = None, FIRST
    if saved:
        # A run keeps its strategy, on other numbers of ranks too. Runs of earlier versions have chosen nothing.
        values = saved.state.values
        if made := values.get("strategy_choice"):
            choice = Choice.from_values(made)
        name = flattened(values["config"])["strategy.name"]
    elif config.strategy.name == AUTO and world.size > 1:
        choice = _chosen(config, world, loaded)
        name = choice.strategy
    elif config.strategy.name == AUTO and isinstance(loaded.topology, Topology):
        name = first_of(config, loaded.dataset)
    if config.strategy.name == AUTO:
        config = config.replaced({"strategy.name": name}, "the strategy of auto")
        world.on_all(lambda: check(facts_of(config, loaded.dataset)))
    return config, choice


def _chosen(config: Config, world: World, loaded: Loaded) -> Choice:
    """Return the choice of rank 0, or that of the replayed run, on all ranks. Collective."""

    def choice() -> Choice:
        if config.run.replay:
            return _replayed(load_run(config.run.replay))
        if not isinstance(loaded.topology, Topology):
            return Choice(FIRST, "no rank holds the whole topology, by which iterations are counted")
        return choose(config, loaded.dataset, loaded.topology, world.size, loaded.ctx.machine, real=loaded.ctx)

    found = world.on_root(choice)
    made = Choice.from_values(all_gather_values(world.comm, found.to_values() if found else None)[0])
    # Whether it has room is known to each rank alone; a replay must not train by another strategy.
    try:
        world.on_all(lambda: strategy_named(made.strategy).check_room(world, loaded))
    except ResourceError as error:
        if config.run.replay:
            raise
        return Choice(FIRST, f"{made.strategy} was predicted to be faster, but {error}")
    return made


def _replayed(run: Run) -> Choice:
    """Return the choice that `run` recorded, or its setting. Raises RunFolderError for damaged records."""
    for record in run.metrics():
        if (record["event"], record.get("about")) == ("decision", STRATEGY):
            require(record["evidence"], STRATEGY_CHOICE, run.path / METRICS)
            return Choice.from_values(record["evidence"])
    return Choice(run.config.strategy.name, f"as in {run.path}")
