"""`--strategy auto` in a job: the choice of this start, or that of the run that it goes on with or replays."""

from __future__ import annotations

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.config.sections import flattened
from leapmpi.engine.context import Loaded
from leapmpi.engine.placement import placement_class
from leapmpi.errors import ResourceError
from leapmpi.runs.run import load_run
from leapmpi.training.resume import SavedRun
from leapmpi.training.simulation.strategy_choice import AUTO, FIRST, Choice, choose


def settle(config: Config, world: World, loaded: Loaded, saved: SavedRun | None) -> tuple[Config, Choice | None]:
    """`config` with the strategy that auto stands for, and the choice, None where the user has chosen. Collective.

    Raises ConfigError, DataError and RunFolderError on all ranks alike.
    """
    choice = None
    if saved:
        # A run keeps its strategy, on other numbers of ranks too. Runs of earlier versions have chosen nothing.
        values = saved.state.values
        if made := values.get("strategy_choice"):
            choice = Choice.from_values(made)
        name = flattened(values["config"])["strategy.name"]
    elif config.strategy.name == AUTO:
        choice = _chosen(config, world, loaded)
        name = choice.strategy
    if config.strategy.name == AUTO:
        config = config.replaced({"strategy.name": name}, "the strategy of auto")
    return config, choice


def _chosen(config: Config, world: World, loaded: Loaded) -> Choice:
    """The choice of rank 0, or that of the replayed run, on all ranks. Collective."""

    def choice() -> Choice:
        if config.run.replay:
            return Choice(load_run(config.run.replay).config.strategy.name, f"as in {config.run.replay}")
        return choose(config, loaded.dataset, loaded.topology, world.size, loaded.ctx.machine, real=loaded.ctx)

    found = world.on_root(choice)
    made = Choice.from_values(all_gather_values(world.comm, found.to_values() if found else None)[0])
    try:
        world.on_all(lambda: placement_class(made.strategy).check_room(world, loaded))
    except ResourceError as error:
        if config.run.replay:
            raise
        return Choice(FIRST, f"{made.strategy} was predicted to be faster, but {error}")
    return made
