"""`leapmpi predict`: what a run answers for vertices, from all of their in-neighbours."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from leapmpi.cli.commands.evaluate import (
    add_model_of_run,
    add_settings_beside_run,
    chosen_runs,
    model_number,
    with_code,
)
from leapmpi.config.flags import given
from leapmpi.config.parser import number_between
from leapmpi.config.program_imports import program_imports
from leapmpi.errors import ConfigError, counted
from leapmpi.runs.run import load_run
from leapmpi.runs.text import listed, size_text

HELP = "write exact outputs of a trained model for vertices to a file"

_SETTINGS = ("evaluate.fanout", "run.device", "run.threads", "run.log_level")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the dataset, the run, the wanted outputs, and the settings that may differ from the run's."""
    parser.add_argument("data", metavar="DATA", help="dataset folder, that of the run or another one")
    parser.add_argument("folder", metavar="RUN", help="run folder")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="output file: FILE.h5, FILE.npy, FILE.csv or FILE.parquet"
    )
    parser.add_argument(
        "--what",
        default="",
        metavar="logits|classes|embeddings",
        help="the model's outputs (numbers, for a regression), the class of the largest, or rows of a hidden layer "
        "(default logits; embeddings for a run on edges)",
    )
    parser.add_argument("--layer", type=int, metavar="N", help="layer of embeddings (default the last hidden one)")
    _add_vertices(parser)
    add_model_of_run(parser, "model K of several")
    parser.add_argument(
        "--memory-limit",
        default="",
        metavar="SIZE",
        help="memory limit for rows of layers and the work on them, per rank, such as 2G (default: rows as "
        "needed, work 1 GiB)",
    )
    parser.add_argument(
        "--stage", metavar="FOLDER", help="keep rows of layers in files in this folder, on a disk of each node"
    )
    parser.add_argument("--resume", action="store_true", help="reuse the layers that a killed job finished in --stage")
    parser.add_argument("--overwrite", action="store_true", help="replace the output file")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    add_settings_beside_run(parser, _SETTINGS)


def _add_vertices(parser: argparse.ArgumentParser) -> None:
    """Add what is predicted for: vertices, pairs of them, their partners, and a type."""
    parser.add_argument(
        "--vertices",
        default="",
        metavar="FILE|train|val|test",
        help="original ids (.npy), or names or ids (a text, one a line), in the order of the written rows; or a split "
        "(default all)",
    )
    parser.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help="score these pairs of vertices by a run with --task link or edge-class: .npy of original ids [k, 2], or "
        "a text with two names or ids a line",
    )
    parser.add_argument(
        "--top",
        type=number_between(1),
        default=0,
        metavar="K",
        help="write the K best partners of the vertices of --vertices by a run with --task link; those that they have "
        "an edge to do not count. With --what classes the K best entities by a run with --task recommend (default 10)",
    )
    parser.add_argument(
        "--type",
        default="",
        metavar="NAME",
        help="typed graphs: type of the vertices, whose rows are written by their numbers within it (default the "
        "target type)",
    )
    parser.add_argument(
        "--relation",
        default="",
        metavar="NAME",
        help="typed graphs: relation of the pairs, or from vertices to partners, such as user:buys:item, or buys alone",
    )
    parser.add_argument(
        "--task-table",
        type=Path,
        metavar="ROWS.h5",
        help="predict for new rows of a task table, which leapmpi-prep task-table has encoded; .csv and .parquet "
        "have their keys and times",
    )


def run(arguments: argparse.Namespace) -> int:
    """Predict on all ranks; report on rank 0. Collective."""
    with program_imports():
        from leapmpi.comm.world import job_rank
        from leapmpi.inference.prediction.prediction_request import PredictionRequest
        from leapmpi.inference.prediction.run_prediction import predict

    runs = chosen_runs(load_run(arguments.folder), model_number(arguments.model))
    if len(runs) > 1:
        raise ConfigError(f"{arguments.folder} holds {counted(len(runs), 'model')}; give the number of one: --model K")
    (chosen,) = runs.values()
    request = PredictionRequest(
        Path(arguments.out),
        arguments.what,
        arguments.layer,
        arguments.vertices,
        arguments.pairs,
        arguments.top,
        arguments.weights,
        arguments.memory_limit,
        arguments.stage and Path(arguments.stage),
        arguments.resume,
        arguments.overwrite,
        arguments.type,
        arguments.relation,
        arguments.task_table,
    )
    # The run's settings, but for those that cannot change its outputs.
    changed = {"evaluate.fanout": "all", **given(arguments), "data": arguments.data}
    if arguments.json:
        changed["run.log_level"] = "warning"
    found = predict(with_code(chosen, arguments.model).replaced(changed, "predict"), chosen, request)
    if job_rank() == 0:
        print(json.dumps({"schema": 1, **found}) if arguments.json else _lines(found), flush=True)
    return 0


def _lines(found: dict[str, Any]) -> str:
    """Return the lines about the output and its cost."""
    columns = f" of {found['columns']} columns" * (found["columns"] > 1)
    sent = [f"{kind} {size_text(count)}" for kind, count in found["bytes"].items()] or ["nothing"]
    if written := sum(found["bytes_of_writing"].values()):
        sent.append(f"rows put in order {size_text(written)}")
    return "\n".join(
        [
            listed("sent between ranks", sent, 80),
            f"finished in {found['seconds']:.1f} s ({found['rows_per_second']:,.0f} rows/s); at most "
            f"{size_text(max(found['peak_memory_bytes']))} per rank",
            f"{found['what']} of epoch {found['epoch']}, {found['rows']:,} rows{columns}, {found['dtype']}: "
            f"{found['out']}",
        ]
    )
