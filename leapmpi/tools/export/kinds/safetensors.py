"""Weights as safetensors: arrays by parameter name, and a description for loaders as JSON under `leapmpi`.

Format: https://github.com/huggingface/safetensors, "Format". Equal weights give equal bytes.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from leapmpi.config.options import MODELS, options_of
from leapmpi.config.setting import names_code
from leapmpi.errors import ConfigError
from leapmpi.runs import schemas
from leapmpi.runs.file_names import model_folder, weights_file
from leapmpi.runs.run import Run
from leapmpi.runs.weights import read_weights
from leapmpi.tools.export.export_run import ExportFormat, ExportSource, needed
from leapmpi.version import VERSION

_SETTINGS = ("hidden", "jumping", "residual")
_NORM = {"deepgcn": "layer", "film": "layer"}
"""Meaning of norm = auto by model; none for other models."""


def write(source: ExportSource, path: Path) -> None:
    """Write the weights of `source`. Raises DataError if there are none, ConfigError for several models."""
    if model_folder(source.run.path, 0).is_dir():
        raise ConfigError(f"{source.run.path} holds several models; give the number of one: --model K")
    save_file = needed("safetensors.numpy", "safetensors", "safetensors").save_file
    arrays, about = read_weights(source.run.path / weights_file(source.which), schemas.WEIGHTS)
    path.touch()
    mode = path.stat().st_mode
    # Use a single key: the library writes several in any order.
    save_file(arrays, path, {"leapmpi": json.dumps(description(source.run, about), sort_keys=True)})
    # The library lets nobody but the owner read its files.
    path.chmod(mode)


def description(run: Run, about: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that a loader needs: model, widths, settings, epoch (from 1), graph."""
    config = run.config
    model = config.model
    options = None if names_code(model.name) else options_of(MODELS, model.name, model.options)
    return {
        **{name: getattr(model, name) for name in _SETTINGS},
        **(dataclasses.asdict(options) if options else {}),
        "model": model.name,
        "norm": _NORM.get(model.name, "none") if model.norm == "auto" else model.norm,
        "layers": len(config.sampling.fanout),
        "feature_dim": about["feature_dim"],
        "classes": about["classes"],
        "task": about.get("task"),
        "target_scale": about.get("target_scale"),
        "edge_weights": config.sampling.edge_weights,
        "epoch": about["epoch"] + 1,
        "graph_uuid": about["graph_uuid"],
        "version": VERSION,
    }


MEMBER = ExportFormat(write, "weights as safetensors, for a loader in plain torch", "model.safetensors", ".safetensors")
