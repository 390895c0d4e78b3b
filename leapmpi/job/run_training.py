"""A whole run: start MPI, load, train, record. `leapmpi.train` and the command line call this module."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.topology import Topology
from leapmpi.engine.own_model import findings
from leapmpi.engine.tuning_log import STRATEGY, TuningRecord
from leapmpi.errors import RESUMABLE
from leapmpi.exchange.context import Loaded
from leapmpi.fault_tolerance.report import how_it_ended, wait_for_silence
from leapmpi.forecast.memory_advice import MemoryAdvice
from leapmpi.full_batch.part_assignment import PartAssignment
from leapmpi.job import resume
from leapmpi.job.exact_scores import exact_scores
from leapmpi.job.resume import SavedRun
from leapmpi.job.run_records import announce, announce_end, open_records, summary_of
from leapmpi.job.settled import settle
from leapmpi.plan.chosen_strategy import Choice
from leapmpi.plan.memory_model import TooLarge
from leapmpi.runs.file_names import timeline_file
from leapmpi.runs.run import Run
from leapmpi.runs.run_folder import RunFolder, check_and_lock, claim
from leapmpi.runs.run_lock import RunLock
from leapmpi.session.role_checks import by_role
from leapmpi.session.role_loading import LoadedByRole
from leapmpi.session.session import Session, in_session
from leapmpi.session.setup import with_batch_size
from leapmpi.session.warm_up import compile_unsampled
from leapmpi.system.trace import record_timeline
from leapmpi.training.checkpointer import Checkpointer
from leapmpi.training.model_state import below
from leapmpi.training.trainer import Origin, Trainer
from leapmpi.training.training_components import Components, components_of, prepare

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm

log = logging.getLogger("leapmpi")


def train(config: Config, comm: Comm | None = None, replace_finished: bool = False) -> Run:
    """Train as `config` says and return the finished run. Collective over `comm` (mpi4py; COMM_WORLD when None).

    MPI is started when it does not run yet and ends with the process. On every rank the result reads the run folder,
    which rank 0 wrote.

    A run folder that holds an unfinished run with a checkpoint, or a finished one of fewer epochs, goes on; with
    `replace_finished` the settings' `overwrite` holds for finished runs as well. Raises
    Interrupted when a signal or the end of the job stopped training, LeapmpiError for what the user can mend, on all
    ranks alike; any other failure of a rank of several ends the whole job through MPI.
    """
    return in_session(config, comm, lambda session: _train(config, session, replace_finished and config.run.overwrite))


def advise_on_memory(error: TooLarge, components: Components) -> TooLarge:
    """Return `error` with what is predicted to fit, if anything is, the same on all ranks. Collective."""
    loaded, world, advised = components.loaded, components.world, ""
    if world.rank == 0 and isinstance(loaded.topology, Topology):
        advice = MemoryAdvice(components.config, loaded.dataset, loaded.topology, world.size, world.nodes)
        advised = advice.sentence(error.room)
    advised = all_gather_values(world.comm, advised)[0]
    return TooLarge(f"{error}; {advised}", error.room) if advised else error


def build_trainer(config: Config, world: World, loaded: Loaded, found: Found, begun: float) -> Trainer:
    """Return a trainer with compiled kernels and choices made, in the state that was `found`. Collective.

    Raises ConfigError, DataError and ResourceError, on all ranks alike.
    """
    saved, components = found.saved, components_of(config, world, loaded)
    tuning_log, choices = components.engine.tuning_log, None

    # Choices of an earlier run take the place of measured times; those of this run hold from where it goes on.
    if config.run.replay:
        records = world.on_root(lambda: resume.replayed_records(config, loaded.dataset, world.size))
        tuning_log.replay(records or [])
    if saved:
        values = saved.state.values
        tuning_log.begin = values["progress"]["epoch"], values["progress"]["iteration"]
        choices = {**values["strategy"], **below("strategy", saved.state.arrays)}
    try:
        prepared = prepare(components, choices)
    except TooLarge as error:
        raise advise_on_memory(error, components) from None

    # Weights, records and parts: as they were saved, or those of the beginning.
    assignment = None
    if config.strategy.balance_parts != "off":
        assert isinstance(loaded.topology, Topology), "full batches read the whole topology"
        assignment = PartAssignment(loaded.dataset, loaded.topology, loaded.starts)
    if saved:
        origin = resume.restore(components, saved, assignment)
    else:
        origin = Origin(choice=found.choice, initial=resume.start_from(components) if config.train.init else None)
        if found.choice:
            choice = found.choice
            tuning_log.make(TuningRecord(STRATEGY, 0, 0, choice.strategy, choice.to_values()))
    return Trainer(components, prepared, begun, origin, assignment)


@dataclass(frozen=True)
class Found:
    """Findings of a start before it builds a trainer.

    saved: the checkpoint to go on from. choice: of `--strategy auto`. before: how the last start failed. warnings:
    about users' modules.
    """

    saved: SavedRun | None
    choice: Choice | None
    before: dict[str, Any] | None
    warnings: list[str]


def _train(config: Config, session: Session, replace: bool) -> Run:
    """Train in `session`: load, build the trainer, open the run folder, run, write the summary. Collective."""
    begun, world = time.perf_counter(), session.world
    # A start that is ended before it trains has changed nothing: the same command may try again.
    session.signals.exit_code = RESUMABLE

    # All that can be refused is refused before a run folder is made. One that is there is locked.
    lock = session.watchdog.lock = RunLock(world.size, lambda: session.signals.number != 0)
    resumes, before = world.on_root(lambda: _reserve(config, lock, replace)) or (False, None)
    config, loaded, found = _load(config, session, resumes, before)
    trainer = build_trainer(config, world, loaded, found, begun)

    # From here on failures and heartbeats are written to the run folder, and a signal is noted, to be noticed in the
    # first iteration.
    folder = _claim(trainer.config, session, lock, resumes, replace)
    checkpointer = _checkpointer(trainer, folder, session, found)
    announce(trainer, folder)
    for sentence in found.warnings:
        log.warning("warning: %s", sentence)
    timeline = folder.path / timeline_file(world.rank) if config.run.timeline else None
    with record_timeline(timeline, session.phases, world.rank, world.name), checkpointer.counting_failures():
        trainer.run(folder, checkpointer)
    checkpointer.save_end()
    return _finish(trainer, folder)


def _reserve(config: Config, lock: RunLock, replace: bool) -> tuple[bool, dict[str, Any] | None]:
    """Return whether the run in the run folder goes on, and how its last start failed. On rank 0.

    A folder that is there is locked. Raises RunFolderError where it may not be used, or another start trains there.
    """
    run = config.run
    resumes = check_and_lock(run.folder, run.overwrite, config.train.epochs, lock, replace)
    if lock.folder is None:
        return resumes, None
    wait_for_silence(lock.folder)
    return resumes, how_it_ended(lock.folder)


def _load(
    config: Config, session: Session, resumes: bool, before: dict[str, Any] | None
) -> tuple[Config, Loaded, Found]:
    """Load the dataset, and find the checkpoint if the run `resumes`. Collective.

    Returns the settings with their open choices made, too.
    """
    # Checkpoint and weights are found before anything is loaded: a refusal then costs seconds, not minutes.
    world, dataset = session.world, session.open(config)
    config = by_role(with_batch_size(config, dataset))
    saved = world.on_root(lambda: resume.find(config, dataset) if resumes else None)
    world.on_root(lambda: resume.initial_weights(config) if config.train.init and saved is None else None)
    if config.strategy.prepare_ranks:
        loaded: Loaded = session.load_by_role(config, dataset)
    else:
        starts = all_gather_values(world.comm, resume.part_starts(saved, dataset, world.size))[0]
        loaded = session.load(config, dataset, starts=np.array(starts) if starts else None)
    warnings = _findings(config, loaded, world)
    saved = resume.broadcast_saved(saved, loaded.ctx.communicator)
    if not config.strategy.prepare_ranks:
        compile_unsampled(world, loaded.ctx, config)
    config, choice = settle(config, world, loaded, saved)
    return config, loaded, Found(saved, choice, before, warnings)


def _findings(config: Config, loaded: Loaded, world: World) -> list[str]:
    """Examine users' modules on the first rank that has rows to try them on; return what was found. Collective."""
    if not isinstance(loaded, LoadedByRole):
        return findings(config, loaded, world)
    data = replace(loaded, ctx=loaded.of_role)
    return world.on_all(lambda: findings(config, data, loaded.role) if loaded.prepares else [])


def _claim(config: Config, session: Session, lock: RunLock, resumes: bool, replace: bool) -> RunFolder:
    """Make the run folder, or take over the one there is, and report to it from now on. Collective."""
    world, run, epochs = session.world, config.run, config.train.epochs
    claimed = world.on_root(
        lambda: claim(run.folder, run.overwrite, epochs=epochs, lock=lock, resumes=resumes, replace=replace)
    )
    path = Path(all_gather_values(world.comm, str(claimed.path) if claimed else "")[0])
    session.watchdog.enter(path)
    session.signals.polled = True
    return claimed or RunFolder(path)


def _checkpointer(trainer: Trainer, folder: RunFolder, session: Session, found: Found) -> Checkpointer:
    """Open the records in `folder` and return its checkpointer; the run can be resumed from then on. Collective.

    Raises the error of a first checkpoint that cannot be written: nothing is lost yet. A later one costs a warning.
    """
    world, saved = session.world, found.saved
    checkpointer = Checkpointer(trainer, folder, session.signals, session.job_end, saved.name if saved else None)
    world.on_root(lambda: open_records(checkpointer, saved, found.before))
    if not saved and (checkpointer.every or checkpointer.seconds) and (error := checkpointer.save()):
        raise error
    world.on_root(lambda: folder.start(trainer.config))
    return checkpointer


def _finish(trainer: Trainer, folder: RunFolder) -> Run:
    """Write the summary and log the end. Collective."""
    summary = summary_of(trainer)
    trainer.world.on_root(lambda: folder.finish(summary, len(trainer.epochs)))
    # The run has ended well before its exact scores are computed: they may be interrupted, and change the model.
    exact = exact_scores(trainer)
    if trainer.world.rank == 0:
        if exact:
            summary["exact"] = exact
            folder.write_summary(summary)
        announce_end(trainer, summary, folder.path)
    return Run(folder.path)
