"""Fixed runs whose numbers must not change when the code is rearranged: python -m tests.soak.golden FOLDER

    python -m tests.soak.golden /tmp/before --checkout /path/to/an/older/checkout
    python -m tests.soak.golden /tmp/after --against /tmp/before
    python -m tests.soak.golden /tmp/after --against /tmp/before -k full/,sharded/depcomm

Writes FOLDER/golden.json: by run the losses of all iterations, bytes by kind and rows of every epoch, scores, and
digests of weights and predictions. With --against it compares them, to the bit, with those of another folder. With
--tolerance the named runs in float64 may differ by so much: losses, and sums over weights and predictions. Bits depend
on the processor, the number of threads and the versions of the libraries: compare on one machine only.

Parts: mini and batches (mini-batches), full, predict, sharded, roles, edges (links, classes of edges), carrying (edge
data), learned, typed, replicas, restart, real. The runs of one number of ranks share one job.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from leapmpi.system.stale_files import user_cache
from tests.soak.golden_runs import DATA, REAL, GoldenRun, golden_runs
from tests.soak.made_graphs import MADE, write_source
from tests.support.launch import end_session

PROJECT = Path(__file__).parents[2]
RESULT = "golden.json"

PATIENCE = 300
"""Seconds without a result after which a job counts as hanging."""

APART = ("seconds", "dtype", "name")
"""What is recorded and not compared."""


class Recorder:
    """Runs with the code of `checkout`, in `folder`."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        self.folder, self.checkout = folder, checkout
        # Kept rates of this machine, in the user's cache, would have a say in choices; compiled kernels have none.
        paths = {"PYTHONPATH": str(checkout), "LEAPMPI_ENV": sys.prefix, "XDG_CACHE_HOME": str(folder / "cache")}
        paths["NUMBA_CACHE_DIR"] = os.environ.get("NUMBA_CACHE_DIR", str(user_cache() / "kernels"))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        self.environment = {**os.environ, **paths, "PATH": path}

    def flags(self) -> set[str]:
        """The flags that `leapmpi train` of the checkout knows, without dashes."""
        command = [sys.executable, "-m", "leapmpi.cli", "train", "--help-all"]
        help = subprocess.run(
            command, cwd=self.folder, env=self.environment, text=True, capture_output=True, check=True
        )
        return set(re.findall(r"--([a-z][a-z0-9-]*)", help.stdout))

    def prepare(self, names: set[str]) -> None:
        """Import and partition the graphs `names`, in one process. Raises SystemExit where that fails."""
        lines = [["synth", "small.npz", "--vertices", "1200", "--edges", "9000", "--features", "24", "--classes", "5"]]
        self._prepare(lines)
        with np.load(self.folder / "small.npz") as file:
            arrays = dict(file)
        lines = []
        for name in sorted(names):
            flags, cut = (MADE | REAL)[name]
            if name in MADE:
                source = write_source(name, arrays, self.folder / f"{name}-source").name
            else:
                source, *flags = str(DATA / flags[0]), *flags[1:]
            lines += [["import", source, f"{name}.h5", *flags], ["partition", f"{name}.h5", name, *cut]]
        self._prepare(lines)

    def _prepare(self, lines: list[list[str]]) -> None:
        code = "import json, sys; from data_prep.cli import main\nsys.exit(any(map(main, json.loads(sys.argv[1]))))"
        command = [sys.executable, "-c", code, json.dumps(lines)]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(f"preparing failed:\n{done.stdout[-2000:]}\n{done.stderr}")

    def record(self, runs: list[GoldenRun]) -> Iterator[dict[str, Any]]:
        """What each of `runs`, which have one number of ranks, gives; a run that ends its job is tried once more."""
        ranks, left, tried = runs[0].ranks if runs else 0, list(runs), ""
        results = self.folder / f"results-{ranks}.jsonl"
        results.touch()
        while left:
            place = results.stat().st_size
            job = self._start(left, ranks, results)
            for line in _lines_until_the_end(job, results, place):
                found = json.loads(line)
                left = [run for run in left if run.name != found["name"]]
                yield found
            end_session(job)
            if left and tried == left[0].name:
                printed = (self.folder / f"job-{ranks}.txt").read_text()
                yield {"name": left.pop(0).name, "failed": printed[-2000:], "seconds": 0}
            elif left:
                tried = left[0].name
                shutil.rmtree(self.folder / "runs" / tried, ignore_errors=True)

    def _start(self, runs: list[GoldenRun], ranks: int, results: Path) -> subprocess.Popen[bytes]:
        """The job of `runs`; what it prints goes to a file."""
        batch = self.folder / f"batch-{ranks}.json"
        places = [{"data": str(self.folder / run.data), "folder": str(self.folder / "runs" / run.name)} for run in runs]
        batch.write_text(json.dumps([asdict(run) | place for run, place in zip(runs, places, strict=True)]))
        command = [sys.executable, str(Path(__file__).with_name("golden_rank.py")), str(batch), str(results)]
        if ranks > 1:
            command = [str(PROJECT / "jobs/mpirun/local"), str(ranks), *command]
        with (self.folder / f"job-{ranks}.txt").open("wb") as printed:
            settings = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": subprocess.STDOUT}
            return subprocess.Popen(
                command, **settings, cwd=self.checkout, env=self.environment, start_new_session=True
            )


def _lines_until_the_end(job: subprocess.Popen[bytes], results: Path, place: int) -> Iterator[str]:
    """Lines that `job` adds to `results` after `place`, until it ends or is quiet for PATIENCE seconds."""
    last = time.monotonic()
    while True:
        ended = job.poll() is not None
        with results.open("rb") as file:
            file.seek(place)
            lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        for line in lines:
            place, last = place + len(line), time.monotonic()
            yield line.decode()
        if ended or time.monotonic() > last + PATIENCE:
            return
        time.sleep(0.2)


# -- comparison -----------------------------------------------------------------------------------------------------


def differences(found: dict, before: dict, tolerance: float, left_out: Iterable[str]) -> list[str]:
    """What differs between two records of a run, by field; to the bit where `tolerance` is 0."""
    if "refused" in found and "refused" in before:
        return []
    ours, theirs = (_flat({key: each[key] for key in each if key not in APART}) for each in (found, before))
    odd = []
    for key in sorted(ours.keys() | theirs.keys()):
        words = key.split("/")
        # A kind of bytes that one side does not know has sent nothing.
        default = 0 if "bytes" in words or "rows" in words else None
        pair = ours.get(key, default), theirs.get(key, default)
        if any(fnmatch(word, pattern) for word in words for pattern in left_out) or pair[0] == pair[1]:
            continue
        if tolerance and ("digest" in words or _close(*pair, tolerance)):
            continue
        odd.append(f"{key}: {pair[1]} -> {pair[0]}")
    return odd


def _flat(value: Any, at: str = "") -> dict[str, Any]:
    """Nested values by their way, with / between its steps."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        return {at: value}
    return {way: each for key, part in inner for way, each in _flat(part, f"{at}/{key}".strip("/")).items()}


def _close(ours: Any, theirs: Any, tolerance: float) -> bool:
    """Whether two numbers with a fraction differ by at most `tolerance`, relative to the larger one or 1."""
    if not (isinstance(ours, float) and isinstance(theirs, float)):
        return False
    return abs(ours - theirs) <= tolerance * max(1.0, abs(ours), abs(theirs))


def compare(found: dict[str, dict], before: dict[str, dict], tolerance: float, where: list[str], out: list[str]) -> int:
    """Print what differs; returns how many runs do. Runs of one side alone are counted, and are not a difference."""
    unknown = {name for side in (found, before) for name, each in side.items() if "unknown" in each}
    shared = [name for name in found if name in before and name not in unknown]
    counts = {"equal to the bit": 0, f"equal within {tolerance:g}": 0, "different": 0}
    for name in shared:
        double = found[name].get("dtype") == "float64" and any(fnmatch(name, each) for each in where)
        exact, close = (differences(found[name], before[name], each, out) for each in (0.0, tolerance * double))
        kind = list(counts)[0 if not exact else 1 if not close else 2]
        counts[kind] += 1
        if close:
            print(f"{name}: {len(close)} differences", *close[:4], sep="\n    ")
    refused = sum("refused" in found[name] and "refused" in before[name] for name in shared)
    print(f"of {len(shared)} runs " + ", ".join(f"{count} {kind}" for kind, count in counts.items() if count))
    print(f"refused on both sides: {refused}; only in one folder: {len(found.keys() ^ before.keys())}")
    if unknown:
        print(f"not compared, for settings that one side does not know: {', '.join(sorted(unknown))}")
    return counts["different"]


# -- the command ----------------------------------------------------------------------------------------------------


def main() -> int:
    """Record, and compare where --against is given; 1 where a run differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for the runs; its content is replaced")
    parser.add_argument("--checkout", type=Path, default=PROJECT, help="the checkout whose code runs (default: this)")
    parser.add_argument("--against", type=Path, help="the folder of an earlier call to compare with")
    parser.add_argument("-k", default="", metavar="TEXT,TEXT", help="only runs whose name contains one of these")
    parser.add_argument("--tolerance", type=float, default=0.0, help="largest difference, relative, of float64 runs")
    parser.add_argument("--where", default="*", metavar="PATTERN,PATTERN", help="runs for which --tolerance holds")
    parser.add_argument("--leave-out", default="", metavar="FIELD,FIELD", help="fields that may differ, such as bytes")
    parser.add_argument("--compare-only", action="store_true", help="record nothing: FOLDER was recorded before")
    given = parser.parse_args()
    if not given.compare_only:
        record(given.folder, given.checkout, [each for each in given.k.split(",") if each])
    found = json.loads((given.folder / RESULT).read_text())
    failed = [name for name, each in found.items() if "failed" in each]
    for name in failed:
        print(f"{name} failed: {found[name]['failed'][-600:]}")
    if given.against:
        before = json.loads((given.against / RESULT).read_text())
        where, out = given.where.split(","), [each for each in given.leave_out.split(",") if each]
        return bool(compare(found, before, given.tolerance, where, out) or failed)
    return bool(failed)


def record(folder: Path, checkout: Path, words: list[str]) -> None:
    """Record the runs whose name contains one of `words`, or all, into FOLDER/golden.json."""
    runs = {name: run for name, run in golden_runs().items() if not words or any(word in name for word in words)}
    if not runs:
        raise SystemExit(f"no run's name contains {' or '.join(words)}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin, recorder = time.monotonic(), Recorder(folder.resolve(), checkout.resolve())
    recorder.prepare({run.data for run in runs.values()})
    flags = recorder.flags()
    missing = {name: sorted({key.replace("_", "-") for key in run.settings} - flags) for name, run in runs.items()}
    found: dict[str, dict] = {name: {"unknown": each} for name, each in missing.items() if each}
    for ranks in sorted({run.ranks for run in runs.values()}):
        for each in recorder.record([run for run in runs.values() if run.ranks == ranks and not missing[run.name]]):
            name = each["name"]
            found[name] = each
            said = each["weights"]["digest"][:16] if "weights" in each else each.get("refused", "FAILED")
            print(f"{len(found):4}/{len(runs)} {name:<44}{each['seconds']:6.2f} s  {said}", flush=True)
            shutil.rmtree(folder / "runs" / name, ignore_errors=True)
    (folder / RESULT).write_text(json.dumps({name: found[name] for name in runs}, indent=1))
    print(f"{len(found)} runs in {time.monotonic() - begin:.0f} s; {folder / RESULT}")


if __name__ == "__main__":
    sys.exit(main())
