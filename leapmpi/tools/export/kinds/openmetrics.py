"""OpenMetrics text of a run's last epoch, for node_exporter's textfile collector and other readers.

Format: https://prometheus.io/docs/specs/om/open_metrics_spec/. Without time stamps, which the collector refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from leapmpi.tools.export.export_run import ExportFormat, ExportSource
from leapmpi.tools.export.run_series import RunSeries

_LABELS = {"score": "split", "phase_seconds": "phase", "bytes": "kind", "rows": "place", "cache": "figure"}
"""Label of the part of a name after the slash, by the part before it."""
_STATES = ("running", "finished", "failed", "interrupted")


def write(source: ExportSource, path: Path) -> None:
    """Write the file `path`."""
    path.write_text("".join(f"{line}\n" for line in lines(source.series)), encoding="utf-8")


def lines(series: RunSeries) -> Iterator[str]:
    """Yield the lines of the text, metrics sorted by name."""
    run = {"run": series.name}
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    epoch = 0
    for point in series.points():
        if point.epoch > epoch:
            epoch, found = point.epoch, {}
        name, labels = _split(point.name)
        found.setdefault(f"leapmpi_{name}", []).append(({**run, **labels}, point.value))
    found["leapmpi_epoch"] = [(run, float(epoch))]
    found["leapmpi_status"] = [({**run, "state": each}, float(each == series.status)) for each in _STATES]
    for name, samples in sorted(found.items()):
        yield f"# TYPE {name} gauge"
        yield from (f"{name}{{{_labels(labels)}}} {value!r}" for labels, value in samples)
    yield "# EOF"


def _split(name: str) -> tuple[str, dict[str, str]]:
    """Split a name into metric and labels: bytes/ids is `bytes` of kind `ids`."""
    labels = {}
    if name.startswith("model/"):
        _, model, name = name.split("/", 2)
        labels["model"] = model
    base, slash, rest = name.partition("/")
    if slash:
        labels[_LABELS[base]] = rest
    base = f"model_{base}" if "model" in labels else base
    return re.sub(r"\W", "_", f"epoch_{base}", flags=re.ASCII), labels


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


MEMBER = ExportFormat(
    write, "text for OpenMetrics and Prometheus: the numbers of the last epoch", "metrics.prom", ".prom"
)
