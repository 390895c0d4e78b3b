"""A whole run: start MPI, load, train, record. `leapmpi.train` and the command line call this module."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm.collectives import all_gather_values
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.dataset.topology import Topology
from leapmpi.engine.ahead.prefetch_depth import choose_depth
from leapmpi.engine.own_model import findings
from leapmpi.engine.placement import placement_class
from leapmpi.engine.tuning import choose_placement
from leapmpi.engine.tuning_log import STRATEGY, TuningRecord
from leapmpi.errors import RESUMABLE
from leapmpi.exchange.context import Loaded
from leapmpi.fault_tolerance.report import how_it_ended, wait_for_silence
from leapmpi.forecast.memory_advice import MemoryAdvice
from leapmpi.full_batch.part_dealing import PartDealing
from leapmpi.job import resume
from leapmpi.job.resume import SavedRun
from leapmpi.job.run_records import announce, announce_end, open_records, summary_of
from leapmpi.job.settled import settle
from leapmpi.plan.memory_model import TooLarge
from leapmpi.runs.file_names import timeline_file
from leapmpi.runs.run import Run
from leapmpi.runs.run_folder import RunFolder, check_and_lock, claim
from leapmpi.runs.run_lock import RunLock
from leapmpi.session.role_checks import by_role
from leapmpi.session.role_loading import LoadedByRole
from leapmpi.session.session import Session, in_session
from leapmpi.session.setup import compile_unsampled, with_batch_size
from leapmpi.system.allocator import set_aside_lasting_objects
from leapmpi.system.trace import record_timeline
from leapmpi.training.checkpointer import Checkpointer
from leapmpi.training.disaggregated_trainer import DisaggregatedTrainer
from leapmpi.training.edge_trainer import EdgeReplicaTrainer, EdgeTrainer, with_root_edges
from leapmpi.training.ensemble_trainer import ReplicaTrainer
from leapmpi.training.model_state import below
from leapmpi.training.trainer import Trainer

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm

log = logging.getLogger("leapmpi")


def train(config: Config, comm: Comm | None = None) -> Run:
    """Train as `config` says and return the finished run. Collective over `comm` (mpi4py; COMM_WORLD when None).

    MPI is started when it does not run yet and ends with the process. On every rank the result reads the run folder,
    which rank 0 wrote.

    A run folder that holds an unfinished run with a checkpoint, or a finished one of fewer epochs, goes on. Raises
    Interrupted when a signal or the end of the job stopped training, LeapmpiError for what the user can mend, on all
    ranks alike; any other failure of a rank of several ends the whole job through MPI.
    """
    return in_session(config, comm, lambda session: _train(config, session))


def make_trainer(config: Config, world: World, loaded: Loaded, begun: float) -> Trainer:
    """A trainer of `config` that is not prepared yet. Collective. Raises ConfigError and ResourceError on all ranks
    alike.

    `begun` is when this start began, on the clock time.perf_counter.
    """
    several, edges = bool(config.strategy.vary), loaded.ctx.task.roots == "edges"
    if edges:
        loaded = with_root_edges(world, loaded)
    kind: type[Trainer] = ReplicaTrainer if several else Trainer
    if edges:
        kind = EdgeReplicaTrainer if several else EdgeTrainer
    if isinstance(loaded, LoadedByRole):
        kind = DisaggregatedTrainer
    placement = placement_class(config.strategy.name)
    return world.on_all(lambda: kind(config, world, placement.place(world, loaded), begun))


def prepare(trainer: Trainer, saved_choices: dict[str, Any] | None = None) -> None:
    """Compile all kernels, and choose what the settings leave open. Collective.

    `saved_choices` is the engine's state in the checkpoint of a run that is resumed. Raises TooLarge, on all ranks,
    where an iteration takes more memory than it may or than there is; the message says what is predicted to fit.
    """
    try:
        _choose_and_compile(trainer, saved_choices)
    except TooLarge as error:
        loaded, world = trainer.loaded, trainer.world
        advised = ""
        if world.rank == 0 and isinstance(loaded.topology, Topology):
            advice = MemoryAdvice(trainer.config, loaded.dataset, loaded.topology, world.size, world.nodes)
            advised = advice.sentence(error.room)
        advised = all_gather_values(world.comm, advised)[0]
        if not advised:
            raise
        raise TooLarge(f"{error}; {advised}", error.room) from None


def _choose_and_compile(trainer: Trainer, saved_choices: dict[str, Any] | None) -> None:
    """What `prepare` does where there is memory enough. Collective."""
    with trainer.ctx.phases("load"):
        # Warming up draws first samples: what is refused there is refused by all ranks together.
        trainer.world.on_all(trainer.warm_up)
        batches = trainer.planned_batches(0)
        first = batches[0] if batches else None

        # The cache is chosen first: it bears on the bytes by which a mode is chosen.
        if saved_choices is not None:
            trainer.engine.restore(saved_choices)
        trainer.feature_cache.choose()
        if saved_choices is None:
            trainer.predicted_bytes = trainer.choose_mode(first)
        choose_placement(trainer.engine, first)
        trainer.feature_cache.fill()
        trainer.feature_cache.keep_hottest()

        trainer.dry_run(first)
        trainer.dry_run_evaluation()
        trainer.feature_cache.begin()
        set_aside_lasting_objects()
    trainer.prefetch_depth = choose_depth(trainer.engine)


def build_trainer(config: Config, world: World, loaded: Loaded, saved: SavedRun | None, begun: float) -> Trainer:
    """A trainer that is ready to run: kernels compiled, open settings chosen, the state of `saved` restored.

    Collective. Raises ConfigError, DataError and ResourceError, on all ranks alike.
    """
    trainer = make_trainer(config, world, loaded, begun)
    if config.strategy.balance_parts != "off":
        assert isinstance(loaded.topology, Topology), "full batches read the whole topology"
        trainer.part_dealing = PartDealing(loaded.dataset, loaded.topology, loaded.starts)

    # Choices of an earlier run take the place of measured times; those of this run hold from where it goes on.
    if config.run.replay:
        records = world.on_root(lambda: resume.replayed_records(config, loaded.dataset, world.size))
        trainer.engine.tuning_log.replay(records or [])
    if saved:
        values = saved.state.values
        trainer.engine.tuning_log.begin = values["progress"]["epoch"], values["progress"]["iteration"]
        prepare(trainer, {**values["strategy"], **below("strategy", saved.state.arrays)})
        resume.restore(trainer, saved)
    else:
        prepare(trainer)
        if config.train.init:
            trainer.started_from = resume.start_from(trainer)
    return trainer


def _findings(config: Config, loaded: Loaded, world: World) -> list[str]:
    """What is found in users' modules, on the first rank that has rows to try them on. Collective."""
    if not isinstance(loaded, LoadedByRole):
        return findings(config, loaded, world)
    data = replace(loaded, ctx=loaded.of_role)
    return world.on_all(lambda: findings(config, data, loaded.role) if loaded.prepares else [])


def _reserve(config: Config, lock: RunLock) -> tuple[bool, dict[str, Any] | None]:
    """Whether the run in the run folder goes on, and how its last start failed. On rank 0.

    A folder that is there is locked. Raises RunFolderError where it may not be used, or another start trains there.
    """
    run = config.run
    resumes = check_and_lock(run.folder, run.overwrite, config.train.epochs, lock)
    if lock.folder is None:
        return resumes, None
    wait_for_silence(lock.folder)
    return resumes, how_it_ended(lock.folder)


def _train(config: Config, session: Session) -> Run:
    begun, world = time.perf_counter(), session.world
    # A start that is ended before it trains has changed nothing: the same command may try again.
    session.signals.exit_code = RESUMABLE

    # All that can be refused is refused before a run folder is made. One that is there is locked.
    lock = session.watchdog.lock = RunLock(world.size, lambda: session.signals.number != 0)
    resumes, before = world.on_root(lambda: _reserve(config, lock)) or (False, None)
    dataset = session.open(config)
    config = by_role(with_batch_size(config, dataset), dataset)
    run = config.run
    found = world.on_root(lambda: resume.find(config, dataset) if resumes else None)
    world.on_root(lambda: resume.initial_weights(config) if config.train.init and found is None else None)
    if config.strategy.prepare_ranks:
        loaded: Loaded = session.load_by_role(config, dataset)
    else:
        starts = all_gather_values(world.comm, resume.part_starts(found, dataset, world.size))[0]
        loaded = session.load(config, dataset, starts=np.array(starts) if starts else None)
    found_in_models = _findings(config, loaded, world)
    saved = resume.broadcast_saved(found, loaded.ctx.communicator)
    if not config.strategy.prepare_ranks:
        compile_unsampled(world, loaded.ctx, config)
    config, choice = settle(config, world, loaded, saved)
    trainer = build_trainer(config, world, loaded, saved, begun)
    trainer.strategy_choice = choice
    if choice and not saved:
        trainer.engine.tuning_log.make(TuningRecord(STRATEGY, 0, 0, choice.strategy, choice.to_values()))

    # The run folder. From here on failures and heartbeats are written there, and a signal is noted, to be noticed in
    # the first iteration.
    epochs = config.train.epochs
    claimed = world.on_root(lambda: claim(run.folder, run.overwrite, epochs=epochs, lock=lock, resumes=resumes))
    path = Path(all_gather_values(world.comm, str(claimed.path) if claimed else "")[0])
    folder = claimed or RunFolder(path)
    session.folder.append(folder.path)
    session.watchdog.write_heartbeats_to(folder.path)
    session.signals.polled = True
    checkpointer = Checkpointer(trainer, folder, session.signals, session.job_end)
    world.on_root(lambda: open_records(checkpointer, saved, before))
    if saved:
        checkpointer.last = saved.name
    # The run can be resumed from its first moment on.
    elif (checkpointer.every or checkpointer.seconds) and (error := checkpointer.save()):
        raise error
    world.on_root(lambda: folder.start(config))

    announce(trainer, folder)
    for sentence in found_in_models:
        log.warning("warning: %s", sentence)
    timeline = folder.path / timeline_file(world.rank) if run.timeline else None
    with record_timeline(timeline, session.phases, world.rank, world.name), checkpointer.counting_failures():
        trainer.run(folder, checkpointer)
    checkpointer.save_end()
    summary = summary_of(trainer)
    world.on_root(lambda: folder.finish(summary, len(trainer.epochs)))
    if world.rank == 0:
        announce_end(trainer, summary, folder.path)
    return Run(folder.path)
