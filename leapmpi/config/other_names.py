"""Names that other programs use for what a flag of ours is called otherwise, for the hint about an unknown flag."""

from __future__ import annotations

from collections.abc import Container

_OTHERS = {
    "lr": "learning-rate learningrate learn-rate alpha eta",
    "lr-schedule": "scheduler lr-scheduler schedule",
    "warmup-epochs": "warmup",
    "clip-norm": "grad-clip clip-grad clip gradient-clipping max-norm grad-norm",
    "weight-decay": "wd l2 decay regularization",
    "epochs": "num-epochs n-epochs nepochs max-epochs epoch iterations",
    "batch-size": "bs batch batchsize mini-batch-size",
    "hidden": "hidden-dim hidden-size hidden-channels num-hidden n-hidden dim width units",
    "heads": "num-heads n-heads attention-heads",
    "dropout": "drop drop-rate feat-drop dropout-rate p",
    "input-dropout": "in-drop feature-dropout",
    "attention-dropout": "attn-drop att-dropout",
    "aggregate": "aggregator aggregator-type aggr pool",
    "norm": "normalization normalisation layer-norm use-layer-norm batch-norm",
    "residual": "skip skip-connections use-residual",
    "model": "arch architecture gnn net network",
    "optimizer": "optim opt optimiser",
    "fanout": "fanouts fan-outs num-neighbors num-neighbours neighbors neighbours samples num-samples sizes",
    "eval-fanout": "test-fanout val-fanout",
    "eval-every": "log-every eval-steps eval-interval evaluate-every validate-every",
    "eval-limit": "eval-samples max-eval-samples limit-val-batches limit-test-batches eval-vertices score-vertices",
    "eval-batch-size": "batch-size-eval test-batch-size val-batch-size",
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
    "checkpoint-keep": "keep-checkpoints save-total-limit",
    "log-level": "verbose verbosity quiet debug loglevel",
    "parts": "num-parts nparts n-parts partitions num-partitions k",
    "max-mem": "memory mem max-memory memory-limit",
}
"""By flag, the names that others use, as far as their spelling does not lead to the flag."""

_EXPLAINED = {
    "layers num-layers n-layers nlayers depth hops num-hops": (
        "fanout",
        "the model has as many layers as there are fan-outs: --fanout 10,10,10 makes three",
    ),
    "resume restart continue": (
        "run",
        "the same command with the same --run folder goes on where that run stopped",
    ),
    "ranks np nproc num-ranks world-size nodes num-nodes": (
        "comm-timeout",
        "the launcher sets the number of ranks: mpirun -n 4 leapmpi ...",
    ),
    "data dataset data-dir root": ("config", "the dataset folder is named without a flag: leapmpi train DATA"),
}
"""Names of what is no flag here; the sentence is for commands that have the flag before it."""


def about_other_name(name: str, flags: Container[str]) -> str:
    """A clause about `name`, a word without dashes in front, where another program calls one of `flags` so.

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
