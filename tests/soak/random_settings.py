"""Random command lines of `leapmpi train`, drawn from all settings, over small random graphs:

    python -m tests.soak.random_settings --seconds 3600 --seed 0
    python -m tests.soak.random_settings --seed 0 --trial 17      # one of them again
    python -m tests.soak.random_settings --seed 0 --graphs typed,typed-hash,triples

Each runs under mpirun in processes of its own, with a time limit. It must either take the loss trajectory of one rank's
`pull` with the same seed, to TOLERANCE by dtype, or be refused: one sentence, an exit code of errors.py, no traceback,
and no run folder but one that says that the run failed. A trial depends on the seed and its number alone.
"""

import argparse
import contextlib
import io
import math
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from data_prep.cli import main as prepare
from leapmpi import load_run
from leapmpi.config.options import MODELS, SAMPLERS
from leapmpi.config.sections import fields
from leapmpi.config.setting import Setting, settings_of
from leapmpi.errors import LeapmpiError
from tests.soak.fuzz_runs import CODES, outcome
from tests.soak.made_graphs import MADE, write_source
from tests.support.launch import mpirun

SECONDS = 240
"""For one job: far more than any takes, on a busy machine too."""

DRAWS = 4
"""Lines that are drawn for a trial until one rank takes it."""

TOLERANCE = {"float64": 1e-7, "float32": 2e-3}
"""Largest difference of a loss, relative to the larger one or 1, by --dtype. Adam makes much of rounding errors."""

COMMON = {
    "train.epochs": "2", "train.batch_size": "64", "train.dtype": "float64", "train.lr": "0.01", "model.hidden": "8",
    "sampling.fanout": "5,4", "run.threads": "1", "run.comm_timeout": "120", "run.device": "cpu",
}  # fmt: skip
"""Where a line does not draw them."""

VALUES: dict[str, tuple[str, ...]] = {
    "model.hidden": ("1", "4", "6", "12"),
    "model.missing_features": ("learned:3", "learned:8"),
    "sampling.relation_fanout": ("*:writes:*=2,3", "*:cites:*=0", "*=3,1"),
    "sampling.fanout": ("1", "6", "5,4", "2,2", "all,all", "4,3,2", "2,all", "3,2,2,2"),
    "strategy.time_steps": ("auto", "N", "1", "2", "3"),
    "strategy.memory_limit": ("2G", "100M", "1M"),
    "strategy.feature_memory": ("4K", "100K", "1G"),
    "run.topology_memory": ("1K", "20K", "1G", "auto"),
    "strategy.cache": ("0.05", "0.4", "0.9"),
    "strategy.vary": ("model.hidden=4,8", "train.lr=0.01,0.02;model.seed=1,2", "model.name=sage,gcn",
                      "train.optimizer=adam,sgd", "model.dropout=0,0.5"),
    "strategy.prepare_ranks": ("1", "2", "3"),
    "train.epochs": ("1", "3"),
    "train.batch_size": ("1000", "150", "33", "17", "full"),
    "train.lr": ("0.001", "0.02"),
    "train.momentum": ("0.5", "0.9"),
    "train.weight_decay": ("0.001", "0.1"),
    "train.warmup_epochs": ("0.5", "2"),
    "train.clip_norm": ("0.1", "2"),
    "train.class_weights": ("balanced", "1,2,3,1,2", "1,2"),
    "train.early_stop": ("0", "5"),
    "link.negatives_per_edge": ("1", "3"),
    "link.eval_negatives": ("auto", "20", "all", "given"),
    "evaluate.every": ("0", "1", "2"),
    "evaluate.fanout": ("all", "3", "2,3"),
    "evaluate.limit": ("0", "10", "60"),
    "run.checkpoint_every": ("0", "3", "10m"),
    "run.comm_timeout": ("90", "0"),
    "run.threads": ("0", "1", "2"),
    "run.replay": ("missing",),
    "run.device": ("auto", "cpu", "stand-in"),
}  # fmt: skip
"""Values of settings that have no list of choices; for others see `values_of`."""

LEFT_OUT = {"data", "run.folder", "sampling.options", "model.options", "train.init"}
"""Settings that a line has anyway, or that name files."""

NOT_COMPARED = (("train.dtype", "bfloat16"),)
"""Values with which losses depend on the partition, or on the device."""

OF_RESULTS = ("model", "sampling", "train", "link", "evaluate")
"""Sections of which losses are a function, with REPLICAS; a line's reference has these settings alone."""

REPLICAS = ("strategy.vary",)

SPOILT = ("-1", "nan", "x", "", "1e400", "9223372036854775808", "\u00b2", "a=b", "0", "true", "1,", "../..")
"""Values that most settings refuse."""


# -- what is drawn --------------------------------------------------------------------------------------------------


def values_of(setting: Setting) -> tuple[str, ...]:
    """Values of `setting` as words of a command line."""
    if setting.key in VALUES:
        return VALUES[setting.key]
    if setting.type is bool:
        return ("true", "false")
    if choices := setting.choices():
        return choices
    least = setting.limits.get("least", setting.limits.get("above", 0))
    if setting.type is float:
        return (f"{least + 0.2:g}", f"{least + 0.5:g}")
    if setting.type is int:
        return (str(max(least, 0)), str(max(least, 0) + 1), str(max(least, 0) + 7))
    return (setting.default_text,)


@dataclass
class Line:
    """A command line: the values of settings by key, on `ranks` ranks."""

    ranks: int
    data: str
    values: dict[str, str] = field(default_factory=dict)

    def words(self, data: Path, run: Path) -> list[str]:
        """As `leapmpi` takes them; an option of a sampler for each text between semicolons."""
        known, words = dict(fields()), ["train", str(data), "--run", str(run)]
        for key, value in self.values.items():
            for each in value.split(";") if key in ("sampling.options", "strategy.vary") else [value]:
                switch = known[key].type is bool and value in ("true", "false")
                flag = f"--{'no-' * (value == 'false')}{known[key].flag}" if switch else f"--{known[key].flag}={each}"
                words.append(flag)
        return words

    def alone(self) -> "Line":
        """What it must agree with: `pull` on one rank, all else that losses depend on alike."""
        kept = {key: value for key, value in self.values.items() if key.split(".")[0] in OF_RESULTS or key in REPLICAS}
        fixed = {"strategy.name": "pull", "run.threads": "1", "run.device": "cpu", "run.log_level": "error"}
        return Line(1, self.data, kept | fixed)


def draw(chance: random.Random, kinds: Sequence[str]) -> Line:
    """A random line on a dataset of one of `kinds`, mostly one whose settings go together."""
    known = {key: each for key, each in fields() if key not in LEFT_OUT}
    weights = [{"strategy": 5, "model": 2, "sampling": 2}.get(key.split(".")[0], 1) for key in known]
    keys = set(chance.choices(list(known), weights, k=chance.choice((2, 4, 6, 9))))
    line = Line(chance.randint(1, 4), chance.choice(kinds), dict(COMMON))
    for key in sorted(keys | {"strategy.name", "model.name", "sampling.sampler", "strategy.remote"}):
        line.values[key] = chance.choice(values_of(known[key]))
    if chance.random() < 0.4:
        line.values["sampling.sampler"] = "node-wise"
    if chance.random() < 0.9:
        line.values |= _fitting(line, chance)
        line.values = {key: value for key, value in line.values.items() if value}
    if chance.random() < 0.06:
        line.values[chance.choice(sorted(keys))] = chance.choice(SPOILT)
    return line


TYPED = tuple(name for name in MODELS.names() if MODELS.load(name).typed is not False)
"""Models of typed graphs."""

TYPED_STRATEGIES = ("leap", "pull", "owner", "depcomm", "hybrid")

ONE_AT_MOST = (REPLICAS, ("strategy.prepare_ranks",), ("strategy.feature_memory", "strategy.cache"))
"""Several models, ranks that prepare, rows that are chosen: groups of settings; with learned rows none."""

ON_DATA = {
    "bare": {"model.missing_features": "learned:5", "train.optimizer": "adam"},
    "links": {"train.task": "link", "link.target_edges": "auto"},
    "kinds": {"train.task": "edge-class"},
    "typed": {"model.missing_features": "learned:5", "train.optimizer": "adam"},
    "typed-hash": {"model.missing_features": "learned:5", "train.optimizer": "adam"},
    "triples": {"model.missing_features": "learned:5", "train.optimizer": "adam", "train.task": "link"},
}


def _fitting(line: Line, chance: random.Random) -> dict[str, str]:
    """Values that the dataset, or values that were drawn, call for; "" where a value is to be left out."""
    found = {"model.missing_features": "", "train.task": "auto", "run.replay": ""} | ON_DATA.get(line.data, {})
    learned = "model.missing_features" in ON_DATA.get(line.data, {})
    first = () if learned else next((keys for keys in ONE_AT_MOST if line.values.keys() & set(keys)), ())
    found |= dict.fromkeys((key for keys in ONE_AT_MOST if keys != first for key in keys), "")
    if first == REPLICAS:
        varied = line.values.get("strategy.vary", "model.hidden=4,8")
        found |= {"strategy.vary": varied}
    if line.data == "sparse":
        found["strategy.feature_memory"] = ""
    if "train.momentum" in line.values:
        found["train.optimizer"] = "sgd"
    if "strategy.memory_limit" in line.values:
        found["strategy.time_steps"] = ""
    if first == ("strategy.prepare_ranks",):
        preparing = min(int(line.values["strategy.prepare_ranks"]), line.ranks - 1)
        found |= {"strategy.prepare_ranks": str(preparing or ""), "strategy.remote": "raw"}
    if first or line.data in ("bare", "triples"):
        found["strategy.name"] = chance.choice(("leap", "pull"))
    if line.data in ("typed", "typed-hash", "triples"):
        found["model.name"] = chance.choice(TYPED)
        found["strategy.name"] = chance.choice(TYPED_STRATEGIES[: 2 if line.data == "triples" else None])
    else:
        found["sampling.relation_fanout"] = ""
    if line.data != "carrying" and line.values["sampling.sampler"] == "temporal":
        found["sampling.sampler"] = "labor-0"
    found |= _of_strategy({**line.values, **found}["strategy.name"])
    return found | _of_sampler({**line.values, **found}["sampling.sampler"], chance)


def _of_strategy(name: str) -> dict[str, str]:
    """What strategy `name` calls for."""
    found = {}
    if name in ("depcomm", "depcache", "hybrid"):
        found |= {"train.batch_size": "full", "sampling.fanout": "all,all"}
    else:
        found["strategy.balance_parts"] = ""
    if name not in ("leap", "pull", "owner", "auto"):
        found |= {"strategy.remote": "auto", "sampling.sampler": "node-wise"}
    if name != "leap":
        found |= dict.fromkeys(("strategy.time_steps",), "")
    if name not in ("leap", "hybrid"):
        found["strategy.memory_limit"] = ""
    return found


def _of_sampler(name: str, chance: random.Random) -> dict[str, str]:
    """What sampler `name` calls for, and some of its options."""
    options = settings_of(kind) if (kind := _options(name)) and name != "temporal" else {}
    texts = [f"{option.replace('_', '-')}={chance.choice(values_of(each))}" for option, each in options.items()]
    found = {"sampling.options": ";".join(chance.sample(texts, chance.randint(0, min(2, len(texts)))))}
    return found | ({"sampling.fanout": "all,all"} if name in ("cluster-gcn", "graph-saint") else {})


def _options(sampler: str) -> type | None:
    return SAMPLERS.load(sampler).options


# -- datasets -------------------------------------------------------------------------------------------------------


def write_data(folder: Path, kind: str, chance: random.Random) -> None:
    """A random graph of `kind`, one of MADE, cut at random, in `folder`. Raises AssertionError where that fails."""
    count = chance.choice((60, 200, 500, 900))
    synthetic, source, graph = (folder.with_name(f"{folder.name}{end}") for end in ("-s.npz", "-f", ".h5"))
    # Eight edges a vertex do not fit into communities of six.
    edges = count * min(chance.choice((1, 3, 8)), 8 if count > 60 else 4)
    size = ["--vertices", count, "--edges", edges, "--features", chance.choice((3, 16, 40))]
    size += ["--classes", 5, "--communities", 10, "--seed", chance.randrange(1000)]
    flags, cut = MADE[kind]
    method = chance.choice(("metis", "hash", "random", "contiguous", "ldg", "grem"))
    cut = ["--parts", chance.choice((1, 3, 4, 4, 4, 7)), "--method", method, *cut[4:]]
    _prepare("synth", synthetic, *size)
    with np.load(synthetic) as file:
        source = write_source(kind, dict(file), source)
    _prepare("import", source, graph, *flags)
    _prepare("partition", graph, folder, *cut)


def _prepare(*words: object) -> None:
    """Run a command of leapmpi-prep. Raises AssertionError where it fails."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = prepare([str(word) for word in words])
    assert code == 0, f"leapmpi-prep {words} ended with {code}"


# -- trials ---------------------------------------------------------------------------------------------------------


class Trials:
    """Trials of `seed` in the folder `base`; datasets are made when they are first drawn."""

    def __init__(self, seed: int, base: Path, kinds: Sequence[str]) -> None:
        self.seed, self.base, self.kinds = seed, base, kinds

    def dataset(self, name: str) -> Path:
        """The dataset `name`, KIND-NUMBER."""
        folder = self.base / name
        if not folder.exists():
            write_data(folder, name.rpartition("-")[0], random.Random(f"{self.seed}-{name}"))
        return folder

    def trial(self, number: int) -> tuple[str, str]:
        """How trial `number` ended, and what it was with what was said."""
        chance = random.Random(f"{self.seed}-{number}")
        run, alone = self.base / "run", self.base / "alone"
        for _ in range(DRAWS):
            line = draw(chance, self.kinds)
            data = self.dataset(f"{line.data}-{chance.randrange(4)}")
            shutil.rmtree(alone, ignore_errors=True)
            reference = outcome(line.alone().words(data, alone), SECONDS)
            if reference[0] == "code 0" or chance.random() < 0.2:
                break
        shutil.rmtree(run, ignore_errors=True)
        before = {each.name for each in self.base.iterdir()}
        words = [sys.executable, "-m", "leapmpi.cli", *line.words(data, run)]
        about = f"python -m tests.soak.random_settings --seed {self.seed} --trial {number}\n"
        about += f"jobs/mpirun/local {line.ranks} leapmpi {shlex.join(words[3:])}"
        try:
            job = mpirun(line.ranks, words, SECONDS, cwd=self.base)
        except pytest.fail.Exception as hang:
            return "fault: hang", f"{about}\n{hang}"
        said = f"{about}\ncode {job.returncode}\n{job.stdout[-600:]}\n{job.stderr[-2000:]}"
        left = sorted({each.name for each in self.base.iterdir()} - before - {"run"})
        if left:
            return "fault: files left", f"{said}\n{left}"
        if "Traceback" in job.stdout + job.stderr:
            return "fault: traceback", said
        if job.returncode:
            return _refusal(job.returncode, job.stderr, run), said
        ended, difference = self._compared(line, reference, run, alone)
        return ended, f"{said}\n{difference}"

    def _compared(self, line: Line, reference: tuple[str, str], run: Path, alone: Path) -> tuple[str, str]:
        """Whether the losses of `run` are those of one rank's pull, and what differs."""
        if not load_run(run).finished:
            return "fault: no summary", ""
        if any(line.values.get(key) == value for key, value in NOT_COMPARED):
            return "finished, not compared", ""
        ended, said = reference
        if ended != "code 0":
            return ("fault: reference" if ended == "fault" else "no reference"), said
        ours, theirs = losses(run), losses(alone)
        if [len(each) for each in ours] != [len(each) for each in theirs]:
            return "fault: number of losses", f"{list(map(len, ours))} instead of {list(map(len, theirs))}"
        got, wanted = map(np.concatenate, (ours, theirs))
        gap = np.max(np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted)), initial=0.0)
        allowed = TOLERANCE[line.values["train.dtype"]]
        return ("equal" if gap <= allowed else "fault: losses"), f"losses differ by {gap:.1e}; {allowed:g} is allowed"


def losses(run: Path) -> list[list[float]]:
    """The losses of all iterations of a run, or of each of its models."""
    found = load_run(run)
    return [
        [loss for event in each.metrics() if event["event"] == "epoch" for loss in event["losses"]]
        for each in found.models() or [found]
    ]


def _refusal(code: int, errors: str, run: Path) -> str:
    """Whether a job that ended with `code` was refused as it should."""
    sentences = [line for line in errors.splitlines() if line.strip()]
    if code not in CODES - {75}:
        return "fault: exit code"
    if len(sentences) != 1 or not sentences[0].startswith("leapmpi: error: "):
        return "fault: not one sentence"
    if run.exists():
        try:
            failure = load_run(run).failure
        except LeapmpiError:
            failure = None
        # What comes to light in training is recorded.
        return "failed, recorded" if failure else "fault: half a run folder"
    return f"refused, code {code}"


def soak(
    numbers: Sequence[int], seed: int, base: Path, seconds: float, kinds: Sequence[str] = tuple(MADE)
) -> tuple[Counter[str], list[str]]:
    """Run trials until `seconds` have passed; how often each thing happened, and what must not happen."""
    trials, counts, faults, end = Trials(seed, base, kinds), Counter[str](), [], time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() >= end:
            break
        ended, said = trials.trial(number)
        counts[ended] += 1
        print(f"{number}: {ended}: {said.splitlines()[-1] if said else ''}", flush=True)
        if ended.startswith("fault"):
            faults.append(f"{ended}\n{said}")
            print(said, flush=True)
    return counts, faults


def main() -> int:
    """The command; 1 where a trial found a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", type=int, help="this one alone")
    parser.add_argument("--graphs", default=",".join(MADE), help="only on these, as typed,triples; it changes trials")
    parser.add_argument("--folder", type=Path, help="keep datasets and the last run there; it must be empty")
    given = parser.parse_args()
    numbers = range(10**9) if given.trial is None else [given.trial]
    with tempfile.TemporaryDirectory(prefix="leapmpi-random-") as temporary:
        base = given.folder or Path(temporary)
        base.mkdir(exist_ok=True)
        seconds = given.seconds if given.trial is None else math.inf
        counts, faults = soak(numbers, given.seed, base, seconds, given.graphs.split(","))
    print(sum(counts.values()), "trials:", dict(counts.most_common()))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
