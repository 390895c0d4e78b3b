"""Names that are not settings: those of other programs, and those of earlier versions, with what to use instead."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

_OTHERS = {
    "lr": "learning-rate learningrate learn-rate alpha eta",
    "lr-schedule": "scheduler lr-scheduler schedule",
    "warmup-epochs": "warmup",
    "clip-norm": "grad-clip clip-grad clip gradient-clipping max-norm grad-norm",
    "weight-decay": "wd l2 decay regularization",
    "epochs": "num-epochs n-epochs nepochs max-epochs epoch iterations",
    "batch-size": "bs batch batchsize mini-batch-size",
    "hidden": "hidden-dim hidden-size hidden-channels num-hidden n-hidden dim width units",
    "dropout": "drop drop-rate feat-drop dropout-rate p",
    "input-dropout": "in-drop feature-dropout",
    "norm": "normalization normalisation layer-norm use-layer-norm batch-norm",
    "residual": "skip skip-connections use-residual",
    "model": "arch architecture gnn net network",
    "optimizer": "optim opt optimiser",
    "fanout": "fanouts fan-outs num-neighbors num-neighbours neighbors neighbours samples num-samples sizes",
    "eval-fanout": "test-fanout val-fanout",
    "eval-every": "log-every eval-steps eval-interval evaluate-every validate-every",
    "eval-limit": "eval-samples max-eval-samples limit-val-batches limit-test-batches eval-vertices score-vertices",
    "metric": "score eval-metric",
    "early-stop": "patience early-stopping early-stopping-patience es-patience stop-after",
    "class-weights": "class-weight pos-weight loss-weights weighted-loss weights-per-class balanced",
    "loss": "criterion loss-function objective",
    "run": "output out out-dir output-dir log-dir logdir save-dir workdir result-dir save",
    "init": "pretrained load from-checkpoint warm-start init-from load-weights finetune finetune-from",
    "device": "gpu gpus cuda num-gpus",
    "threads": "num-threads workers num-workers nthreads omp-num-threads",
    "seed": "random-seed random-state",
    "dtype": "precision",
    "cache": "cache-size cache-ratio",
    "checkpoint-every": "save-every checkpoint-interval save-interval",
    "log-level": "verbosity quiet debug loglevel",
    "parts": "num-parts nparts n-parts partitions num-partitions k",
    "max-mem": "memory mem max-memory memory-limit",
}
"""By flag, the names that others use, as far as their spelling does not lead to the flag."""

_EXPLAINED = {
    "num-heads n-heads attention-heads": ("model-option", "write --model-option heads=8"),
    "attn-drop att-dropout": ("model-option", "write --model-option attention-dropout=0.1"),
    "aggregator aggregator-type aggr pool": ("model-option", "write --model-option aggregate=max"),
    "layers num-layers n-layers nlayers depth hops num-hops": (
        "fanout",
        "the model has as many layers as there are fan-outs: --fanout 10,10,10 makes three",
    ),
    "resume restart continue": (
        "run",
        "the same command with the same --run folder continues where that run stopped",
    ),
    "ranks np nproc num-ranks world-size nodes num-nodes": (
        "comm-timeout",
        "the launcher sets the number of ranks: mpirun -n 4 leapmpi ...",
    ),
    "data dataset data-dir root": ("config", "the dataset folder is named without a flag: leapmpi train DATA"),
}
"""Names of what is not a flag here; the sentence is for commands that have the flag before it."""


def about_other_name(name: str, flags: Container[str]) -> str:
    """Explain `name`, a word without dashes, in a clause, if other programs use it for one of `flags`.

    Empty where no program is known to.
    """
    name = name.lower().replace("_", "-")
    for flag, others in _OTHERS.items():
        if flag in flags and name in others.split():
            return f"did you mean '--{flag}'?"
    for others, (flag, sentence) in _EXPLAINED.items():
        if flag in flags and name in others.split():
            return sentence
    return ""


@dataclass(frozen=True)
class FormerSetting:
    """A setting that was removed: its `default`, and a sentence for whoever gives another value.

    `becomes` gives today's settings for such a value, where there are any that do the same.
    """

    default: Any
    instead: str
    becomes: Callable[[Any], dict[str, Any]] | None = None
    models: tuple[str, ...] = ()
    """The models that read it, besides those of users; where it is empty, any."""
    flag: str = ""
    """Its flag without dashes, where that was not the name of the setting."""


def _option(name: str, default: Any, *models: str) -> FormerSetting:
    """Find the former setting of models that is the option `name` of some."""
    spelled = name.replace("_", "-")
    instead = f"write --model-option {spelled}=VALUE ({', '.join(models)})"
    return FormerSetting(default, instead, lambda value: {f"model.options.{spelled}": value}, models)


FORMER: dict[str, FormerSetting] = {
    "model.heads": _option("heads", 4, "gat", "gatv2"),
    "model.attention_dropout": _option("attention_dropout", 0.0, "gat", "gatv2"),
    "model.aggregate": _option("aggregate", "auto", "sage", "film", "deepgcn"),
    "model.temperature": _option("temperature", 0.0, "deepgcn"),
    "model.learn_scalars": _option("learn_scalars", False, "deepgcn", "gin"),
    "model.mlp_layers": _option("mlp_layers", 0, "deepgcn", "gin"),
    "model.message_norm": _option("message_norm", False, "deepgcn"),
    "strategy.tune": FormerSetting(
        False, "write --time-steps measured", lambda value: {"strategy.time_steps": "measured"}
    ),
    "strategy.wire_dtype": FormerSetting(
        "native",
        "rows cross ranks in the type in which they are stored; leapmpi-prep --feature-dtype stores fewer bytes",
    ),
    "strategy.cache_policy": FormerSetting(
        "vip", "--cache takes the rows most likely to be read: by analysis, or by a dry run where none applies"
    ),
    "strategy.balance": FormerSetting(
        "off", "leap trains each root on its home rank; leapmpi-prep partition --balance evens out the parts"
    ),
    "strategy.migrate": FormerSetting("ring", "at several time steps models always travel"),
    "strategy.replicas": FormerSetting("equal", "--vary alone makes models that differ", lambda value: {}),
    "strategy.prepared_as": FormerSetting(
        "auto", "preparation ranks send sums where these keep the bits of rows; --remote sums sends sums always"
    ),
    "train.autocast": FormerSetting(
        "off", "write --dtype bfloat16, which a GPU multiplies in", lambda value: {"train.dtype": value}
    ),
    "evaluate.batch_size": FormerSetting(
        4096,
        "a rank scores as many vertices at once as memory holds, and groups that are bounded by time hold 4096",
        lambda value: {},
        flag="eval-batch-size",
    ),
    "link.negatives_at": FormerSetting(
        "any", "negatives are drawn among all vertices, so that results do not depend on the partition"
    ),
    "run.checkpoint_keep": FormerSetting(2, "the last two checkpoints are kept"),
    "run.stop_before_end": FormerSetting(120, "training stops two minutes before the end of a Slurm job"),
    "run.deterministic": FormerSetting(
        False, "a GPU uses operations that give the same bits each time", lambda value: {}
    ),
    "run.progress": FormerSetting(
        "30s", "long steps print their progress every 30 seconds; --log-level warning hides it"
    ),
}
"""By dotted key."""


def about_former_flag(flag: str) -> str:
    """Explain `flag`, without dashes, of an earlier version in a sentence; else empty."""
    flag = flag.lower().replace("_", "-").removeprefix("no-")
    for key, former in FORMER.items():
        if flag == (former.flag or key.rpartition(".")[2].replace("_", "-")):
            return f"leapmpi no longer has --{flag}: {former.instead}"
    return ""


def about_former_key(key: str) -> str:
    """Explain the dotted `key` of an earlier version in a sentence; else empty."""
    return f"leapmpi no longer has {key}: {FORMER[key].instead}" if key in FORMER else ""


def recorded_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Translate `values` by dotted key, recorded by this version or an earlier one, to settings of this version.

    Former settings become what does the same today; those without an equivalent acted on training alone, and go.
    """
    found = {key: value for key, value in values.items() if key not in FORMER}
    model = str(values.get("model.name", ""))
    for key, value in values.items():
        former = FORMER.get(key)
        if former and former.becomes and value != former.default:
            # A former setting of other models had no effect; one of user code may have had.
            read = not former.models or model in former.models or ":" in model
            found |= former.becomes(value) if read else {}
    if "strategy.vary" in found:
        found["strategy.vary"] = tuple(_varied_today(text) for text in found["strategy.vary"])
    return found


def _varied_today(text: str) -> str:
    """Translate the text of --vary, which may name a former setting of models."""
    key, equals, values = text.partition("=")
    former = FORMER.get(key.strip())
    return f"{next(iter(former.becomes('')))}{equals}{values}" if former and former.becomes else text


def lost_values(values: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each of `values`, by dotted key, that no setting of this version represents."""
    return [
        f"{key} was {value}, which leapmpi no longer has: {FORMER[key].instead}"
        for key, value in values.items()
        if key in FORMER and FORMER[key].becomes is None and value != FORMER[key].default
    ]
