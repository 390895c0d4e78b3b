"""One rank of golden runs, called by golden.py: python golden_rank.py BATCH.json RESULTS.jsonl

Uses nothing but the public interface of leapmpi, so that it runs with the packages of any checkout on PYTHONPATH. All
runs of a batch are trained in one process after another; each adds one line to RESULTS.jsonl.
"""

import gc
import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import leapmpi

KEPT = ("losses", "models", "bytes", "rows", "accuracy", "time_steps", "remote", "cache")
"""What is kept of the record of an epoch."""


def digest(arrays):
    """SHA-256 of arrays by name, and sums by which they can be compared closely: their own, and with signs by place."""
    hashed, sums = hashlib.sha256(), np.zeros(2)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        hashed.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        values = np.nan_to_num(array.astype(np.float64).ravel())
        sums += values.sum(), values @ np.cos(np.arange(len(values)))
    return {"digest": hashed.hexdigest(), "sums": sums.tolist()}


def stop_after_an_epoch(folder, done):
    """Send this process SIGUSR2 once the run in `folder` has recorded an epoch, unless `done` is set before."""
    while not done.is_set():
        path = folder / "metrics.jsonl"
        if path.exists() and '"event": "epoch"' in path.read_text():
            os.kill(os.getpid(), signal.SIGUSR2)
            return
        time.sleep(0.005)


def train(run, first):
    """Train `run`, in two starts where it says so. Collective."""
    settings = {**run["settings"], "run": run["folder"]}
    if run["epochs_before"]:
        leapmpi.train(run["data"], **settings | {"epochs": run["epochs_before"]})
    if run["stopped"]:
        done = threading.Event()
        watcher = threading.Thread(target=stop_after_an_epoch, args=(Path(run["folder"]), done))
        if first:
            watcher.start()
        try:
            return leapmpi.train(run["data"], **settings)
        except leapmpi.LeapmpiError as error:
            if error.exit_code != 75:
                raise
        finally:
            done.set()
            if first:
                watcher.join()
    return leapmpi.train(run["data"], **settings)


def record(run, first):
    """What `run` gives. Collective."""
    begin = time.perf_counter()
    try:
        found = train(run, first)
        outs = [Path(f"{run['folder']}-{number}.npy") for number in range(len(run["predictions"]))]
        for out, request in zip(outs, run["predictions"], strict=True):
            leapmpi.predict(leapmpi.load_run(found.path), run["data"], out, **request)
    except leapmpi.LeapmpiError as error:
        return {"refused": f"{type(error).__name__}: {error}", "seconds": time.perf_counter() - begin}
    if not first:
        return {}

    # A run of several models has weights for each.
    models = {str(number): model for number, model in enumerate(found.models() or [found])}
    named = {number: model.weights("final") for number, model in models.items()}
    weights = {f"{number} {name}": array for number, each in named.items() for name, array in each.items()}
    epochs = [event for event in found.metrics() if event["event"] == "epoch"]
    return {
        "weights": digest(weights),
        "predictions": [digest({"": np.load(out)}) for out in outs],
        "best": found.summary.get("best"),
        "epochs": [{key: epoch[key] for key in KEPT if key in epoch} for epoch in epochs],
        "dtype": run["settings"].get("dtype"),
        "seconds": time.perf_counter() - begin,
    }


def main(batch, results):
    """Train all runs of the file `batch`; rank 0 writes."""
    # What only costs time here: runs are thrown away, and thousands of modules are not garbage.
    gc.collect, os.fsync = (lambda *_: 0), (lambda _: None)
    variables = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
    first = next((os.environ[each] for each in variables if each in os.environ), "0") == "0"
    for run in json.loads(Path(batch).read_text()):
        found = record(run, first)
        if first:
            with open(results, "a", encoding="utf-8") as file:
                file.write(json.dumps({"name": run["name"], **found}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
