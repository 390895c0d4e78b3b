"""Operations of an iteration on the stand-in for a GPU, by phase: python -m tests.support.launch_counts FOLDER MODEL...

With TRITON_INTERPRET=1 Triton's kernels serve, each of which counts as one. Numbers that the host waits for are no
operation: nothing runs on the device.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import leapmpi
from leapmpi.config.schema import Config
from leapmpi.training.optimizer import Optimizer
from tests.support.small_run import write_small_data
from tests.support.stand_in_gpu import gpu, present


def counted(data: Path, folder: Path, model: str) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return operations by phase and waits of the last iteration of a training with two layers."""
    found: list[tuple[Counter[str], Counter[tuple[str, str]]]] = []
    genuine = Optimizer.step

    def step(self: Optimizer, iteration: int) -> None:
        genuine(self, iteration)
        found.append((gpu.phases.copy(), gpu.waits.copy()))

    values: dict[str, Any] = {
        "data": str(data), "train.epochs": 1, "train.batch_size": 60, "model.hidden": 8, "model.name": model,
        "sampling.fanout": "4,3", "strategy.name": "leap", "strategy.remote": "raw", "run.threads": 1,
        "evaluate.every": 0, "run.folder": str(folder), "run.log_level": "error", "run.device": "cuda",
    }  # fmt: skip
    Optimizer.step = step
    try:
        with present():
            gpu.phases = Counter()
            leapmpi.train(Config.from_values(values))
    finally:
        Optimizer.step = genuine
    return tuple(now - then for now, then in zip(found[-1], found[-2], strict=True))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    small_data = write_small_data(place / "data")
    for name in sys.argv[2:]:
        print(json.dumps(counted(small_data, place / name, name)[0]))
