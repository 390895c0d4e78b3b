"""A session: what stands between the start and the end of MPI, for every command that works on a dataset."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import numpy as np
import torch

from leapmpi.comm.launcher import columns_of, launched_rank, launcher_size, terminal_of_launcher
from leapmpi.comm.world import World, finish, split, start
from leapmpi.config.compatibility import check
from leapmpi.config.options import SAMPLERS
from leapmpi.config.run_facts import Facts
from leapmpi.config.schema import Config, models_of
from leapmpi.config.setting import names_code
from leapmpi.dataset.file_stamps import FileStamps
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.ahead.prefetch_depth import check_prefetch
from leapmpi.engine.machine import machine_rates
from leapmpi.engine.placement import strategy_named
from leapmpi.exchange.context import Loaded
from leapmpi.fault_tolerance.abort import ends_the_job
from leapmpi.fault_tolerance.bus_errors import report_bus_errors
from leapmpi.fault_tolerance.stop_signals import Signals, job_end
from leapmpi.fault_tolerance.watchdog import Watchdog
from leapmpi.nn.kernels.kernel_choice import autocast, products_in_full, set_stand_in
from leapmpi.nn.task import task_of
from leapmpi.plan.homes import rank_offsets
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.runs import progress_line
from leapmpi.runs.progress_line import Terminal
from leapmpi.sampling.edge_lookup import bounds_by_root, uses_times
from leapmpi.sampling.relation_lists import reached_in_training
from leapmpi.scoring.metric import choose_metric
from leapmpi.session.role_checks import check_roles
from leapmpi.session.role_loading import LoadedByRole, load_by_role
from leapmpi.session.setup import check_device, choose_device, load, open_for_training, with_batch_size
from leapmpi.session.topology_kind import check_topology
from leapmpi.system.allocator import take_back_lasting_objects
from leapmpi.system.phase_timers import PhaseTimers

if TYPE_CHECKING:
    from leapmpi.comm.world import Comm

log = logging.getLogger("leapmpi")

T = TypeVar("T")

_BETWEEN_LINES = 30.0
"""Seconds between two progress lines of a long step in a log."""


@dataclass(frozen=True)
class Session:
    """One job between the start and the end of MPI.

    `job_end` is when the scheduler will end the job, in seconds since 1970, if it does.
    """

    world: World
    device: torch.device
    phases: PhaseTimers
    watchdog: Watchdog
    signals: Signals = field(default_factory=Signals)
    job_end: float | None = None
    roles: list[World] = field(default_factory=list)
    """The ranks that have the same role as this one, where ranks have roles."""

    def open(self, config: Config) -> Dataset:
        """Return the dataset of `config`, opened once; the settings fit it and the ranks. Collective."""
        return self.world.on_all(lambda: check_settings(config, self.world))

    def load(
        self,
        config: Config,
        dataset: Dataset,
        rates: MachineRates | None = None,
        starts: np.ndarray | None = None,
        reads_all_lists: bool = False,
    ) -> Loaded:
        """Load this rank's share of `dataset`; choices rest on `rates`, or those kept for this machine. Collective.

        starts: int64[ranks + 1], the first part of each rank; when None all hold as many, about. reads_all_lists: as
        in setup.load.
        """
        self.watchdog.inputs.append(FileStamps(dataset))
        with self.phases("load"):
            rates = rates or machine_rates(self.world, self.device)
            return load(config, dataset, self.world, self.device, self.phases, rates, starts, reads_all_lists)

    def load_by_role(self, config: Config, dataset: Dataset) -> LoadedByRole:
        """Load as `load` does, where the last ranks prepare mini-batches and the others compute. Collective."""
        self.watchdog.inputs.append(FileStamps(dataset))
        with self.phases("load"):
            role = split(self.world, int(prepares(config, self.world.rank, self.world.size)))
            self.roles.append(role)
            rates = machine_rates(self.world, self.device)
            return load_by_role(config, dataset, self.world, role, self.device, self.phases, rates)


def in_session(config: Config, comm: Comm | None, action: Callable[[Session], T]) -> T:
    """Run `action` between the start and the end of MPI, so that a failure of one rank ends all."""
    # The device is chosen first: MPI must find it selected when it starts.
    device = _device(config, comm)
    end = job_end() if launched_rank() == 0 else None
    world, phases = start(config.run.threads, comm), PhaseTimers()
    watchdog = Watchdog(world, phases, config.run.comm_timeout)
    session = Session(world, device, phases, watchdog, job_end=end)
    watchdog.start()

    # From here on a failure of any rank is reported, and ends the job.
    try:
        with (
            _log_to_screen(config.run.log_level, world),
            _steps_shown(world),
            _deterministic(config.run.device != "cpu" and (device.type == "cuda" or config.run.device == "stand-in")),
            products_in_full(),
            ends_the_job(watchdog),
            session.signals.handled(),
            report_bus_errors(world.size),
        ):
            computes = not prepares(config, world.rank, world.size)
            session.world.on_all(lambda: check_device(config.run.device, device) if computes else None)
            return action(session)
    finally:
        watchdog.stop()
        set_stand_in(False)
        autocast("float32")
        for each in (*session.roles, session.world):
            finish(each)
        take_back_lasting_objects()


def prepares(config: Config, rank: int, ranks: int) -> bool:
    """Return whether `rank` of `ranks` prepares mini-batches for others, and computes with none. Local."""
    preparing = config.strategy.prepare_ranks
    return 0 < preparing < ranks and rank >= ranks - preparing


def _device(config: Config, comm: Comm | None) -> torch.device:
    """Return the device of this rank; the CPU, and no GPU is touched, where its launcher's numbers say that it
    prepares.
    """
    launched = launcher_size()
    if comm is None and launched and prepares(config, launched_rank(), launched[1]):
        return torch.device("cpu")
    return choose_device(config.run.device)


def check_settings(config: Config, world: World) -> Dataset:
    """Return the dataset of `config`, opened. Raises for settings that do not fit it or the ranks. Local."""
    dataset = open_for_training(config)
    config = with_batch_size(config, dataset)
    if config.strategy.prepare_ranks:
        check_roles(config, dataset, world.size)
    else:
        rank_offsets(dataset.offsets, world.size)
    # All that follows is called for the errors it raises: a job fails before it loads anything.
    check_prefetch(config.strategy)
    check(facts_of(config, dataset))
    choose_metric(config.evaluate.metric, task_of(config, dataset))
    placement = strategy_named(config.strategy.name)
    placement.check_settings(config, dataset)
    placement.choose_time_steps(config.strategy, world.size)
    check_topology(config, dataset)
    uses_times(config, dataset)
    return dataset


def has_all_features(config: Config, dataset: Dataset) -> bool:
    """Return whether all vertices that training reads have features: none has learned rows. Local."""
    if dataset.types is None:
        return dataset.feature_dim > 0
    read = reached_in_training(dataset.types, config.sampling).types[-1]
    return all(each.feature_dim for each, is_read in zip(dataset.types.vertices, read, strict=True) if is_read)


def draws_by_relation(config: Config) -> bool:
    """Return whether the sampler draws from typed graphs. Local."""
    name = config.sampling.sampler
    return not names_code(name) and SAMPLERS.load(name).typed


def facts_of(config: Config, dataset: Dataset) -> Facts:
    """Return the facts about `dataset` and the strategy of `config` before anything is loaded. Local."""
    placement, task, edges = strategy_named(config.strategy.name), task_of(config, dataset), dataset.edge_splits
    validation = dataset.splits.val if task.roots == "vertices" else edges.val if edges else ()
    return Facts(
        config,
        own_mode=placement.mode is not None and not placement.by_layer,
        reassigns_parts=placement.reassigns_parts,
        features=has_all_features(config, dataset),
        edge_weights=dataset.has_edge_weight,
        roots=task.roots,
        validation=len(validation) > 0,
        answers=task.answers,
        edge_labels=task.reads_edge_labels,
        optimizers=tuple(each.train.optimizer for each in models_of(config)),
        typed=dataset.types is not None,
        draws_by_relation=draws_by_relation(config),
        bounds_by_root=bounds_by_root(config),
        by_layer=placement.by_layer,
    )


@contextmanager
def _deterministic(on_gpu: bool) -> Iterator[None]:
    """Let torch use operations that give the same bits each time while the body runs, if `on_gpu`.

    A CPU does so anyway. A user's module gets a warning where torch has none. Set before the first work on a GPU, where
    cuBLAS needs a workspace of fixed size.
    """
    if not on_gpu:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Its attribute is made on first use, which no type says.
    module: Any = torch.utils.deterministic
    before = torch.get_deterministic_debug_mode(), module.fill_uninitialized_memory
    # torch.use_deterministic_algorithms does the same, but loads torch's compiler first.
    torch.set_deterministic_debug_mode("warn")
    # Filling memory that is written anyway costs time and changes nothing.
    module.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        module.fill_uninitialized_memory = before[1]


def _screen() -> Terminal | None:
    """Return the terminal on which the output of this rank appears, its launcher's if it has one; None without."""
    if not launcher_size():
        return progress_line.terminal_of(sys.stdout)
    place = terminal_of_launcher(os.getppid())
    return Terminal(sys.stdout, lambda: columns_of(place)) if place else None


def _steps_shown(world: World) -> AbstractContextManager[None]:
    """Show the progress of rank 0: by a bar if its output appears on a terminal, else by lines of the log."""
    if world.rank != 0:
        return nullcontext()
    return progress_line.shown_by(log.info, _BETWEEN_LINES, _screen())


class _Screen(logging.StreamHandler[TextIO]):
    """Writes lines in the place of a bar that is shown; in colour on a terminal, unless NO_COLOR is set."""

    def emit(self, record: logging.LogRecord) -> None:
        progress_line.clear()
        colour = _COLOURS.get(getattr(record, "light", record.levelname.lower()))
        if colour and progress_line.takes_colour(_screen()):
            with progress_line.coloured(self.stream, colour):
                super().emit(record)
        else:
            super().emit(record)


_COLOURS = {"warning": 33, "error": 31, "good": 32, "fair": 33, "bad": 31}
"""Codes of colours by severity of a line, or by light of a verdict."""


@contextmanager
def _log_to_screen(level: str, world: World) -> Iterator[None]:
    """Write log records from `level` on to the screen: all of rank 0, warnings of the others, by name.

    Afterwards the logger is as it was; handlers that the body added are closed.
    """
    severity, propagates, raises = log.level, log.propagate, logging.raiseExceptions
    others = list(log.handlers)
    # The log file has the details that only --verbose shows.
    log.setLevel("DEBUG" if level == "info" else level.upper())
    log.propagate = False
    # A log that cannot be written (disk full) must not print tracebacks; metrics and summary report it.
    logging.raiseExceptions = False
    handler = _Screen(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s" if world.rank == 0 else f"[{world.name}] %(message)s"))
    handler.setLevel(level.upper())
    if world.rank != 0:
        handler.setLevel(max(logging.WARNING, log.level))
    log.addHandler(handler)
    try:
        yield
    finally:
        for each in [each for each in log.handlers if each not in others]:
            log.removeHandler(each)
            with suppress(OSError):
                each.close()
        log.propagate, logging.raiseExceptions = propagates, raises
        log.setLevel(severity)
