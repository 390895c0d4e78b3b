"""Fixed runs whose numbers must not change when the code is rearranged: python -m tests.soak.golden FOLDER

    python -m tests.soak.golden /tmp/before --checkout /path/to/an/older/checkout
    python -m tests.soak.golden /tmp/after --against /tmp/before

Writes FOLDER/golden.json: by run the digest of the parameters, the loss of every iteration, and bytes by kind and rows
of every epoch. With --against it compares all of them, to the bit, with those of another folder. Bits depend on the
processor, the number of threads and the versions of the libraries: compare on one machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).parents[2]
DATA = Path(os.environ.get("LEAPMPI_TEST_DATA", PROJECT / "../shared/data"))

SOURCES = {
    # Sparse rows, classes.
    "cora": ("import", str(DATA / "planetoid-cora")),
    # Dense rows, classes.
    "photo": ("import", str(DATA / "graphdata-amazon_photo"), "--feature-storage", "dense"),
    "tolokers": ("import", str(DATA / "heterophilous-tolokers")),
    # Edges held back; edges with labels, of which some are held back.
    "cora-links": ("import", str(DATA / "planetoid-cora")),
    "kinds": ("import", "{folder}/kinds.npz"),
}
SPLITS = {
    "photo": ("--splits", "random:0.6,0.2,0.2"),
    "cora-links": ("--split-edges", "0.85,0.05,0.1", "--normalize-features", "row"),
    "kinds": ("--split-edge-labels", "0.8,0.1,0.1"),
}

_COMMON = (
    "--strategy",
    "leap",
    "--epochs",
    "2",
    "--batch-size",
    "256",
    "--hidden",
    "16",
    "--fanout",
    "5,5",
    "--threads",
    "1",
)

_OWNER = ("--strategy", "owner")
_FULL = ("--batch-size", "full", "--fanout", "all,all")

RUNS: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "leap-1": (1, "photo", ()),
    "leap-1-gat-labor": (1, "cora", ("--model", "gat", "--sampler", "labor-0")),
    "leap-1-gcn-sparse": (1, "cora", ("--model", "gcn", "--norm", "layer", "--residual")),
    "leap-3-raw": (3, "photo", ("--remote", "raw")),
    "leap-3-raw-drop-ahead": (3, "photo", ("--remote", "raw", "--input-dropout", "0.2", "--prefetch", "2")),
    "leap-3-partial-sage": (3, "photo", ("--remote", "partial")),
    "leap-3-partial-gcn-sparse": (3, "cora", ("--remote", "partial", "--model", "gcn")),
    "leap-3-projected-gat": (3, "photo", ("--remote", "projected", "--model", "gat")),
    "leap-3-projected-max": (3, "photo", ("--remote", "projected", "--model-option", "aggregate=max")),
    "leap-3-ring": (3, "photo", ("--remote", "raw", "--time-steps", "N")),
    "leap-4-ring-merged": (4, "photo", ("--remote", "partial", "--time-steps", "2", "--merge", "balanced")),
    "leap-4-raw-cache-int8": (
        4,
        "photo",
        ("--remote", "raw", "--cache", "0.1", "--wire-dtype", "int8"),
    ),
    "leap-4-raw-sparse": (4, "cora", ("--remote", "raw", "--sampler", "ladies")),
    "pull-3-raw": (3, "photo", ("--strategy", "pull", "--remote", "raw")),
    "pull-4-partial": (4, "photo", ("--strategy", "pull", "--remote", "partial", "--sampler", "labor-i")),
    "p3-3": (3, "photo", ("--strategy", "p3")),
    "p3-4-gat": (4, "photo", ("--strategy", "p3", "--model", "gat")),
    "naive-3": (3, "photo", ("--strategy", "naive")),
    "naive-4-gat-sparse": (4, "cora", ("--strategy", "naive", "--model", "gat")),
    "leap-3-deepgcn-raw-ahead": (3, "photo", ("--model", "deepgcn", "--remote", "raw", "--prefetch", "1")),
    "leap-3-deepgcn-partial": (
        3,
        "photo",
        ("--model", "deepgcn", "--model-option", "aggregate=power", "--remote", "partial"),
    ),
    "leap-4-film-partial": (4, "photo", ("--model", "film", "--remote", "partial")),
    "pull-3-gatv2-projected": (3, "photo", ("--strategy", "pull", "--model", "gatv2", "--remote", "projected")),
    "leap-4-gin-jumping": (4, "photo", ("--model", "gin", "--model-option", "learn-scalars=yes", "--jumping", "cat")),
    "leap-3-batch-norm": (3, "photo", ("--norm", "batch", "--remote", "partial")),
    "owner-3-deepgcn": (3, "photo", (*_OWNER, "--model", "deepgcn", "--fanout", "2,2,2,2")),
    "owner-4-film-projected": (4, "photo", (*_OWNER, "--model", "film", "--remote", "projected")),
    "owner-4-gcn-sparse": (4, "cora", (*_OWNER, "--model", "gcn", "--remote", "partial")),
    "full-3-depcomm-gat": (3, "photo", (*_FULL, "--strategy", "depcomm", "--model", "gat")),
    "full-4-hybrid": (4, "photo", (*_FULL, "--strategy", "hybrid", "--memory-limit", "100M")),
    "full-3-depcache-sparse": (3, "cora", (*_FULL, "--strategy", "depcache", "--model", "gcn")),
    "link-3": (3, "cora-links", ("--task", "link", "--negatives-per-edge", "2")),
    "link-4-pull-mlp": (
        4,
        "cora-links",
        ("--task", "link", "--scorer", "mlp", "--strategy", "pull", "--norm", "batch"),
    ),
    "edge-class-3": (3, "kinds", ("--task", "edge-class", "--class-weights", "balanced")),
    "edge-class-4-naive": (4, "kinds", ("--task", "edge-class", "--strategy", "naive", "--target-edges", "leave-out")),
    "replicas-3": (3, "photo", ("--vary", "model.hidden=8,16;train.lr=0.01,0.003")),
    "restart-3": (3, "photo", ("--remote", "raw", "--checkpoint-every", "5", "--epochs", "4")),
}


class Recorder:
    """Runs all `RUNS` with the code of `checkout`, in `folder`."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        self.folder, self.checkout = folder, checkout
        self.environment = os.environ | {"PYTHONPATH": str(checkout), "LEAPMPI_ENV": str(Path(sys.prefix))}

    def call(self, *words: object, ranks: int = 0, stop_after: float | None = None) -> None:
        """Run a module of the checkout, on `ranks` ranks by mpirun; signalled to stop after so many seconds."""
        command = [sys.executable, "-m", *map(str, words)]
        if ranks:
            command = [str(self.checkout / "jobs/mpirun/local"), str(ranks), *command]
        settings = {"cwd": self.checkout, "env": self.environment, "text": True}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **settings)
        try:
            printed, _ = process.communicate(timeout=stop_after or 300)
        except subprocess.TimeoutExpired:
            process.terminate()
            printed, _ = process.communicate(timeout=120)
        if process.returncode and not (stop_after and process.returncode == 75):
            raise SystemExit(f"{' '.join(command)}\nended with {process.returncode}:\n{printed}")

    def prepare(self) -> None:
        """Import and partition all graphs."""
        self._write_kinds()
        for name, source in SOURCES.items():
            graph, path = self.folder / f"{name}.h5", source[1].format(folder=self.folder)
            self.call("data_prep.cli", source[0], path, graph, *source[2:], *SPLITS.get(name, ()))
            self.call("data_prep.cli", "partition", graph, self.folder / name, "--parts", 4, "--method", "metis")

    def _write_kinds(self) -> None:
        """A made-up graph whose edges have labels."""
        archive, size = self.folder / "kinds.npz", ("--vertices", 3000, "--edges", 12000, "--features", 20)
        self.call("data_prep.cli", "synth", archive, *size, "--classes", 5)
        with np.load(archive) as found:
            arrays = dict(found)
        np.savez(archive, **arrays, edge_labels=arrays["edges"].sum(axis=1) % 3)

    def run(self, name: str) -> dict:
        """What run `name` gives."""
        ranks, data, settings = RUNS[name]
        run = self.folder / "runs" / name
        words = ("leapmpi.cli", "train", self.folder / data, "--run", run, *_COMMON, *settings)
        if name.startswith("restart"):
            # Stopped once it has written a checkpoint, wherever that is, and gone on with.
            self.call(*words, ranks=ranks, stop_after=9.0)
        summary = run / "summary.json"
        if not summary.exists() or json.loads(summary.read_text())["status"] != "finished":
            self.call(*words, ranks=ranks)
        summary = json.loads(summary.read_text())
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        epochs = [each for each in records if each.get("event") == "epoch" or "losses" in each]
        kept = ("losses", "models", "bytes", "rows", "accuracy", "time_steps", "remote", "cache")
        return {
            "digest": summary.get("parameters_digest"),
            "epochs": [{key: epoch[key] for key in kept if key in epoch} for epoch in epochs],
        }


def main() -> int:
    """Record, and compare where that is asked for; 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for the runs, made anew")
    parser.add_argument("--checkout", type=Path, default=PROJECT, help="the checkout whose code runs (default: this)")
    parser.add_argument("--against", type=Path, help="the folder of an earlier call to compare with")
    parser.add_argument("--only", default="", help="only runs whose name contains this")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    recorder = Recorder(arguments.folder.resolve(), arguments.checkout.resolve())
    recorder.prepare()
    found = {}
    for name in RUNS:
        if arguments.only in name:
            found[name] = recorder.run(name)
            print(f"{name:<28}{found[name]['digest']}", flush=True)
    (arguments.folder / "golden.json").write_text(json.dumps(found, indent=1))
    if not arguments.against:
        return 0
    before = json.loads((arguments.against / "golden.json").read_text())
    shared = [name for name in found if name in before]
    odd = [name for name in shared if found[name] != before[name]]
    print(f"{len(shared) - len(odd)} of {len(shared)} runs are equal to the bit" + (f"; not {odd}" if odd else ""))
    return bool(odd)


if __name__ == "__main__":
    sys.exit(main())
