"""Number of iterations prepared ahead, and the choice of a prefetcher."""

from __future__ import annotations

from collections.abc import Sequence

from leapmpi.comm.world import load_mpi, threads_may_call
from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.ahead.interleaved_prefetcher import InterleavedPrefetcher
from leapmpi.engine.ahead.prefetch_task import Prefetcher, PrefetchTask
from leapmpi.engine.ahead.thread_prefetcher import ThreadPrefetcher
from leapmpi.engine.engine import Engine
from leapmpi.errors import ConfigError


def prefetcher(engine: Engine, tasks: Sequence[PrefetchTask], depth: int) -> Prefetcher:
    """Return the prefetcher of the mini-batches of `tasks`, at most `depth` ahead of the one in training."""
    if depth and engine.interleaves:
        return InterleavedPrefetcher(engine, tasks, depth)
    return ThreadPrefetcher(engine, tasks, depth)


def check_prefetch(config: StrategyConfig) -> None:
    """Raise ConfigError when prefetching is requested and MPI cannot be called by threads in turn. MPI must run."""
    if config.prefetch not in ("auto", "0") and not threads_may_call(load_mpi()):
        raise ConfigError(
            f"strategy.prefetch: {config.prefetch} needs an MPI that several threads may call in turn "
            "(MPI_THREAD_SERIALIZED), which this one does not offer or was not started with; use --prefetch 0"
        )


def choose_depth(engine: Engine) -> int:
    """Choose how many iterations to prepare ahead: as many as `engine` wants, if MPI allows it. MPI must run.

    With `auto`, none if threads cannot call this MPI in turn.
    """
    chosen = engine.config.prefetch != "auto" or engine.interleaves or threads_may_call(load_mpi())
    return engine.prefetch_depth if chosen else 0


def about_depth(engine: Engine, depth: int) -> list[str]:
    """Return a sentence for the user if `depth`, from `choose_depth`, is less than that of `engine`."""
    if depth == engine.prefetch_depth:
        return []
    return [
        f"no iterations are prepared ahead, where --prefetch auto would take {engine.prefetch_depth}: this MPI cannot "
        "be called by several threads in turn (MPI_THREAD_SERIALIZED), or was not started so"
    ]
