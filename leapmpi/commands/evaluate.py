"""`leapmpi evaluate`: score the weights of a run again."""

from __future__ import annotations

import argparse
import json
import sys

from leapmpi.config import fields
from leapmpi.flags import add_flags, given
from leapmpi.run import load_run

HELP = "score the weights of a run again"

_SETTINGS = (
    *("evaluate.fanout", "evaluate.batch_size", "evaluate.metric"),
    *("run.device", "run.threads", "run.log_level"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The dataset, the run, and the settings that may differ from the run's."""
    parser.add_argument("data", metavar="DATA", help="dataset folder")
    parser.add_argument("folder", metavar="RUN", help="run folder")
    parser.add_argument("--weights", choices=("best", "final"), default="best", help="which epoch's")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_flags(parser, [setting for key, setting in fields() if key in _SETTINGS])


def run(arguments: argparse.Namespace) -> int:
    """Score and print on rank 0. Collective."""
    from leapmpi.training import job
    from leapmpi.world import job_rank

    folder = load_run(arguments.folder)
    # The run's own settings hold unless a flag says otherwise.
    config = folder.config.replaced({**given(arguments), "data": arguments.data}, "evaluate")
    outcome = job.evaluate(config, folder, arguments.weights)
    if job_rank() == 0:
        if arguments.json:
            text = json.dumps({"schema": 1, "weights": arguments.weights, **outcome})
        else:
            known = {split: outcome[split] for split in ("val", "test") if outcome[split] is not None}
            scores = " ".join(f"{split} {score:.4f}" for split, score in known.items()) or "no vertices to score"
            text = f"{arguments.weights} weights (epoch {outcome['epoch'] + 1})  {outcome['metric']} {scores}"
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    return 0
