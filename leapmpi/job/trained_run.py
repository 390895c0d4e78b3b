"""A run as Python and notebooks have it: what `Run` reads, its epochs as a table, predictions and a report."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leapmpi.comm.launcher import launched_rank, launcher_size
from leapmpi.errors import ConfigError
from leapmpi.runs.file_names import REPORT
from leapmpi.runs.run import Run
from leapmpi.runs.text_tables import epoch_table

if TYPE_CHECKING:
    import numpy as np

    from leapmpi.comm.world import Comm


@dataclass(frozen=True)
class TrainedRun(Run):
    """The run in folder `path`, as `leapmpi.train` and `leapmpi.load_run` return it."""

    @property
    def epochs(self) -> Any:
        """A row for each epoch so far: a pandas.DataFrame where pandas is installed, else a list of dicts."""
        return epoch_table([each for each in self.metrics() if each["event"] == "epoch"])

    def predict(self, data: Path | str = "", what: str = "logits", vertices: str = "", **request: Any) -> np.ndarray:
        """Return the exact answers of the run for all vertices (or `vertices`) of `data`, that of the run when not
        given.
        """
        import numpy as np

        if (launcher_size() or ("", 1))[1] > 1:
            raise ConfigError(
                "run.predict() answers in one process; on several ranks use leapmpi.predict(run, data, out)"
            )
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "answers.npy"
            self.write_predictions(data or self.config.data, out, what=what, vertices=vertices, **request)
            return np.load(out)

    def write_predictions(
        self, data: Path | str, out: Path | str, comm: Comm | None = None, **request: Any
    ) -> dict[str, Any]:
        """Write what the run answers for the dataset in folder `data` to the file `out`. Collective.

        As `leapmpi.predict`.
        """
        from leapmpi.inference.prediction.prediction_request import PredictionRequest
        from leapmpi.inference.prediction.run_prediction import predict

        config = self.config.replaced({"data": str(data)})
        return predict(config, self, PredictionRequest(Path(out), **request), comm)

    def report(self, out: Path | str = "") -> ReportPage:
        """Write the page that `leapmpi report` writes to `out`, report.html in the run folder when not given.

        In a notebook it is shown below the cell. On several ranks rank 0 writes it.
        """
        from leapmpi.report.page import write_page
        from leapmpi.report.run_data import read_runs
        from leapmpi.report.sections.run_report import dataset_of, run_page, run_sections

        path = Path(out) if out else self.path / REPORT
        if launched_rank() == 0:
            runs, _ = read_runs([self.path])
            found, names = dataset_of(runs)
            write_page(path, run_page(runs, run_sections(runs, found, names=names)))
        return ReportPage(path)


@dataclass(frozen=True)
class ReportPage:
    """The page that was written to `path`."""

    path: Path

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a frame of its own, which runs no scripts."""
        text = escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe sandbox srcdoc="{text}" width="100%" height="700" style="border:0"></iframe>'
