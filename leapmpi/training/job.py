"""A whole run: start MPI, load, train, record. `leapmpi.train` and the command line are this module."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from leapmpi import __version__
from leapmpi.config import Config
from leapmpi.errors import DataError
from leapmpi.failure import ends_the_job
from leapmpi.phases import Phases
from leapmpi.plan.homes import rank_offsets
from leapmpi.run import Run
from leapmpi.training import banner
from leapmpi.training.evaluation import Evaluator, choose_metric
from leapmpi.training.loading import Loaded, check_device, choose_device, load, open_for_training
from leapmpi.training.loop import Trainer, strategy_class
from leapmpi.training.memory import peak_bytes
from leapmpi.training.parameters import read_weights
from leapmpi.training.run_folder import RunFolder, check, claim
from leapmpi.world import World, finish, start, together

log = logging.getLogger("leapmpi")

T = TypeVar("T")


def train(config: Config, comm: Any = None) -> Run:
    """Train as `config` says and return the finished run. Collective over `comm` (mpi4py; COMM_WORLD when None).

    MPI is started when it does not run yet and ends with the process. On every rank the result reads the run folder,
    which rank 0 wrote.

    Raises LeapmpiError on all ranks alike for what the user can mend; any other failure of a rank of several ends
    the whole job through MPI.
    """
    return _in_session(config, comm, lambda session: _train(config, session))


def evaluate(config: Config, run: Run, which: str = "best", comm: Any = None) -> dict[str, Any]:
    """Score the saved weights (`which`: best or final) of `run` on val and test of config.data. Collective.

    Returns {"metric", "epoch", "val", "test"}; a split without vertices has None.

    Raises DataError when the weights belong to another kind of dataset.
    """
    return _in_session(config, comm, lambda session: _evaluate(config, run, which, session))


@dataclass(frozen=True)
class Session:
    """One job between the start and the end of MPI. `folder` holds the run folder once there is one."""

    world: World
    device: torch.device
    phases: Phases = field(default_factory=Phases)
    folder: list[Path] = field(default_factory=list)

    def load(self, config: Config) -> Loaded:
        """Load the dataset of `config`. Collective."""
        with self.phases("load"):
            return load(config, self.world, self.device, self.phases)


def _in_session(config: Config, comm: Any, action: Callable[[Session], T]) -> T:
    """Run `action` between the start and the end of MPI, so that a failure of one rank ends all."""
    # The device is chosen first: MPI must find it selected when it starts.
    device = choose_device(config.run.device)
    session = Session(start(config.run.threads, comm), device)
    try:
        with ends_the_job(session.world, session.phases, session.folder):
            _log_to_screen(config.run.log_level, session.world)
            together(session.world, lambda: check_device(config.run.device, device))
            return action(session)
    finally:
        _close_log()
        finish(session.world)


def _train(config: Config, session: Session) -> Run:
    begin, world = time.perf_counter(), session.world
    # All that can be refused is refused before a run folder is made.
    together(world, lambda: _check(config, world))
    loaded = session.load(config)
    claimed = together(world, lambda: claim(config.run.folder, config.run.overwrite) if world.rank == 0 else None)
    path = world.comm.bcast(claimed.path if claimed else None)
    folder = claimed or RunFolder(path)
    session.folder.append(folder.path)
    together(world, lambda: _open_records(config, folder) if world.rank == 0 else None)
    trainer = together(world, lambda: Trainer(config, world, loaded, folder))
    _announce(config, world, loaded, trainer, folder.path)
    trainer.run()
    summary = _summary(config, world, loaded, trainer, time.perf_counter() - begin)
    together(world, lambda: folder.finish(summary) if world.rank == 0 else None)
    if world.rank == 0:
        _announce_end(trainer, summary, folder.path)
    return Run(folder.path)


def _evaluate(config: Config, run: Run, which: str, session: Session) -> dict[str, Any]:
    world = session.world
    arrays, about = together(world, lambda: read_weights(run.path / f"weights-{which}.h5"))
    loaded = session.load(config)

    def assign() -> None:
        dataset = loaded.dataset
        if (about["feature_dim"], about["classes"]) != (dataset.feature_dim, dataset.classes):
            raise DataError(
                f"{config.data} has {dataset.feature_dim} features and {dataset.classes} classes, the run was trained "
                f"on {about['feature_dim']} and {about['classes']}; evaluate it on its own dataset"
            )
        loaded.at.parameters.assign(arrays, str(run.path))

    together(world, assign)
    evaluator = together(world, lambda: Evaluator(config, loaded.dataset, loaded.topology, loaded.at))
    with session.phases("evaluate"):
        return {"metric": evaluator.metric, "epoch": about["epoch"], **evaluator.scores()}


def _check(config: Config, world: World) -> None:
    """Raise for settings that do not fit the dataset, the ranks or the run folder."""
    dataset = open_for_training(config)
    rank_offsets(dataset.offsets, world.size)
    choose_metric(config.evaluate.metric, dataset)
    strategy_class(config.strategy.name).choose_time_steps(config.strategy, world.size)
    if world.rank == 0:
        check(config.run.folder, config.run.overwrite)


def _open_records(config: Config, folder: RunFolder) -> None:
    folder.start(config)
    handler = logging.FileHandler(folder.log, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    folder.record("start", version=__version__, config=config.to_values())


def _announce(config: Config, world: World, loaded: Loaded, trainer: Trainer, path: Path) -> None:
    facts = loaded.at.wire.gather_objects(banner.rank_facts(world, loaded))
    if world.rank != 0:
        return
    for line in banner.lines(config, world, loaded, trainer.strategy, facts):
        log.info(line)
    log.info("run folder %s", path)
    if not len(loaded.dataset.splits.val):
        log.info("no validation vertices: the last epoch counts as the best")
    trainer.folder.record("banner", ranks=facts)


def _announce_end(trainer: Trainer, summary: dict[str, Any], path: Path) -> None:
    best = summary["best"]
    known = {split: best[split] for split in ("val", "test") if best[split] is not None}
    scores = " ".join(f"{split} {score:.4f}" for split, score in known.items())
    log.info("best epoch %d  %s %s", best["epoch"] + 1, trainer.evaluator.metric, scores or "not scored")
    log.info("finished in %.1f s: %s", summary["seconds"], path / "summary.json")


def _summary(config: Config, world: World, loaded: Loaded, trainer: Trainer, seconds: float) -> dict[str, Any]:
    """What summary.json holds, the same on all ranks. Collective."""
    best, dataset = trainer.best, loaded.dataset
    peaks = loaded.at.wire.gather_objects(peak_bytes())
    return {
        "version": __version__,
        "strategy": config.strategy.name,
        "ranks": world.size,
        "graph_uuid": dataset.graph_uuid,
        "uuid": dataset.uuid,
        "model": config.model.name,
        "metric": trainer.evaluator.metric,
        "seconds": seconds,
        "peak_memory_bytes": peaks,
        "parameters_digest": loaded.at.parameters.digest(),
        "best": {"epoch": best.epoch, "val": best.val, "test": best.test},
        "epochs": [{key: value for key, value in each.items() if key != "losses"} for each in trainer.epochs],
    }


def _log_to_screen(level: str, world: World) -> None:
    """Rank 0 tells its story from `level` on; the others speak up from warnings on, with their names."""
    log.setLevel(level.upper())
    log.propagate = False
    # A log that cannot be written (disk full) must not print tracebacks; metrics and summary report it.
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s" if world.rank == 0 else f"[{world.name}] %(message)s"))
    if world.rank != 0:
        handler.setLevel(max(logging.WARNING, log.level))
    log.addHandler(handler)


def _close_log() -> None:
    for handler in list(log.handlers):
        log.removeHandler(handler)
        if isinstance(handler, logging.FileHandler):
            handler.close()
