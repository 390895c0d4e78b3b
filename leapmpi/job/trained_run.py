"""A run as Python and notebooks have it: what `Run` reads, its epochs as a table, predictions and a report."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leapmpi.comm.launcher import launched_rank, launcher_size
from leapmpi.errors import ConfigError, nearest
from leapmpi.runs.file_names import REPORT
from leapmpi.runs.run import Run
from leapmpi.runs.text_tables import epoch_rows, epoch_table
from leapmpi.system.atomic_files import written_aside

if TYPE_CHECKING:
    import numpy as np

    from leapmpi.comm.world import Comm
    from leapmpi.report.figures import Figure


@dataclass(frozen=True)
class TrainedRun(Run):
    """The run in folder `path`, as `leapmpi.train` and `leapmpi.load_run` return it."""

    @property
    def epochs(self) -> Any:
        """A row for each epoch so far: a pandas.DataFrame where pandas is installed, else a list of dicts."""
        return epoch_table([each for each in self.metrics() if each["event"] == "epoch"])

    @property
    def curves(self) -> dict[str, np.ndarray]:
        """Arrays with an entry for each epoch so far, float64, NaN where nothing is known.

        Keys: epoch (from 1), loss, val and test (by the run's metric), seconds, evaluation_seconds, remote_share,
        sent_bytes, lr.
        """
        import numpy as np

        rows = epoch_rows([each for each in self.metrics() if each["event"] == "epoch"])
        names = ("epoch", "loss", "val", "test", "seconds", "evaluation_seconds", "remote_share", "sent_bytes", "lr")
        return {name: np.array([_number(row.get(name)) for row in rows], np.float64) for name in names}

    def plot(self, figure: str = "scores") -> Plot:
        """Draw a figure of the report: scores, loss, batch-loss and others by the names there. Needs no library.

        In a notebook it is shown below the cell. Raises ConfigError for a name that there is not.
        """
        from leapmpi.report.page import figures_of
        from leapmpi.report.run_data import read_runs
        from leapmpi.report.sections.run_report import run_sections

        runs, _ = read_runs([self.path])
        figures = figures_of(run_sections(runs))
        if figure not in figures:
            raise ConfigError(
                f"plot: there is no figure {figure!r}; {nearest(str(figure), figures)} ({', '.join(figures)})"
            )
        return Plot(figures[figure])

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

        known = [each.name for each in fields(PredictionRequest)]
        if unknown := next((name for name in request if name not in known), None):
            raise ConfigError(f"predict takes no {unknown}; {nearest(unknown, known)}")
        config = self.config.replaced({"data": str(data), "evaluate.fanout": "all"})
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


def _number(value: Any) -> float:
    return float("nan") if value is None or isinstance(value, str) else float(value)


@dataclass(frozen=True)
class Plot:
    """One figure of a report: a picture in a notebook, its numbers as text elsewhere."""

    figure: Figure

    def _repr_html_(self) -> str:
        """Return the picture for a notebook, in a frame of its own."""
        from leapmpi.report.page import figure_page

        text = escape(figure_page(self.figure))
        return f'<iframe sandbox srcdoc="{text}" width="100%" height="420" style="border:0"></iframe>'

    def __repr__(self) -> str:
        """Return the numbers of the figure, a line for each row."""
        return "\n".join([self.figure.title, *("  ".join(row) for row in self.figure.table())])

    def save(self, path: Path | str) -> Path:
        """Write the figure as a page, .html; `leapmpi report --png NAME` and `--pdf NAME` draw it for papers.

        Raises ConfigError for another suffix.
        """
        from leapmpi.report.page import figure_page

        out = Path(path)
        if out.suffix != ".html":
            raise ConfigError(
                f"{out}: a figure is saved as .html; for papers: leapmpi report RUN --png {self.figure.name}"
            )
        with written_aside(out, overwrite=True) as aside:
            aside.write_text(figure_page(self.figure), encoding="utf-8")
        return out


@dataclass(frozen=True)
class ReportPage:
    """The page that was written to `path`."""

    path: Path

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a frame of its own, which runs no scripts."""
        text = escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe sandbox srcdoc="{text}" width="100%" height="700" style="border:0"></iframe>'
