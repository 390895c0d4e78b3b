"""`leapmpi evaluate`: score the weights of a run again."""

from __future__ import annotations

import argparse
import json
import sys

from leapmpi.run import load_run


def evaluate(arguments: argparse.Namespace) -> int:
    """Score, print on rank 0, return 0. Collective."""
    from leapmpi.training import job
    from leapmpi.world import job_rank

    run = load_run(arguments.folder)
    # The run's own settings hold unless a flag says otherwise.
    overrides = {key: value for key, value in vars(arguments).items() if "." in key and value is not None}
    config = run.config.replaced({**overrides, "data": arguments.data}, "evaluate")
    outcome = job.evaluate(config, run, arguments.weights)
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
