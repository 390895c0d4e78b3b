"""leapmpi: distributed training of graph neural networks where the features are, over MPI.

    import leapmpi

    run = leapmpi.train("data", epochs=5, model="sage")
    print(run.summary["best"])
    answers = run.predict(what="classes")
    run.plot()
    run.report("report.html")

A run has `path`, `config`, `summary`, `finished`, `failure`, `epochs` and `curves`, and `metrics()`, `weights()`,
`models()`, `predict()`, `plot()` and `report()` (see `leapmpi.job.trained_run`). Importing this package starts no MPI
and loads neither torch nor mpi4py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leapmpi.config.flags import with_flags
from leapmpi.config.schema import Config
from leapmpi.errors import (
    ConfigError,
    DataError,
    Interrupted,
    LaunchError,
    LeapmpiError,
    ResourceError,
    RunFolderError,
)
from leapmpi.version import VERSION as __version__

if TYPE_CHECKING:
    from typing import Any

    from leapmpi.comm.world import Comm
    from leapmpi.dataset.partitioned import Dataset
    from leapmpi.job.trained_run import TrainedRun
    from leapmpi.runs.run import Run as _Run

__all__ = [
    "Config",
    "ConfigError",
    "DataError",
    "Interrupted",
    "LaunchError",
    "LeapmpiError",
    "ResourceError",
    "RunFolderError",
    "__version__",
    "load_run",
    "open_dataset",
    "predict",
    "train",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def train(config: Config | Path | str, comm: Comm | None = None, **settings: Any) -> TrainedRun:
    """Train a model and return the finished run. Collective.

    config: the settings, or the folder of a dataset; `settings` change some of them and are called as flags are, with
    `_` for `-`: train("data", model="gat", epochs=5, run="runs/a"). comm: the mpi4py communicator of the ranks that
    train, all ranks when None; without mpirun it is this process alone, in a notebook too.

    model and sampler may be classes: train("data", model=Net). Without `run` every call has a folder of its own; with
    `overwrite=True` it replaces the run in the folder `run`, a finished one too.

    Raises ConfigError for a setting or model that cannot be used. Raises DataError for the dataset, and RunFolderError
    for a run folder with a finished run or another start. Raises ResourceError where disk or memory does not suffice,
    and LaunchError where MPI cannot start. Raises Interrupted when a signal stops training. All are LeapmpiErrors.
    """
    from leapmpi.job import run_training
    from leapmpi.job.trained_run import TrainedRun
    from leapmpi.runs.run import Run

    chosen = config if isinstance(config, Config) else Config().replaced({"data": str(config)})
    chosen = with_flags(chosen, settings)
    try:
        return TrainedRun(run_training.train(chosen, comm, replace_finished=True).path)
    except RunFolderError as error:
        if chosen.run.folder and not chosen.run.overwrite and Run(Path(chosen.run.folder)).finished:
            error.args = (f"{error}; from Python overwrite=True replaces it, and without run a new folder is made",)
        raise


def predict(
    run: _Run | Path | str, data: Path | str, out: Path | str, comm: Comm | None = None, **request: Any
) -> dict[str, Any]:
    """Write what `run`, or that in the folder `run`, answers for the dataset in folder `data` to `out`. Collective.

    request: the other fields of `PredictionRequest` in leapmpi/inference/prediction, such as what="classes"; `predict`
    in run_prediction.py there says what is returned. Raises ConfigError for a field that there is not.
    """
    found = load_run(run if isinstance(run, Path | str) else run.path)
    return found.write_predictions(data, out, comm, **request)


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
