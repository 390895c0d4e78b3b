"""Resuming: the checkpoint to go on from is found, compared with the settings, sent to all ranks and restored.

And what is taken from other runs: the first weights (`--init RUN`), and the tuning records of one that is repeated
(`--replay RUN`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.config.other_names import lost_values, recorded_values
from leapmpi.config.schema import Config, models_of
from leapmpi.config.sections import fields, flattened
from leapmpi.dataset.partitioned import Dataset
from leapmpi.engine.own_model import changed_code
from leapmpi.engine.tuning_log import TIME_STEPS, TuningRecord, from_records
from leapmpi.errors import ConfigError, DataError, RunFolderError, counted
from leapmpi.features.learned_rows import ROW_ARRAYS, ROWS, without_rows
from leapmpi.full_batch.part_assignment import PartAssignment
from leapmpi.nn.model import canonical, input_width
from leapmpi.plan.chosen_strategy import Choice
from leapmpi.runs import schemas
from leapmpi.runs.checkpoint_folder import CheckpointFile, CheckpointFolder
from leapmpi.runs.file_names import WEIGHTS_BEST, model_folder
from leapmpi.runs.run import Run, load_run
from leapmpi.runs.weights import read_weights
from leapmpi.session.label_statistics import set_scale
from leapmpi.system.phase_timers import PHASES
from leapmpi.training.epoch_record import EpochProgress
from leapmpi.training.model_state import below, evaluations_since
from leapmpi.training.trainer import Origin
from leapmpi.training.training_components import Components

CHANGEABLE = (
    *("data", "train.epochs", "train.early_stop", "evaluate.every"),
    "strategy.prepare_ranks",
)
"""Settings that may differ when a run is resumed, besides those of [run]; of `data` only the place."""

_SAME = ("model.", "sampling.", "strategy.", "train.", "link.")
"""Beginnings of the settings that a replay shares with the run it replays."""


@dataclass
class SavedRun:
    """The state of checkpoint `name`. `complaints` says what is wrong with newer ones, which are damaged."""

    name: str
    state: CheckpointFile
    complaints: list[str]


def find(config: Config, dataset: Dataset) -> SavedRun:
    """Return the newest sound checkpoint in the run folder.

    Raises RunFolderError when there is none, or when its run had another dataset or other settings.
    """
    folder = Path(config.run.folder)
    finished = Run(folder).finished
    name, state, complaints = CheckpointFolder(folder).newest(schemas.CHECKPOINT)
    if name is None or state is None:
        otherwise = (
            f"where --init {folder} starts from its weights" if finished else "or pass --overwrite to start again"
        )
        raise RunFolderError(
            f"{folder} holds {'a ' if finished else 'an un'}finished run whose checkpoints are all damaged "
            f"({complaints[0]}); choose another --run folder, {otherwise}"
        )
    # A run that stopped early would stop again at once.
    waited = evaluations_since(state.values["best"]["epoch"], state.values["epochs"])
    if finished and 0 < config.train.early_stop <= waited:
        raise RunFolderError(
            f"{folder} holds a finished run that stopped early, {counted(waited, 'evaluation')} after its best epoch; "
            "to continue "
            "it, raise --early-stop or leave it out, or choose another --run folder"
        )
    if found := list(_differences(state.values, config, dataset)):
        raise RunFolderError(
            f"{folder} holds {'a ' if finished else 'an un'}finished run that was started otherwise: "
            f"{'; '.join(found)}; start it with the same settings to {'continue' if finished else 'resume'} it, which "
            f"leapmpi train --run {shlex.quote(str(folder))} takes from the run, or choose another --run folder"
        )
    return SavedRun(name, state, complaints)


def part_starts(saved: SavedRun | None, dataset: Dataset, ranks: int) -> list[int] | None:
    """Return the first part of each rank when `saved` was written; None where it has not been chosen for these
    ranks.
    """
    if saved is None or saved.state.values["ranks"] != ranks or saved.state.values["uuid"] != dataset.uuid:
        return None
    starts: list[int] | None = saved.state.values.get("part_dealing", {}).get("starts")
    return starts


def initial_weights(config: Config) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the weights that config.train.init names, and the description in their file. Local.

    Raises RunFolderError for a folder that is not a run of one model, DataError for a missing or damaged file.
    """
    path = Path(config.train.init)
    if not path.is_dir():
        return read_weights(path, schemas.WEIGHTS, [ROWS])
    if not (path / WEIGHTS_BEST).exists() and (model := model_folder(path, 0)).is_dir():
        raise RunFolderError(f"--init {path}: the run holds several models; name one, such as {model}")
    load_run(path)
    return read_weights(path / WEIGHTS_BEST, schemas.WEIGHTS, [ROWS])


def start_from(components: Components) -> dict[str, Any]:
    """Give all models of `components` the weights that --init names; return what was taken. Collective.

    Raises DataError when they do not fit, on all ranks alike.
    """
    # Widths are compared before any weight is assigned, so that a refusal leaves the models unchanged.
    config, dataset = components.config, components.loaded.dataset
    init = config.train.init
    arrays, about = components.world.on_all(lambda: initial_weights(config))
    taken = {"from": init, **{key: about.get(key) for key in ("epoch", "feature_dim", "classes", "graph_uuid")}}

    def assign() -> None:
        width = input_width(config, dataset)
        for name, here in (("feature_dim", width), ("classes", components.ctx.task.classes)):
            if taken[name] not in (None, here):
                noun = name.replace("feature_dim", "features")
                raise DataError(
                    f"--init {init}: its model was trained on {taken[name]} {noun}, {config.data} has {here}; "
                    "take a run on data of the same widths"
                )
        for _, layout in components.models.described:
            layout.assign(without_rows(arrays), f"--init {init}")
        if components.ctx.learned:
            components.ctx.learned.assign(arrays, f"--init {init}")

    components.world.on_all(assign)
    return {**taken, "arrays": len(arrays), "parameters": sum(array.size for array in arrays.values())}


def _differences(saved: dict[str, Any], config: Config, dataset: Dataset) -> Iterator[str]:
    if saved["graph_uuid"] != dataset.graph_uuid:
        yield f"{config.data} holds another graph"
    before, known = recorded_values(flattened(saved["config"])), dict(fields())
    unknown = sorted(key for key in before if key not in known and not key.startswith("model.options."))
    # Both go through JSON and one spelling, so that only values differ, not their types.
    earlier = Config.recorded({key: value for key, value in before.items() if key not in unknown}, "checkpoint")
    then, today = (canonical(flattened(json.loads(json.dumps(each.to_values())))) for each in (earlier, config))
    for key, _ in fields():
        # The checkpoint names the strategy that auto chose then; it stays.
        if (key, today[key]) == ("strategy.name", "auto"):
            continue
        if then[key] != today[key] and key not in CHANGEABLE and not key.startswith("run."):
            yield f"{key} was {_text(then[key])}, is {_text(today[key])}"
    for key in unknown:
        yield f"{key} was {_text(before[key])}, which this leapmpi does not know"
    done = saved["progress"]["epoch"]
    if config.train.epochs <= done and config.train.epochs != before["train.epochs"]:
        yield f"train.epochs was {before['train.epochs']}, is {config.train.epochs}, but {done} epochs are done"


def changes(saved: dict[str, Any], config: Config, dataset: Dataset, ranks: int) -> Iterator[str]:
    """Yield allowed differences from before that bear on the results, for the log."""
    if saved["ranks"] != ranks:
        yield f"{counted(ranks, 'rank')} (was {saved['ranks']})"
    if saved["uuid"] != dataset.uuid:
        yield "another partition of the same graph"
    yield from changed_code(config, saved)
    yield from lost_values(flattened(saved["config"]))
    before = flattened(saved["config"])["train.epochs"]
    if before != config.train.epochs:
        decays = any(each.train.lr_schedule == "cosine" for each in models_of(config))
        cosine = ", over which --lr-schedule cosine lowers the rate from here on" if decays else ""
        yield f"{config.train.epochs} epochs instead of {before}{cosine}"


def replayed_records(config: Config, dataset: Dataset, ranks: int) -> list[TuningRecord]:
    """Return the choices by measured times of the run in config.run.replay.

    Raises ConfigError when that run had other settings, another dataset or another number of ranks at any time,
    RunFolderError when it has no epoch.
    """
    run = load_run(config.run.replay)
    # Settings that bear on draws, sums or their order must be equal, or the bits would differ.
    theirs, ours = (canonical(flattened(each.to_values())) for each in (run.config, config))
    for key, _ in fields():
        if key.startswith(_SAME) and theirs[key] != ours[key]:
            raise ConfigError(
                f"--replay {config.run.replay}: that run had {key} = {theirs[key]}, this one has {ours[key]}; "
                "give the same settings"
            )
    records = run.metrics()
    banners = [record for record in records if record["event"] == "banner"]
    if not banners or not any(record["event"] == "epoch" for record in records):
        raise RunFolderError(f"--replay {config.run.replay}: the run has recorded no whole epoch")
    first, *others = (len(banner["ranks"]) for banner in banners)
    if first != ranks:
        raise ConfigError(
            f"--replay {config.run.replay}: that run was on {counted(first, 'rank')}, this one is on {ranks}"
        )
    if moved := next((each for each in others if each != first), None):
        raise ConfigError(
            f"--replay {config.run.replay}: that run went on on {counted(moved, 'rank')} after it had begun on "
            f"{first}; only a "
            "run on the same ranks throughout can be replayed"
        )
    # Runs of earlier versions do not say.
    if any(banner.get("uuid", dataset.uuid) != dataset.uuid for banner in banners):
        raise ConfigError(
            f"--replay {config.run.replay}: that run was trained on another dataset than {config.data}; name its own"
        )
    # The file may have been edited: choices are checked before any rank acts on them.
    decisions = from_records(records)
    for each in decisions:
        if each.about == TIME_STEPS and not 1 <= each.value <= ranks:
            raise RunFolderError(
                f"--replay {config.run.replay}: it chose {counted(each.value, 'time step')} on {counted(ranks, 'rank')}"
            )
    return decisions


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join("all" if each == -1 else str(each) for each in value) or "not given"
    return str(value) or "not given"


def restore(components: Components, saved: SavedRun, part_assignment: PartAssignment | None) -> Origin:
    """Restore models and rows as they were when `saved` was written, but for what `prepare` restores. Collective.

    Returns where training goes on; `part_assignment` is restored too. Raises DataError, on all ranks alike, where the
    state does not fit the model or a file is damaged.
    """
    checkpoints = CheckpointFolder(Path(components.config.run.folder))
    values, arrays, world, ctx = saved.state.values, saved.state.arrays, components.world, components.ctx
    origin = str(checkpoints.path / saved.name)
    world.on_all(lambda: _check_fit(components, saved, origin))
    # On other ranks sums may differ in their last bits.
    if scale := values.get("target_scale"):
        set_scale(ctx, np.array(scale))
    if part_assignment and (starts := part_starts(saved, components.loaded.dataset, world.size)):
        part_assignment.restore({**values["part_dealing"], "starts": starts})
    epochs = list(values["epochs"])
    world.on_all(lambda: components.models.restore((arrays, values), epochs, origin))
    _restore_ranks(components, saved, checkpoints)
    choice = values.get("strategy_choice")
    return Origin(
        progress=_restored_progress(saved, ctx.communicator),
        epochs=epochs,
        restarts=values["restarts"] + 1,
        seconds=values["run_seconds"],
        choice=Choice.from_values(choice) if choice else None,
    )


def _restored_progress(saved: SavedRun, communicator: Communicator) -> EpochProgress:
    """Return the progress in `saved`, with seconds by rank and the phases of this version, in its order. Local."""
    values, arrays = saved.state.values, saved.state.arrays
    columns = dict(zip(values["phases"], arrays["phases"].T, strict=True))
    nothing = np.zeros(len(arrays["phases"]))
    phases = np.column_stack([columns.get(phase, nothing) for phase in PHASES])
    cores = arrays.get("core_seconds", nothing)  # checkpoints of earlier versions have none
    return EpochProgress.restored(values["progress"], arrays["losses"], phases, cores, communicator)


def _restore_ranks(components: Components, saved: SavedRun, checkpoints: CheckpointFolder) -> None:
    """Restore what each rank alone had: nothing on another number of ranks, but for learned rows. Collective."""
    values, world = saved.state.values, components.world
    of_rank: dict[str, np.ndarray] = {}
    mapped = [f"learned/{each}" for each in ROW_ARRAYS]
    read = partial(checkpoints.read_rank, saved.name, state=saved.state, mapped_names=mapped)
    if values["rank_pieces"] == world.size:
        of_rank = world.on_all(lambda: read(rank=world.rank)).arrays
    if learned := components.ctx.learned:
        others = (rank for rank in range(values["rank_pieces"]) if rank != world.rank or not of_rank)
        found = (read(rank=rank).arrays for rank in others)
        pieces = (below("learned", piece) for piece in chain([of_rank] * bool(of_rank), found))
        world.on_all(lambda: learned.restore(pieces, str(checkpoints.path / saved.name)))


def _check_fit(components: Components, saved: SavedRun, origin: str) -> None:
    """Raise DataError, naming `origin`, where losses or seconds are not those of such a training. Local."""
    values, arrays, per_epoch = saved.state.values, saved.state.arrays, components.batches.per_epoch
    # Arrays of a damaged checkpoint could have any shape.
    for name, shape in (
        ("losses", (per_epoch,)),
        ("phases", (values["ranks"], len(values["phases"]))),
        *((("core_seconds", (values["ranks"],)),) if "core_seconds" in arrays else ()),
    ):
        if name not in arrays or arrays[name].shape != shape:
            found = arrays[name].shape if name in arrays else "missing"
            raise DataError(f"{origin}: {name} should have the shape {shape}, but it is {found}; choose another --run")
    now = components.ctx.task.class_weights
    if values.get("class_weights") != (None if now is None else now.tolist()):
        raise DataError(
            f"{origin}: the run was started with other class weights than --class-weights gives now; has the file been "
            "changed? Choose another --run folder"
        )
    # The position must agree with the epochs that are recorded.
    epoch, iteration = values["progress"]["epoch"], values["progress"]["iteration"]
    if iteration > per_epoch or epoch != len(values["epochs"]):
        raise DataError(
            f"{origin}: it was written after iteration {iteration} of {per_epoch} in epoch {epoch + 1}, but "
            f"holds {len(values['epochs'])} epochs; choose another --run"
        )


def broadcast_saved(saved: SavedRun | None, communicator: Communicator) -> SavedRun | None:
    """Send what rank 0 found to all ranks; others pass None. Collective."""
    about = [saved.name, saved.state.values, saved.complaints] if saved else None
    heading = np.frombuffer(json.dumps(about).encode(), np.uint8)
    about = json.loads(_broadcast(heading, communicator).tobytes())
    if about is None:
        return None
    received = broadcast_arrays(saved.state.arrays if saved else None, communicator)
    name, values, complaints = about
    return SavedRun(name, CheckpointFile(received, values), complaints)


def broadcast_arrays(arrays: Mapping[str, np.ndarray] | None, communicator: Communicator) -> dict[str, np.ndarray]:
    """Return rank 0's arrays by name on all ranks; others pass None. Collective."""
    kinds = [[name, array.dtype.str, array.shape] for name, array in (arrays or {}).items()]
    heading = np.frombuffer(json.dumps(kinds).encode(), np.uint8)
    received = {}
    for name, dtype, shape in json.loads(_broadcast(heading, communicator).tobytes()):
        array = arrays[name] if arrays is not None else None
        received[name] = _broadcast(array, communicator).view(dtype).reshape(shape)
    return received


def _broadcast(array: np.ndarray | None, communicator: Communicator) -> np.ndarray:
    """Return the bytes of rank 0's array, uint8[n], on all ranks; packed, as int64 numbers are broadcast.
    Collective.
    """
    packed = None
    if communicator.rank == 0:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        packed = np.zeros(1 + -(-len(data) // 8), np.int64)
        packed[0] = len(data)
        packed[1:].view(np.uint8)[: len(data)] = data
    packed = communicator.broadcast(packed, "control")
    return packed[1:].view(np.uint8)[: packed[0]]
