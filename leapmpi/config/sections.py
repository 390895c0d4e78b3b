"""The settings of a run, by section. Each setting is declared once, here: its flag, its checks and its help follow."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leapmpi.config.link import LOSSES, LinkConfig
from leapmpi.config.other_names import about_former_key, about_other_name
from leapmpi.config.setting import (
    FULL_BATCH,
    Setting,
    check_relation_fanout,
    check_size,
    check_size_or_auto,
    check_time_steps,
    learned_width,
    parse_interval,
    setting,
    settings_of,
)
from leapmpi.errors import nearest

DATA_AND_RUN, CHECKPOINTS, MACHINE = "data and run", "checkpoints", "machine"


@dataclass(frozen=True)
class ModelConfig:
    """Model to train. The number of layers is the number of fan-outs."""

    name: str = setting(
        "sage",
        "model to train, or a class of yours as FILE.py:CLASS",
        flag="model",
        registry="leapmpi.nn.models",
        code=True,
        common=True,
    )
    hidden: int = setting(128, "width of the hidden layers", least=1, common=True)
    options: tuple[str, ...] = setting(
        (), "an option of the model, such as heads=8 (--help-all lists them)", flag="model-option", metavar="NAME=VALUE"
    )
    jumping: str = setting(
        "none",
        "combination of layers for the output: the last, all side by side, or their maximum",
        choices=("none", "cat", "max"),
    )
    dropout: float = setting(0.5, "share of hidden values dropped in training", least=0, below=1, metavar="SHARE")
    input_dropout: float = setting(
        0.0, "share of input features dropped in training", least=0, below=1, metavar="SHARE"
    )
    norm: str = setting(
        "auto",
        "normalisation of hidden rows: each row by itself (layer), or by statistics of the whole batch "
        "(batch); auto: layer for deepgcn and film, else none",
        choices=("auto", "none", "layer", "batch"),
    )
    residual: bool = setting(False, "add each layer's input to its output")
    missing_features: str = setting(
        "",
        "replacement for missing features: learned:64 is a learned row of 64 columns per vertex",
        metavar="learned:N",
        check=learned_width,
    )
    seed: int = setting(
        -1, "seed of initial weights and dropout masks alone; -1: the value of --seed", least=-1, flag="model-seed"
    )


@dataclass(frozen=True)
class SamplingConfig:
    """Sampling of neighbourhoods."""

    sampler: str = setting(
        "node-wise",
        "sampler, or a class of yours as FILE.py:CLASS",
        flag="sampler",
        registry="leapmpi.sampling.samplers",
        code=True,
        common=True,
    )
    fanout: tuple[int, ...] = setting(
        (10, 10),
        "neighbours drawn per hop, from the root outward: one number per layer, so that 10,10 makes two "
        "layers; 'all' takes all",
        common=True,
    )
    relation_fanout: tuple[str, ...] = setting(
        (),
        "typed graphs: other fan-outs of some relations, such as paper:cites:paper=10,5 or *:rev_*:*=0; 0 leaves a "
        "relation out (--fanout holds for each relation)",
        metavar="RELATION=A,B",
        check=check_relation_fanout,
    )
    options: tuple[str, ...] = setting(
        (),
        "an option of the sampler, such as rounds=2 (--help-all lists them)",
        flag="sampler-option",
        metavar="NAME=VALUE",
    )
    edge_weights: str = setting(
        "use", "whether layers and samplers that can read the weights of edges do so", choices=("use", "ignore")
    )


@dataclass(frozen=True)
class StrategyConfig:
    """Placement of roots and traffic between ranks."""

    name: str = setting(
        "auto",
        "placement of roots and traffic between ranks; auto: predicted to be fastest",
        flag="strategy",
        registry="leapmpi.strategies",
        also=("auto",),
        common=True,
    )
    time_steps: str = setting(
        "auto",
        "time steps of an iteration: auto, 1 to N, the number of ranks, or measured: the fastest number, found while "
        "training",
        metavar="auto|N|measured",
        check=check_time_steps,
    )
    merge: str = setting("paper", "merge rule", registry="leapmpi.plan.merging")
    memory_limit: str = setting(
        "",
        "memory limit of an iteration on a rank, such as 2G: sets the fewest time steps that fit; hybrid "
        "caches as much as fits",
        metavar="SIZE",
        check=check_size,
    )
    balance_parts: str = setting(
        "off",
        "full batches: reassign parts to ranks by measured times of epochs: never, or if it pays",
        choices=("off", "measured"),
    )
    remote: str = setting(
        "auto",
        "form in which inputs of the first layer cross ranks: raw rows, sums of them, projected rows, "
        "partial sums, or the fewest of both (mixed); auto: predicted to be fastest",
        registry="leapmpi.exchange.modes",
        also=("auto",),
    )
    cache: float = setting(
        0.0,
        "copies of remote rows that each rank keeps, as a share of all vertices",
        least=0,
        below=1,
        metavar="SHARE",
    )
    feature_memory: str = setting(
        "",
        "memory for feature rows on each rank, such as 2G: holds the most read rows; others are read from "
        "the dataset's files; learned rows are then in unnamed files in TMPDIR",
        metavar="SIZE",
        check=check_size,
    )
    prefetch: str = setting(
        "auto",
        "iterations prepared ahead (planned, sampled, fetched); auto: 2 if raw rows cross ranks, 1 if draws "
        "or computed rows do",
        choices=("auto", "0", "1", "2"),
    )
    vary: tuple[str, ...] = setting(
        (),
        "train several models at once that differ in a setting: its key and values, such as "
        "model.hidden=16,32; several flags multiply",
        metavar="KEY=A,B",
    )
    prepare_ranks: int = setting(
        0,
        "number of ranks, the last ones, that hold the dataset and prepare mini-batches; the others hold the "
        "model and compute",
        least=0,
    )


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation."""

    epochs: int = setting(10, "passes over the training vertices", least=1, common=True)
    batch_size: int = setting(
        1024,
        "roots per optimizer step, over all ranks; full: all training vertices",
        least=1,
        words={"full": FULL_BATCH},
        metavar="N|full",
        common=True,
    )
    lr: float = setting(0.003, "learning rate", above=0, metavar="RATE", common=True)
    optimizer: str = setting("adam", "optimizer", choices=("adam", "adamw", "sgd"))
    momentum: float = setting(0.0, "momentum (sgd)", least=0, below=1, metavar="FACTOR")
    weight_decay: float = setting(0.0, "weight decay", least=0, metavar="RATE")
    lr_schedule: str = setting("constant", "learning rate over time", choices=("constant", "cosine"))
    warmup_epochs: float = setting(0.0, "epochs of linear warm-up", least=0, metavar="EPOCHS")
    clip_norm: float = setting(0.0, "largest gradient norm; 0 does not clip", least=0, metavar="NORM")
    task: str = setting(
        "auto",
        "task of the model; auto: by the labels of the dataset",
        registry="leapmpi.nn.tasks",
        also=("auto",),
    )
    loss: str = setting("auto", "loss of a regression, or of links; auto: mse, or binary", choices=LOSSES)
    class_weights: str = setting(
        "",
        "weights of the loss by class: balanced, one number per class, or a file of them",
        metavar="balanced|A,B|FILE",
    )
    early_stop: int = setting(
        0,
        "evaluations without a better validation score after which training stops; 0: never",
        least=0,
        metavar="N",
    )
    seed: int = setting(0, "seed of all random draws", least=0)
    dtype: str = setting(
        "float32",
        "type of parameters and activations; bfloat16: as float32, but a GPU multiplies rows and weights in bfloat16",
        choices=("float32", "float64", "bfloat16"),
    )
    init: str = setting(
        "", "start from the best weights of this run, or from a weights file, instead of random ones", metavar="RUN"
    )

    @property
    def parameter_dtype(self) -> str:
        """The type of parameters, activations and gradients: that of products too, unless `dtype` is bfloat16."""
        return "float32" if self.dtype == "bfloat16" else self.dtype


@dataclass(frozen=True)
class EvaluateConfig:
    """Scoring on the validation and test vertices."""

    every: int = setting(1, "epochs between evaluations; 0 evaluates after the last only", least=0, flag="eval-every")
    fanout: tuple[int, ...] = setting(
        (),
        "fan-outs of evaluation: one for all hops, such as all, or one per hop (default: as in training)",
        flag="eval-fanout",
        metavar="A|A,B",
    )
    limit: int = setting(
        0, "limit of scored vertices (or edges) per split, a random sample; 0: all", least=0, flag="eval-limit"
    )
    metric: str = setting(
        "auto",
        "metric; auto: accuracy, f1-micro for multi-label, map-10 for recommend, mse for a regression",
        registry="leapmpi.scoring.metrics",
        also=("auto",),
    )


@dataclass(frozen=True)
class RunConfig:
    """Record of a run, and the machine it runs on."""

    folder: str = setting(
        "", "run folder (default runs/DATE-N)", flag="run", metavar="FOLDER", group=DATA_AND_RUN, common=True
    )
    overwrite: bool = setting(
        False, "start over in the folder of an unfinished run, and delete its checkpoints", group=DATA_AND_RUN
    )
    checkpoint_every: str = setting(
        "10m",
        "iterations (100) or minutes (10m) between checkpoints; 0: only on a stop request",
        metavar="N|Nm",
        check=parse_interval,
        group=CHECKPOINTS,
    )
    log_level: str = setting(
        "info", "lowest severity shown", choices=("debug", "info", "warning", "error"), group=DATA_AND_RUN
    )
    timeline: bool = setting(
        False, "record a timeline of each rank for ui.perfetto.dev: timeline-rank-R.json", group=DATA_AND_RUN
    )
    device: str = setting(
        "auto",
        "device of training; stand-in: the GPU's code path on the CPU, for tests",
        choices=("auto", "cpu", "cuda", "stand-in"),
        group=MACHINE,
        common=True,
    )
    mpi_device_path: str = setting(
        "host",
        "path of GPU data to MPI: through pinned host memory, or directly",
        choices=("host", "cuda", "auto"),
        group=MACHINE,
    )
    comm_timeout: float = setting(
        300.0,
        "seconds without progress of any rank after which the job is aborted; 0: never",
        least=0,
        metavar="SECONDS",
        group=MACHINE,
    )
    replay: str = setting(
        "", "repeat the timing-based decisions recorded in this run folder", metavar="FOLDER", group=DATA_AND_RUN
    )
    topology: str = setting(
        "auto",
        "storage of in-neighbours: a copy on every node, or each rank those of its own vertices (sharded); "
        "auto: sharded if a copy takes over half of a node's free memory",
        choices=("auto", "node", "sharded"),
        group=MACHINE,
    )
    topology_memory: str = setting(
        "",
        "memory for in-neighbours on each node, such as 8G: holds the most read; others are read from a file in "
        "TMPDIR, or requested if sharded; auto: a share of --feature-memory, by predicted reads of files",
        metavar="SIZE",
        check=check_size_or_auto,
        group=MACHINE,
    )
    threads: int = setting(
        0, "threads per rank; 0: share the cores of a node among its ranks", least=0, below=1025, group=MACHINE
    )
    verify: str = setting(
        "auto",
        "checks while loading: auto (features up to 1 GiB a rank), all, none",
        choices=("auto", "all", "none"),
        group=DATA_AND_RUN,
    )


DATA: Any = setting("", "dataset folder")
"""The one setting outside of a section: a dataclass field."""

SECTIONS: dict[str, type] = {"model": ModelConfig, "sampling": SamplingConfig, "strategy": StrategyConfig}
SECTIONS |= {"train": TrainConfig, "link": LinkConfig, "evaluate": EvaluateConfig, "run": RunConfig}

_GROUP_OF_SECTION = {
    "model": "model",
    "sampling": "sampling",
    "strategy": "strategy and movement",
    "train": "training",
    "link": "link prediction",
    "evaluate": "evaluation",
}
"""Heading of a section's flags in --help, unless a setting declares a `group`."""

GROUPS = (DATA_AND_RUN, *_GROUP_OF_SECTION.values(), CHECKPOINTS, MACHINE)
"""The headings of --help, in the order in which they are shown."""


@functools.cache
def fields() -> tuple[tuple[str, Setting], ...]:
    """List all settings by dotted key, in order of declaration."""
    found = {"data": Setting("data", str, DATA.default, DATA.metadata)}
    for name, section in SECTIONS.items():
        found |= settings_of(section, f"{name}.", group=_GROUP_OF_SECTION.get(name))
    return tuple(found.items())


def about_unknown(key: str, known: Mapping[str, Setting]) -> str:
    """Explain a key that is not a setting: it names a section, lacks its section, or is unknown."""
    if former := about_former_key(key):
        return former
    if inside := [name for name in known if name.startswith(f"{key}.")]:
        return f"{key} is a section, not a value; set one of its keys: {', '.join(inside)}"
    # Most wrong keys have the wrong section: their last part says most.
    section, _, last = key.replace("-", "_").rpartition(".")
    if same_name := {name.rpartition(".")[0]: name for name in known if name.rpartition(".")[2] == last}:
        # A misspelt section, or any other: that of training comes before that of evaluation.
        close = difflib.get_close_matches(section, same_name, n=1) or list(same_name)
        return f"unknown key {key!r}; did you mean {same_name[close[0]]!r}?"

    # What others call so, by the flag, whose key is named.
    flags = {each.flag: name for name, each in known.items()}
    for flag in flags:
        if about_other_name(key.rpartition(".")[2], [flag]) == f"did you mean '--{flag}'?":
            return f"unknown key {key!r}; did you mean {flags[flag]!r}?"
    own = [name for name in known if name.startswith(f"{key.rpartition('.')[0]}.")]
    for names in (own, list(known)):
        by_last = {name.rpartition(".")[2]: name for name in reversed(names)}
        if close := difflib.get_close_matches(last, by_last, n=1, cutoff=0.7):
            return f"unknown key {key!r}; did you mean {by_last[close[0]]!r}?"
    return f"unknown key {key!r}; {nearest(key, known)}"


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested mappings to one level with dotted keys; empty mappings vanish."""
    # Not by recursion: a file may nest deeper than Python's stack.
    flat: dict[str, Any] = {}
    levels = [("", iter(values.items()))]
    while levels:
        above, left = levels[-1]
        for key, value in left:
            if isinstance(value, Mapping):
                levels.append((f"{above}{key}.", iter(value.items())))
                break
            flat[f"{above}{key}"] = value
        else:
            levels.pop()
    return flat
