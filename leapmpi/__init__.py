"""leapmpi: distributed training of graph neural networks where the features are, over MPI.

    import leapmpi

    run = leapmpi.train("data", epochs=5, model="sage")
    print(run.summary["best"], run.epochs)
    answers = run.predict(what="classes")
    run.report("report.html")
    print(leapmpi.load_run(run.path).weights().keys())

A run has `path`, `config`, `summary`, `finished`, `failure` and `epochs`, and `metrics()`, `weights()`, `models()`,
`predict()` and `report()` (see `leapmpi.job.trained_run`). Importing this package starts no MPI and loads
neither torch nor mpi4py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapmpi.config.flags import with_flags
from leapmpi.config.schema import Config
from leapmpi.errors import LeapmpiError
from leapmpi.version import VERSION as __version__

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from leapmpi.comm.world import Comm
    from leapmpi.dataset.partitioned import Dataset
    from leapmpi.job.trained_run import TrainedRun
    from leapmpi.runs.run import Run

__all__ = ["Config", "LeapmpiError", "__version__", "load_run", "open_dataset", "predict", "train"]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def train(config: Config | Path | str, comm: Comm | None = None, **settings: Any) -> TrainedRun:
    """Train a model and return the finished run. Collective.

    config: the settings, or the folder of a dataset; `settings` change some of them and are called as flags are, with
    `_` for `-`: train("data", model="gat", epochs=5, run="runs/a"). comm: the mpi4py communicator of the ranks that
    train, all ranks when None; without mpirun it is this process alone, in a notebook too. See
    `leapmpi.job.run_training.train`. Raises ConfigError for an unknown setting.
    """
    from leapmpi.job import run_training
    from leapmpi.job.trained_run import TrainedRun

    chosen = config if isinstance(config, Config) else Config().replaced({"data": str(config)})
    return TrainedRun(run_training.train(with_flags(chosen, settings), comm).path)


def predict(run: Run, data: Path | str, out: Path | str, comm: Comm | None = None, **request: Any) -> dict[str, Any]:
    """Write what `run` answers for the vertices of the dataset in folder `data` to the file `out`. Collective.

    request: the other fields of `PredictionRequest` in leapmpi/inference/prediction, such as what="classes"; `predict`
    in run_prediction.py there says what is returned.
    """
    from leapmpi.job.trained_run import TrainedRun

    return TrainedRun(run.path).write_predictions(data, out, comm, **request)


def open_dataset(path: Path | str) -> Dataset:
    """Open the partitioned dataset in folder `path`. Raises DataError for one that is missing or damaged."""
    from leapmpi.dataset.partitioned import open_dataset

    return open_dataset(path, typed=True)


def load_run(path: Path | str) -> TrainedRun:
    """Open the run in folder `path`, finished or not; its parts are read on demand. Raises RunFolderError when there
    is none."""
    from leapmpi.job.trained_run import TrainedRun
    from leapmpi.runs.run import load_run

    return TrainedRun(load_run(path).path)
