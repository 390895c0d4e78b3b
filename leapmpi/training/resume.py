"""Resuming: the checkpoint to go on from is found, compared with the settings, sent to all ranks and restored."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.config.sections import fields, flattened
from leapmpi.dataset.partitioned import Dataset
from leapmpi.errors import RunFolderError
from leapmpi.runs.checkpoint_folder import CheckpointFile, CheckpointFolder
from leapmpi.system.phase_timers import PHASES
from leapmpi.training.model_state import below
from leapmpi.training.records.epoch_progress import EpochProgress
from leapmpi.training.trainer import Trainer

log = logging.getLogger("leapmpi")

CHANGEABLE = ("data", "train.epochs", "evaluate.every", "evaluate.batch_size")
"""Settings that may differ when a run is resumed, besides those of [run]; of `data` only the place."""


@dataclass
class SavedRun:
    """The state of checkpoint `name`. `complaints` says what is wrong with newer ones, which are damaged."""

    name: str
    state: CheckpointFile
    complaints: list[str]


def find(folder: Path, config: Config, dataset: Dataset) -> SavedRun:
    """The newest sound checkpoint in run folder `folder`.

    Raises RunFolderError when there is none, or when its run had another dataset or other settings.
    """
    name, state, complaints = CheckpointFolder(folder).newest()
    if name is None or state is None:
        raise RunFolderError(
            f"{folder} holds an unfinished run whose checkpoints are all damaged ({complaints[0]}); "
            "choose another --run folder, or pass --overwrite to start anew"
        )
    if found := list(_differences(state.values, config, dataset)):
        raise RunFolderError(
            f"{folder} holds an unfinished run that was started otherwise: {'; '.join(found)}; start it with the same "
            "settings to resume it, or choose another --run folder"
        )
    return SavedRun(name, state, complaints)


def _differences(saved: dict[str, Any], config: Config, dataset: Dataset) -> Iterator[str]:
    if saved["graph_uuid"] != dataset.graph_uuid:
        yield f"{config.data} holds another graph"
    before, now = flattened(saved["config"]), flattened(json.loads(json.dumps(config.to_values())))
    for key, setting in fields():
        was = before.get(key, json.loads(json.dumps(setting.default)))
        if was != now[key] and key not in CHANGEABLE and not key.startswith("run."):
            yield f"{key} was {_text(was)}, is {_text(now[key])}"
    for key in sorted(before.keys() - now.keys()):
        yield f"{key} was {_text(before[key])}, which this leapmpi does not know"
    done = saved["progress"]["epoch"]
    if config.train.epochs <= done and config.train.epochs != before["train.epochs"]:
        yield f"train.epochs was {before['train.epochs']}, is {config.train.epochs}, but {done} epochs are done"


def changes(saved: dict[str, Any], config: Config, dataset: Dataset, ranks: int) -> list[str]:
    """What is another than before, though it may be, and bears on the results, for the log."""
    found = []
    if saved["ranks"] != ranks:
        found.append(f"{ranks} ranks instead of {saved['ranks']}")
    if saved["uuid"] != dataset.uuid:
        found.append("another partition of the same graph")
    before = flattened(saved["config"])["train.epochs"]
    if before != config.train.epochs:
        found.append(f"{config.train.epochs} epochs instead of {before}")
    return found


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join("all" if each == -1 else str(each) for each in value) or "not given"
    return str(value) or "not given"


def restore(trainer: Trainer, saved: SavedRun) -> None:
    """Put `trainer` where it stood when `saved` was written, but for what `Trainer.prepare` restores. Collective.

    Raises DataError when the state does not fit the model or a file is damaged, on all ranks alike.
    """
    checkpoints = CheckpointFolder(Path(trainer.config.run.folder))
    values, arrays, world = saved.state.values, saved.state.arrays, trainer.world
    trainer.progress = EpochProgress.restored(
        values["progress"], arrays["losses"], _known_phases(values, arrays), trainer.ctx.communicator
    )
    if world.rank == 0:
        trainer.ctx.features.errors.add(*values["row_errors"])
    trainer.epochs = list(values["epochs"])
    world.on_all(lambda: trainer.restore_models((arrays, values), str(checkpoints.path / saved.name)))
    trainer.restarts, trainer.seconds_before = values["restarts"] + 1, values["run_seconds"]
    arrays_of_rank = world.on_all(lambda: _rank_arrays(world, saved, checkpoints))
    trainer.engine.placement.restore_rank(below("strategy", arrays_of_rank))


def _rank_arrays(world: World, saved: SavedRun, checkpoints: CheckpointFolder) -> dict[str, np.ndarray]:
    """What this rank alone had; empty on another number of ranks."""
    if saved.state.values["rank_pieces"] != world.size:
        return {}
    return checkpoints.read_rank(saved.name, world.rank, saved.state).arrays


def saved_choices(saved: SavedRun) -> dict[str, Any]:
    """What had been chosen, as `Engine.restore` takes it."""
    return {**saved.state.values["strategy"], **below("strategy", saved.state.arrays)}


def begin_of(saved: SavedRun) -> tuple[int, int]:
    """Epoch and iteration from which the run goes on."""
    progress = saved.state.values["progress"]
    return progress["epoch"], progress["iteration"]


def _known_phases(values: dict[str, Any], arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Seconds by rank and the phases of this version, in its order: float64[ranks, phases]."""
    columns = dict(zip(values["phases"], arrays["phases"].T, strict=True))
    nothing = np.zeros(len(arrays["phases"]))
    return np.column_stack([columns.get(phase, nothing) for phase in PHASES])


def broadcast_saved(saved: SavedRun | None, communicator: Communicator) -> SavedRun | None:
    """What rank 0 found, on all ranks; others pass None. Collective."""
    heading = None
    if communicator.rank == 0:
        arrays = saved.state.arrays if saved else {}
        kinds = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
        about = [saved.name, saved.state.values, saved.complaints, kinds] if saved else None
        heading = np.frombuffer(json.dumps(about).encode(), np.uint8)
    about = json.loads(_broadcast(heading, communicator).tobytes())
    if about is None:
        return None
    name, values, complaints, kinds = about
    received = {}
    for each, dtype, shape in kinds:
        array = saved.state.arrays[each] if saved and communicator.rank == 0 else None
        received[each] = _broadcast(array, communicator).view(dtype).reshape(shape)
    return SavedRun(name, CheckpointFile(received, values), complaints)


def _broadcast(array: np.ndarray | None, communicator: Communicator) -> np.ndarray:
    """The bytes of rank 0's array, uint8[n], on all ranks; packed, as int64 numbers are broadcast. Collective."""
    packed = None
    if communicator.rank == 0:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        packed = np.zeros(1 + -(-len(data) // 8), np.int64)
        packed[0] = len(data)
        packed[1:].view(np.uint8)[: len(data)] = data
    packed = communicator.broadcast(packed, "control")
    return packed[1:].view(np.uint8)[: packed[0]]
