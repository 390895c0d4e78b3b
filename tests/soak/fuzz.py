"""Damages headers of datasets, weights, checkpoints and heartbeats at random, and reads them:

    python -m tests.soak.fuzz --trials 5000 --seed 0

A reader must say what is wrong (DataError), or read the very same content where the damage does not matter. It must
not raise anything else, crash, take longer than a few seconds, or ask for much more memory than the file's size.
Readers run in children that are limited in address space and time. (Digests tell damage, not forgery: a file in which
one array is exchanged for another, with its digest, is a sound file of other content.)
"""

import os
import pickle
import random
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.hdf5 import attributes
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.dataset.verify import verify
from leapmpi.errors import DataError
from leapmpi.fault_tolerance.heartbeats import HeartbeatTable, create_heartbeats, map_heartbeats, read_heartbeats
from leapmpi.nn.parameters import digest
from leapmpi.runs.checkpoint_folder import CheckpointFile, CheckpointFolder, name_of
from leapmpi.runs.file_names import HEARTBEATS_FILE
from leapmpi.runs.weights import read_weights, write_weights
from tests.support.graphs import random_graph
from tests.support.trials import trials_main

BATCH = 50
SECONDS = 10
"""For one reading: far more than any takes."""

ROOM = 96 << 20
"""Bytes of address space that readings of files of 100 KiB may take beyond what is loaded."""

NUMBERS = (0, 1, 2, 255, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


# -- what is read ---------------------------------------------------------------------------------------------------


def read_dataset(folder):
    """Everything that training reads; returns its identity."""
    dataset = open_dataset(folder / "data")
    verify(dataset)
    load_topology(dataset)
    return dataset.uuid


def read_run_weights(folder):
    """The weights, by their digest."""
    arrays, about = read_weights(folder / "weights.h5")
    return digest(arrays), sorted(about)


def read_checkpoint(folder):
    """The state and what a rank holds of its own."""
    checkpoints = CheckpointFolder(folder)
    name = checkpoints.names()[0]
    state = checkpoints._complete(name)
    pieces = [state, checkpoints.read_rank(name, 0, state)]
    return [(digest(piece.arrays), sorted(piece.values)) for piece in pieces]


def read_ranks(folder):
    """How many ranks have a heartbeat; damage of a heartbeat itself is not noticed, and need not be."""
    try:
        return len(read_heartbeats(folder / HEARTBEATS_FILE)) <= 2
    except (OSError, ValueError) as error:
        raise DataError(str(error)) from error


READERS = {
    "data/dataset.h5": read_dataset,
    "data/part-00001.h5": read_dataset,
    "weights.h5": read_run_weights,
    f"checkpoint/{name_of(0, 3)}/state.h5": read_checkpoint,
    f"checkpoint/{name_of(0, 3)}/rank-00000.h5": read_checkpoint,
    HEARTBEATS_FILE: read_ranks,
}


def make(folder):
    """One of each kind of file below `folder`."""
    graph = random_graph()
    write_dataset(folder / "data", graph, np.arange(graph.vertices) % 3, 3, method="test", figures={}, seed=0)
    rng = np.random.default_rng(0)
    arrays = {f"layer{number}.weight": rng.standard_normal((7, 5)).astype("f4") for number in range(3)}
    write_weights(folder / "weights.h5", arrays, {"epoch": 3, "classes": 3, "feature_dim": 5})
    checkpoints, name = CheckpointFolder(folder), name_of(0, 3)
    checkpoints.begin(name)
    checkpoints.write_rank(name, 0, CheckpointFile({"losses": np.arange(9.0)}, {"checkpoint": "x"}))
    checkpoints.finish(name, CheckpointFile(arrays, {"checkpoint": "x", "rank_pieces": 1, "progress": {"epoch": 0}}))
    token = create_heartbeats(folder / HEARTBEATS_FILE, 2)
    for rank in range(2):
        HeartbeatTable(map_heartbeats(folder / HEARTBEATS_FILE, token), rank)


# -- damage ---------------------------------------------------------------------------------------------------------


def flip(data, chance):
    """Other bits in up to eight bytes."""
    for _ in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def number(data, chance):
    """A number that is likely to be a bad size or address, in place of another."""
    width = chance.choice((1, 2, 4, 8))
    at = chance.randrange(max(1, len(data) - width))
    data[at : at + width] = (chance.choice(NUMBERS) % 256**width).to_bytes(width, "little")


def cut(data, chance):
    """A file that ends early."""
    del data[chance.randrange(len(data)) :]


def blank(data, chance):
    """A stretch of zeros or ones."""
    at, length = chance.randrange(len(data)), chance.randint(1, 512)
    end = min(len(data), at + length)
    data[at:end] = bytes([chance.choice((0, 255))]) * (end - at)


def move(data, chance):
    """A stretch copied to another place."""
    length = chance.randint(8, 512)
    origin, to = (chance.randrange(max(1, len(data) - length)) for _ in range(2))
    data[to : to + length] = data[origin : origin + length]


def headers(data, chance, action):
    """`action` on the file's first kilobytes, where most of HDF5's own data stand in so small a file."""
    head = bytearray(data[:4096])
    action(head, chance)
    if len(head) == 4096:
        data[:4096] = head


def damage_bytes(path, chance):
    """Damage done behind HDF5's back."""
    data = bytearray(path.read_bytes())
    action = chance.choice((flip, number, number, cut, blank, move))
    if chance.random() < 0.5 and action is not cut:
        headers(data, chance, action)
    else:
        action(data, chance)
    path.write_bytes(data)
    return action.__name__


def damage_by_hdf5(path, chance):
    """Damage that HDF5 itself writes, with checksums and digests that fit."""
    with h5py.File(path, "r+") as file:
        arrays = []
        file.visititems(lambda name, item: arrays.append(name) if isinstance(item, h5py.Dataset) else None)
        name = chance.choice(arrays)
        kind = chance.choice(("external", "soft", "virtual", "elsewhere", "huge", "type", "attribute", "root", "twice"))
        if kind == "attribute":
            file[name].attrs["digest"] = chance.choice((b"0" * 32, 7, np.zeros(5000), "text of any length"))
        elif kind == "root":
            damage_root(file, chance)
        elif kind == "twice":
            other = chance.choice(arrays)
            if other != name:
                del file[name]
                file[name] = file[other]
        else:
            replace(file, name, kind, path)
    return kind


def damage_root(file, chance):
    """Another value of a root attribute, with a digest that fits."""
    found = attributes.read_attributes(file)
    del found["digest"]
    numbers = [name for name, value in found.items() if isinstance(value, int) and not isinstance(value, bool)]
    name = chance.choice(numbers)
    found[name] = chance.choice([number for number in NUMBERS if number < 2**63])
    file.attrs[name] = found[name]
    file.attrs["digest"] = np.bytes_(attributes.attributes_digest(found))


def replace(file, name, kind, path):
    """An array that is not what it seems, in place of `name`."""
    shape, dtype, stored = file[name].shape, file[name].dtype, file[name].attrs["digest"]
    del file[name]
    if kind == "external":
        file[name] = h5py.ExternalLink("/etc/passwd", "/x")
        return
    if kind == "soft":
        file[name] = h5py.SoftLink("/nowhere")
        return
    if kind == "virtual":
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(str(path.with_name("other.h5")), "x", shape)
        array = file.create_virtual_dataset(name, layout)
    elif kind == "elsewhere":
        array = file.create_dataset(name, shape, dtype, external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])
    elif kind == "huge":
        array = file.create_dataset(name, (2**40, *shape[1:]), dtype)
    else:
        array = file.create_dataset(name, shape, h5py.string_dtype())
    array.attrs["digest"] = stored


# -- trials ---------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a child reports of one trial."""

    number: int
    file: str
    damage: str
    result: str
    detail: str = ""


def trial(seed, sound, work, expected, number):
    """One reading of one damaged file."""
    chance = random.Random(f"{seed}-{number}")
    name = chance.choice(list(READERS))
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sound, work)
    by_hdf5 = name.endswith(".h5") and chance.random() < 0.3
    damage = (damage_by_hdf5 if by_hdf5 else damage_bytes)(work / name, chance)
    outcome = Outcome(number, name, damage, "")
    signal.alarm(SECONDS)
    try:
        same = READERS[name](work) == expected[name]
        outcome.result = "read" if same or damage == "twice" else "other content"
    except DataError as error:
        outcome.result = "allocated" if "allocat" in repr(error.__cause__).lower() else "refused"
        if isinstance(error.__cause__, MemoryError):
            outcome.result = "allocated"
        outcome.detail = f"{error} ({error.__cause__!r})"
    except Exception:
        outcome.result, outcome.detail = "raised", traceback.format_exc()
    signal.alarm(0)
    return outcome


def run_batch(numbers, trial):
    """`trial` of each of `numbers` in a child of its own; returns outcomes, the last of a crash if there was one."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with open(write, "wb") as out:
            limit_memory()
            for number in numbers:
                pickle.dump(number, out)
                out.flush()
                pickle.dump(trial(number), out)
                out.flush()
        os._exit(0)
    os.close(write)
    outcomes, current = [], None
    with open(read, "rb") as told:
        while True:
            try:
                current = pickle.load(told)
                outcomes.append(pickle.load(told))
                current = None
            except EOFError:
                break
    _, status = os.waitpid(child, 0)
    if status:
        outcomes.append(Outcome(current, "?", "?", "crashed", f"wait status {status}"))
    return outcomes


def limit_memory():
    """Let this process take ROOM more bytes of address space than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def soak(trials, seed, base):
    """Run the trials; returns how often each thing happened, and what must not happen."""
    sound, work = base / "sound", base / "work"
    sound.mkdir()
    make(sound)
    expected = {name: reader(sound) for name, reader in READERS.items()}
    counts, faults = Counter(), []
    for first in range(0, trials, BATCH):
        numbers = list(range(first, min(trials, first + BATCH)))
        while numbers:
            outcomes = run_batch(numbers, partial(trial, seed, sound, work, expected))
            for each in outcomes:
                counts[each.result] += 1
                if each.result not in ("read", "refused"):
                    faults.append(each)
            numbers = [number for number in numbers if number > outcomes[-1].number]
    return counts, faults


if __name__ == "__main__":
    sys.exit(trials_main(__doc__, soak, 5000))
