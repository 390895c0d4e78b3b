"""`leapmpi-prep compare GRAPH --parts 4 --methods metis,ldg`: methods side by side, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from data_prep.commands.partition import add_report_flags, check_typed_flags, reported_training, sampling_of
from data_prep.partitioning.method_registry import BALANCES, METHODS
from leapmpi.errors import ConfigError, LeapmpiError
from leapmpi.runs.text import aligned

HELP = "compare partition methods on one graph: figures, time and memory"

_BALANCES = ("vertex_balance", "training_balance", "edge_balance", "work_balance", "replication")
_DEFAULT = "metis,grem,reldg,fennel,ldg,bgl,random"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the graph, the methods, and the settings of partitioning that all of them share."""
    parser.add_argument("graph", type=Path, help="graph file, from leapmpi-prep import or synth")
    parser.add_argument("--parts", type=int, required=True, help="number of parts")
    known = ", ".join(METHODS.names())
    parser.add_argument("--methods", default=_DEFAULT, metavar="LIST", help=f"some of {known}")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same parts")
    balance = f"second balance criterion besides vertices, as in leapmpi-prep partition: {', '.join(BALANCES)}"
    parser.add_argument("--balance", choices=BALANCES, default=BALANCES[0], metavar="WHAT", help=balance)
    largest = "largest part / mean that is allowed, of vertices and of what --balance names"
    parser.add_argument("--tolerance", type=float, default=1.05, metavar="X", help=largest)
    parser.add_argument("--max-mem", metavar="SIZE", help="most memory that a method may use, such as 4G")
    add_report_flags(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON list, an object per method")


def run(arguments: argparse.Namespace) -> int:
    """Verify the graph, partition it by each method, print the table; fails if no method succeeds."""
    from data_prep.partitioning.request import PartitionRequest
    from data_prep.workspace import memory_budget
    from leapmpi.dataset.verify import verify_graph
    from leapmpi.system.worker_threads import processor_count

    # Refuse what can be refused before the work.
    methods = _methods(arguments.methods)
    request = {
        "levels": (arguments.parts,),
        "seed": arguments.seed,
        "balance": arguments.balance,
        "fanout": sampling_of(arguments)[0],
        "tolerance": arguments.tolerance,
        "memory": memory_budget(arguments.max_mem) if arguments.max_mem else None,
        "threads": processor_count(),
    }
    training = reported_training(arguments)
    graph = verify_graph(arguments.graph)
    check_typed_flags(graph, str(arguments.graph), training)
    PartitionRequest(**request).check(graph)

    # One method after the other, each in a process of its own: memory is measured for each.
    rows = [_run_method(arguments.graph, {**request, "method": method}, training) for method in methods]
    print(json.dumps(rows, indent=1) if arguments.json else _table(rows))
    return 0 if any("error" not in row for row in rows) else rows[0]["exit_code"]


def _methods(text: str) -> list[str]:
    """Parse the names in the list `text`, each once. Raises ConfigError for an unknown one, or for none."""
    methods = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not methods:
        raise ConfigError("--methods names no method; give some, such as metis,ldg")
    for name in methods:
        METHODS.load(name)
    return methods


def _run_method(graph: Path, request: dict[str, Any], training: tuple[tuple[int, ...], int] | None) -> dict[str, Any]:
    """Return the figures of one method, or its `error` and `exit_code`."""
    task = json.dumps({"graph": str(graph), "request": request, "training": training})
    command = [sys.executable, "-P", "-m", "data_prep.partitioning.worker", task]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return {"method": request["method"], **json.loads(done.stdout.splitlines()[-1])}
    except (IndexError, ValueError):
        # The process was killed or crashed: what it wrote last says most.
        message = " ".join(done.stderr.split())[-200:] or f"its process ended with code {done.returncode}"
        return {"method": request["method"], "error": message, "exit_code": LeapmpiError.exit_code}


def _table(rows: list[dict[str, Any]]) -> str:
    """Return a line per method that succeeded, then the choice of `auto` and the errors."""
    done = [row for row in rows if "error" not in row]
    sampled = any("micrograph_locality" in row for row in done)
    headings = ["method", "edge cut", "largest / mean: vertices", "training", "edges", "work", "replication"]
    headings += ["R_micro", "remote rows: leap", "pull"] if sampled else []
    lines = [[*headings, "seconds", "MiB"], *(_line(row, sampled) for row in done)]

    notes = [f"{row['method']} chose {row['used']}: {row['method_reason']}" for row in done if row["method_reason"]]
    notes += [f"{row['method']}: {row['error']}" for row in rows if "error" in row]
    return "\n".join([aligned(lines)] * bool(done) + notes)


def _line(row: dict[str, Any], sampled: bool) -> list[str]:
    balances = (f"{row[name]:.3f}" for name in _BALANCES)
    cells = [row["method"], f"{row['edge_cut_share']:.2%}", *balances]
    if sampled:
        cells.append(f"{row['micrograph_locality']:.3f}" if "micrograph_locality" in row else "-")
        names = ("leap_remote_rows", "pull_remote_rows")
        cells += [f"{row[name]:,.0f}" if name in row else "-" for name in names]
    return [*cells, f"{row['seconds']:.2f}", f"{row['memory'] / 2**20:,.0f}"]
