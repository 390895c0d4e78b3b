"""Damages files of run folders at random, and gives them to every command that reads runs:

    python -m tests.soak.fuzz_runs --trials 2000 --seed 0

A command must succeed, or end in a sentence and the exit code of its kind of error. It must not end in any other
exception, in the exit code of a defect, or take longer than a few seconds. Damage comes with digests that fit, where a
file has digests: what a file says must be checked as well as its bytes.
"""

import contextlib
import io
import json
import logging
import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from leapmpi import Config, train
from leapmpi.cli.main import main as leapmpi
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.hdf5.named_arrays import read_named_arrays, write_named_arrays
from leapmpi.dataset.hdf5.names import CHECKPOINT_FORMAT, WEIGHTS_FORMAT
from leapmpi.errors import Interrupted
from leapmpi.runs.checkpoint_folder import CheckpointFolder
from tests.soak.fuzz import blank, cut, flip, move
from tests.support.graphs import random_graph
from tests.support.trials import trials_main

SECONDS = 20
"""For one command: far more than any takes."""

CODES = {0, 1, 2, 3, 4, 5, 6, 75}
"""Success, and those of errors.py."""

SETTINGS = {"model.hidden": 4, "train": {"epochs": 2, "batch_size": 64, "lr": 0.05}}
DTYPES = ("<f4", "<f8", "<i8", "<i4", "<u8", "|u1")

VALUES = (
    *(None, True, False, 0, -1, 1, 7, 0.5, -0.5, 1e308, float("nan"), float("inf"), 2**31, 2**63, 2**64, 10**400),
    *("", "leap", "text", "\ud800", "1", [], [[]], [1, 2], {}, {"": {}}, {"x": 1}, [None], [{}]),
)
"""What takes the place of a value."""

TEXTS = ("[" * 100_000, "9" * 5000, "{" * 2000, '"', "1e999", "-", "nul", "\0", "[1,]", '{"a":' * 2000)
"""The same, of what JSON cannot hold or no program should read."""


# -- what is read ---------------------------------------------------------------------------------------------------


def make(folder: Path) -> None:
    """A dataset, a finished run, one of two models, and one that was stopped, in `folder`, which is the current one."""
    graph = random_graph()
    write_dataset(folder / "data", graph, np.arange(graph.vertices) % 2, 2, method="test", figures={}, seed=0)
    config = Config.from_values({**SETTINGS, "data": "data", "run": {"threads": 1, "log_level": "error"}})
    train(config.replaced({"run.folder": "finished"}))
    several = {"strategy.vary": "model.hidden=4,8"}
    train(config.replaced({"run.folder": "several", **several}))

    # A decision such as runs on several ranks record.
    rates = dict.fromkeys(("vertex", "edge", "step", "latency", "byte"), 1e-6)
    decision = {"event": "decision", "about": "rates", "epoch": 0, "iteration": 0, "value": rates, "evidence": {}}
    with Path("finished/metrics.jsonl").open("a") as file:
        file.write(json.dumps(decision) + "\n")

    # Stopped by a signal in its second epoch.
    def stop(record: logging.LogRecord) -> bool:
        if record.getMessage().startswith("epoch 1/"):
            os.kill(os.getpid(), signal.SIGTERM)
        return True

    log = logging.getLogger("leapmpi")
    log.addFilter(stop)
    with contextlib.suppress(Interrupted), contextlib.redirect_stdout(io.StringIO()):
        train(config.replaced({"run.folder": "stopped", "run.log_level": "info"}))
    log.removeFilter(stop)
    state = f"checkpoint/{CheckpointFolder(Path('stopped')).names()[-1]}/state.h5"
    Path("state").write_text(state)


FLAGS = "data --hidden 4 --epochs 2 --batch-size 64 --lr 0.05 --threads 1 --log-level error".split()  # noqa: SIM905


def commands() -> list[tuple[list[str], str, tuple[str, ...]]]:
    """Command lines, the run folder that each reads, and the files that it may read there."""
    records = ("config.toml", "metrics.jsonl", "summary.json")
    state = Path("state").read_text()
    of_stopped = (*records, state, state, state, "log.txt", "checkpoint", "ranks.stamps")
    return [
        (["compare", "finished", "sound"], "finished", ("summary.json", "config.toml")),
        (["compare", "several"], "several", ("summary.json", "model-01/summary.json")),
        (["plan", "data", "--compare", "finished", "--iterations", "1"], "finished", records[:2]),
        (["plan", "data", "--link", "finished", "--iterations", "1"], "finished", records[:2]),
        (["evaluate", "data", "finished"], "finished", ("config.toml", "weights-best.h5")),
        (["evaluate", "data", "several"], "several", ("config.toml", "summary.json", "model-01/weights-best.h5")),
        (["train", *FLAGS, "--run", "new", "--replay", "finished"], "finished", records[:2]),
        (["train", *FLAGS, "--run", "finished"], "finished", records),
        (["train", *FLAGS, "--run", "stopped"], "stopped", of_stopped),
    ]


# -- damage ---------------------------------------------------------------------------------------------------------


def damage_bytes(path: Path, chance: random.Random) -> str:
    """Other bytes."""
    data = bytearray(path.read_bytes())
    action = chance.choice((flip, flip, cut, blank, move))
    action(data, chance)
    path.write_bytes(data)
    return action.__name__


def exchange(path: Path, chance: random.Random) -> str:
    """Something else than a file of its kind under its name."""
    aside = path.with_name(f"{path.name}-aside")
    path.rename(aside)
    kinds: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "empty": path.touch,
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "loop": lambda: path.symlink_to(path.name),
        "dangling": lambda: path.symlink_to("nowhere"),
        "endless": lambda: path.symlink_to("/dev/zero"),
        "foreign": lambda: path.write_bytes(Path("data/dataset.h5").read_bytes()),
        "wrong text": lambda: path.write_text(chance.choice(TEXTS)),
        "latin": lambda: path.write_bytes(b'{"schema": "\xff"}\n'),
    }
    kind = chance.choice(list(kinds))
    kinds[kind]()
    return kind


def places(value: object, at: tuple = ()) -> list[tuple]:
    """The way to every value below `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [place for key, each in inner for place in places(each, (*at, key))]


def changed(value: object, chance: random.Random) -> object:
    """`value` with a value below it exchanged or left out, or another key among them; or another value altogether."""
    if not (found := places(value)) or chance.random() < 0.05:
        return chance.choice(VALUES)
    *way, last = chance.choice(found)
    inside = value
    for key in way:
        inside = inside[key]
    kind = chance.random()
    if kind < 0.25:
        del inside[last]
    elif kind < 0.35 and isinstance(inside, dict):
        inside[str(chance.choice(("x", "", "epoch", "1")))] = chance.choice(VALUES)
    else:
        inside[last] = chance.choice(VALUES)
    return value


def damage_json(path: Path, chance: random.Random) -> str:
    """Another value somewhere in one of the file's documents, or text that is not JSON."""
    lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
    number = chance.randrange(len(lines))
    if chance.random() < 0.1:
        wrong = chance.choice(TEXTS)
        lines[number] = chance.choice((wrong, lines[number].replace(": ", f": {wrong}", 1)))
    else:
        lines[number] = json.dumps(changed(json.loads(lines[number]), chance))
    path.write_text("\n".join(lines) + "\n")
    return "json"


def damage_toml(path: Path, chance: random.Random) -> str:
    """Another value of a setting, or a line of something else."""
    lines = path.read_text().splitlines()
    number = chance.randrange(len(lines))
    name = lines[number].partition("=")[0]
    values = (
        "9" * 5000,
        "[" * 3000,
        "nan",
        "1979-05-27",
        "{}",
        "[[]]",
        "'x'",
        "-1",
        "9223372036854775807",
        '""',
        "[{}]",
    )
    deep = ".".join("a" * 3000)
    others = ("[[train]]", f"{deep} = 1", f"[{deep}]", '"" = 1', "\0", "train = 1")
    lines[number] = f"{name}= {chance.choice(values)}" if chance.random() < 0.7 else chance.choice(others)
    path.write_text("\n".join(lines) + "\n")
    return "toml"


def damage_arrays(path: Path, chance: random.Random) -> str:
    """Other arrays or other values about them, written as leapmpi writes them."""
    kind, group = (CHECKPOINT_FORMAT, "arrays") if path.name == "state.h5" else (WEIGHTS_FORMAT, "parameters")
    arrays, about = read_named_arrays(path, kind, group, DTYPES)
    if chance.random() < 0.7:
        about = changed(about, chance)
    else:
        name = chance.choice(list(arrays))
        array = arrays.pop(name)
        others = (
            None,
            array[..., None],
            array.reshape(-1)[:1],
            array[:0],
            np.float64(3),
            array.astype("<i8"),
            array[::-1] + 9,
        )
        if (other := chance.choice(others)) is not None:
            arrays[name] = np.ascontiguousarray(other).reshape(np.shape(other))
    path.unlink()
    write_named_arrays(path, kind, group, arrays, about)
    return "arrays"


BY_SUFFIX = {".json": damage_json, ".jsonl": damage_json, ".toml": damage_toml, ".h5": damage_arrays}


def damage(path: Path, chance: random.Random) -> str:
    """One of all kinds of damage; what it was."""
    if path.is_dir() or chance.random() < 0.2:
        return exchange(path, chance)
    if path.suffix in BY_SUFFIX and chance.random() < 0.8:
        return BY_SUFFIX[path.suffix](path, chance)
    return damage_bytes(path, chance)


# -- trials ---------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A command has not come to an end."""


def _too_long(*_: object) -> None:
    raise TooLong


def outcome(line: list[str], seconds: int = SECONDS) -> tuple[str, str]:
    """What came of one command line within `seconds`: its exit code or a fault, and what was said."""
    said = io.StringIO()
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(seconds)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):
            code = leapmpi(line)
        # compare goes on without a damaged run, and says so.
        complains = not all(each.startswith("leapmpi: left out: ") for each in said.getvalue().splitlines())
        known = code in CODES and (code == 0) == (not complains)
        return (f"code {code}" if known else "fault"), f"code {code}: {said.getvalue()}"
    except BaseException:
        return "fault", traceback.format_exc(limit=-6)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def trial(number: int, seed: int, sound: Path, work: Path) -> tuple[str, str]:
    """One command on one damaged run folder; how it ended, and what it was with what was said."""
    chance = random.Random(f"{seed}-{number}")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sound, work)
    os.chdir(work)
    shutil.copytree("finished", "sound")
    line, folder, names = chance.choice(commands())
    path = Path(folder, chance.choice(names))
    if not path.exists():
        return "no such file", ""
    done = damage(path, chance)
    ended, said = outcome(line)
    return ended, f"{number}: {done} of {path}: leapmpi {' '.join(line)}\n{said}"


def soak(trials: int, seed: int, base: Path) -> tuple[Counter[str], list[str]]:
    """Run the trials; returns how often each thing happened, and what must not happen."""
    here = Path.cwd()
    sound, work = base / "sound", base / "work"
    sound.mkdir()
    counts: Counter[str] = Counter()
    faults = []
    try:
        os.chdir(sound)
        make(sound)
        for number in range(trials):
            ended, said = trial(number, seed, sound, work)
            counts[ended] += 1
            if ended == "fault":
                faults.append(said)
    finally:
        os.chdir(here)
    return counts, faults


if __name__ == "__main__":
    sys.exit(trials_main(__doc__, soak, 2000))
