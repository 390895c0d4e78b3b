"""leapmpi: distributed training of graph neural networks where the features are, over MPI.

    import leapmpi

    run = leapmpi.train(leapmpi.Config.from_values({"data": "data", "train.epochs": 5}))
    print(run.summary["best"])
    print(leapmpi.load_run(run.path).weights().keys())

A run has `path`, `config`, `summary`, `finished` and `failure`, and `metrics()`, `weights()` and `models()` (see
`leapmpi.runs.run.Run`). Importing this package starts no MPI and loads neither torch nor mpi4py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapmpi.config.schema import Config
from leapmpi.errors import LeapmpiError
from leapmpi.version import VERSION as __version__

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from leapmpi.comm.world import Comm
    from leapmpi.dataset.partitioned import Dataset
    from leapmpi.runs.run import Run

__all__ = ["Config", "LeapmpiError", "__version__", "load_run", "open_dataset", "predict", "train"]


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)


def train(config: Config, comm: Comm | None = None) -> Run:
    """Train a model with the settings `config` and return the finished run. Collective.

    comm: the mpi4py communicator of the ranks that train, all ranks when None. See
    `leapmpi.training.run_training.train`.
    """
    from leapmpi.training import run_training

    return run_training.train(config, comm)


def predict(run: Run, data: Path | str, out: Path | str, comm: Comm | None = None, **request: Any) -> dict[str, Any]:
    """Write what `run` answers for the vertices of the dataset in folder `data` to the file `out`. Collective.

    request: the other fields of `PredictionRequest` in leapmpi/training/prediction, such as what="classes"; `predict`
    in run_prediction.py there says what is returned.
    """
    from pathlib import Path

    from leapmpi.training.prediction.prediction_request import PredictionRequest
    from leapmpi.training.prediction.run_prediction import predict

    return predict(run.config.replaced({"data": str(data)}), run, PredictionRequest(Path(out), **request), comm)


def open_dataset(path: Path | str) -> Dataset:
    """Open the partitioned dataset in folder `path`. Raises DataError for one that is missing or damaged."""
    from leapmpi.dataset.partitioned import open_dataset

    return open_dataset(path)


def load_run(path: Path | str) -> Run:
    """The run in folder `path`, finished or not; its parts are read when asked for. Raises RunFolderError when there
    is none."""
    from leapmpi.runs.run import load_run

    return load_run(path)
