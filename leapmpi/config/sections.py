"""The settings of a run, by section: each field is declared once, here; its flag, check and help come from it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from leapmpi.config.setting import Setting, setting
from leapmpi.errors import nearest


@dataclass(frozen=True)
class ModelConfig:
    """Which model is trained. The number of layers is the number of fan-outs."""

    name: str = setting("sage", "model", flag="model", registry="leapmpi.nn.models")
    hidden: int = setting(128, "width of the hidden layers", least=1)
    heads: int = setting(4, "attention heads (gat); divides hidden", least=1)
    aggregate: str = setting(
        "mean", "how sage combines in-neighbours; max cannot be split into sums", choices=("mean", "max")
    )
    dropout: float = setting(0.5, "share of hidden values dropped in training", least=0, below=1)
    input_dropout: float = setting(0.0, "share of input features dropped in training", least=0, below=1)
    attention_dropout: float = setting(0.0, "share of attention weights dropped in training (gat)", least=0, below=1)
    norm: str = setting("none", "normalisation of hidden rows", choices=("none", "layer"))
    residual: bool = setting(False, "add each layer's input to its output")
    seed: int = setting(
        -1, "seed of initial weights and dropout masks alone; -1: that of everything", least=-1, flag="model-seed"
    )


@dataclass(frozen=True)
class SamplingConfig:
    """How neighbourhoods are drawn."""

    sampler: str = setting("node-wise", "sampler", flag="sampler", registry="leapmpi.sampling.samplers", code=True)
    fanout: tuple[int, ...] = setting(
        (10, 10), "neighbours drawn per hop, from the root outward; 'all' takes every one", flag="fanout"
    )
    options: tuple[str, ...] = setting(
        (), "an option of the sampler as name=value (leapmpi/sampling/README.md lists them)", flag="sampler-option"
    )


@dataclass(frozen=True)
class StrategyConfig:
    """Where each root of a batch is trained, and what travels."""

    name: str = setting("leap", "strategy", flag="strategy", registry="leapmpi.strategies")
    time_steps: str = setting("auto", "steps an iteration is cut into: auto, or 1 to the number of ranks (N)")
    merge: str = setting("paper", "merge rule", registry="leapmpi.plan.merging")
    memory_limit: str = setting(
        "", "most memory an iteration may take on a rank, such as 2G: the fewest time steps that fit are taken"
    )
    balance: str = setting(
        "off",
        "leap: train roots of the most loaded rank elsewhere: never, where it pays by measured rates, always",
        choices=("off", "auto", "on"),
    )
    remote: str = setting(
        "auto",
        "what crosses ranks for the first layer: raw rows, projected rows, partial sums, or the fastest of them",
        choices=("raw", "projected", "partial", "auto"),
    )
    cache: float = setting(
        0.0, "rows at home elsewhere that each rank keeps copies of, as a share of all vertices", least=0, below=1
    )
    cache_policy: str = setting("vip", "cache policy", registry="leapmpi.features.policies")
    wire_dtype: str = setting(
        "native",
        "type in which raw feature rows cross ranks in training; all but native are lossy",
        choices=("native", "float16", "bfloat16", "int8"),
    )
    prefetch: str = setting(
        "auto",
        "iterations planned, sampled and fetched while another is trained; auto: 2 where raw rows cross ranks",
        choices=("auto", "0", "1", "2"),
    )
    replicas: str = setting(
        "equal",
        "the models on the ranks: one and the same (equal), or several that differ in --vary (independent)",
        choices=("equal", "independent"),
    )
    vary: tuple[str, ...] = setting(
        (), "a setting and its values, such as model.hidden=16,32; several multiply", flag="vary"
    )
    migrate: str = setting("ring", "at several steps: models travel (ring) or stay (none)", choices=("ring", "none"))


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation."""

    epochs: int = setting(10, "passes over the training vertices", least=1)
    batch_size: int = setting(1024, "roots per optimizer step, over all ranks", least=1)
    lr: float = setting(0.003, "learning rate", above=0)
    optimizer: str = setting("adam", "optimizer", choices=("adam", "adamw", "sgd"))
    momentum: float = setting(0.0, "momentum (sgd)", least=0, below=1)
    weight_decay: float = setting(0.0, "weight decay", least=0)
    lr_schedule: str = setting("constant", "learning rate over time", choices=("constant", "cosine"))
    warmup_epochs: float = setting(0.0, "epochs of linear warm-up", least=0)
    clip_norm: float = setting(0.0, "largest gradient norm; 0 does not clip", least=0)
    seed: int = setting(0, "seed of everything that is drawn", least=0)
    dtype: str = setting("float32", "type of parameters and activations", choices=("float32", "float64"))


@dataclass(frozen=True)
class EvaluateConfig:
    """Scoring on the validation and test vertices."""

    every: int = setting(1, "epochs between evaluations; 0 evaluates after the last only", least=0, flag="eval-every")
    fanout: tuple[int, ...] = setting((), "fan-outs of evaluation; as in training when not given", flag="eval-fanout")
    batch_size: int = setting(4096, "vertices a rank evaluates at once", least=1, flag="eval-batch-size")
    metric: str = setting(
        "auto",
        "what is scored; auto: accuracy, or f1-micro when multi-label",
        choices=("auto", "accuracy", "f1-micro", "roc-auc"),
    )


@dataclass(frozen=True)
class RunConfig:
    """Where a run is recorded and what it runs on."""

    folder: str = setting("", "run folder; runs/DATE-N when not given", flag="run")
    overwrite: bool = setting(False, "start anew in the folder of an unfinished run, and drop its checkpoints")
    checkpoint_every: str = setting(
        "10m", "iterations (100) or minutes (10m) between checkpoints; 0: only when asked to stop"
    )
    checkpoint_keep: int = setting(2, "checkpoints that are kept", least=1)
    stop_before_end: int = setting(
        120, "seconds before the end of a Slurm job at which training stops, resumable; 0 never", least=0
    )
    deterministic: bool = setting(False, "only operations that give the same bits each time on a GPU; CPUs do anyway")
    log_level: str = setting("info", "least severity shown", choices=("debug", "info", "warning", "error"))
    timeline: bool = setting(False, "record when each rank did what, for ui.perfetto.dev: timeline-rank-R.json")
    device: str = setting("auto", "where models are trained", choices=("auto", "cpu", "cuda"))
    mpi_device_path: str = setting(
        "host", "GPU data reach MPI by pinned host memory, or directly", choices=("host", "cuda", "auto")
    )
    comm_timeout: float = setting(
        300.0, "seconds after which a job in which nothing moves is ended; 0 waits for ever", least=0
    )
    replay: str = setting("", "run folder whose decisions made from clocks are made again")
    threads: int = setting(0, "threads per rank; 0 shares the cores among the ranks of a node", least=0, below=1025)
    verify: str = setting(
        "auto",
        "what is checked while loading: auto (features up to 1 GiB a rank), all, none",
        choices=("auto", "all", "none"),
    )


DATA: str = setting("", "dataset folder")
"""The one setting outside of a section."""

SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "sampling": SamplingConfig,
    "strategy": StrategyConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "run": RunConfig,
}


@functools.cache
def fields() -> tuple[tuple[str, Setting], ...]:
    """All settings by dotted key, in order of declaration."""
    return tuple(_declared())


def _declared() -> Iterator[tuple[str, Setting]]:
    yield "data", Setting("data", str, DATA.default, DATA.metadata)
    for name, section in SECTIONS.items():
        types = get_type_hints(section)
        for each in dataclasses.fields(section):
            key = f"{name}.{each.name}"
            yield key, Setting(key, types[each.name], each.default, each.metadata)


def about_unknown(key: str, known: Mapping[str, Setting]) -> str:
    """What to say of a key that is no setting: a section, a setting without its section, or an unknown name."""
    if any(name.startswith(f"{key}.") for name in known):
        inside = [name for name in known if name.startswith(f"{key}.")]
        return f"{key} is a section, not a value; set one of its keys: {', '.join(inside)}"
    same_name = [name for name in known if name.rpartition(".")[2] == key]
    return f"unknown key {key!r}; " + (f"did you mean {same_name[0]!r}?" if same_name else nearest(key, known))


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one level with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flattened(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
