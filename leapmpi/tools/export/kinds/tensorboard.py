"""TensorBoard's event file: every number by epoch, and the settings as text. Equal runs give equal bytes.

A folder with one TFRecord file of Event messages: https://www.tensorflow.org/tensorboard.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leapmpi.tools.export.export_run import ExportFormat, ExportSource, needed


def write(source: ExportSource, path: Path) -> None:
    """Write the folder `path` with one event file."""
    events = needed("tensorboard.compat.proto.event_pb2", "tensorboard", "tensorboard")
    records = needed("tensorboard.summary.writer.record_writer", "tensorboard", "tensorboard")
    summary = needed("tensorboard.compat.proto.summary_pb2", "tensorboard", "tensorboard").Summary
    series = source.series
    path.mkdir()
    with (path / f"events.out.tfevents.{int(series.begun)}.leapmpi").open("wb") as file:
        writer = records.RecordWriter(file)

        def put(time: float, **content: object) -> None:
            writer.write(events.Event(wall_time=time, **content).SerializeToString(deterministic=True))

        # TensorBoard requires the version first.
        put(series.begun, file_version="brain.Event:2")
        for name, rows in (("settings", series.settings()), ("run", series.facts())):
            put(series.begun, step=0, summary=_text(summary, name, rows))
        for point in series.points():
            value = summary.Value(tag=point.name, simple_value=point.value)
            put(point.time, step=point.epoch, summary=summary(value=[value]))
        writer.flush()


def _text(summary: Any, name: str, rows: dict[str, str]) -> object:
    """Return a Markdown table for TensorBoard's text tab."""
    tensor = needed("tensorboard.compat.proto.tensor_pb2", "tensorboard", "tensorboard").TensorProto
    text_type = needed("tensorboard.compat.proto.types_pb2", "tensorboard", "tensorboard").DT_STRING
    metadata = needed("tensorboard.compat.proto.summary_pb2", "tensorboard", "tensorboard").SummaryMetadata
    lines = ["| name | value |", "| --- | --- |", *(f"| {key} | {value or '-'} |" for key, value in rows.items())]
    content = tensor(dtype=text_type, string_val=["\n".join(lines).encode()])
    about = metadata(plugin_data=metadata.PluginData(plugin_name="text"))
    return summary(value=[summary.Value(tag=name, tensor=content, metadata=about)])


MEMBER = ExportFormat(write, "folder with an event file for TensorBoard: tensorboard --logdir FOLDER", "tensorboard")
