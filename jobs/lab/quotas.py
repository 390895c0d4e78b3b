"""Processor quotas of hosts: a control group per host, of version 2 or 1. `hosts` is the program."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from namespaces import HOST, LabError

PERIOD = 20_000
"""Period of a quota in microseconds: short, so that a host that has used up its share soon continues."""

LEAST = 0.05
"""The kernel grants no less than a millisecond of a period."""

WEIGHTS = {1: ("cpu.shares", 2**18), 2: ("cpu.weight", 10_000)}
"""By version, the largest weight against what else runs on the machine, which would take from a quota otherwise."""

MOUNTS = Path("/proc/mounts")
PATIENCE = 5.0
"""Seconds in which the last process of a group must be gone."""


def parse(text: str, hosts: int) -> list[float]:
    """Parse '0.25' or '1,0.25,0.25' as the cores of each of `hosts`. Raises LabError."""
    try:
        cores = [float(word) for word in text.split(",")]
    except ValueError:
        cores = []
    if not cores or not all(LEAST <= each < math.inf for each in cores):
        raise LabError(f"--cores {text}: give numbers of cores of {LEAST} or more, such as 0.25 or 1,0.25,0.25")
    if len(cores) not in (1, hosts):
        raise LabError(f"--cores {text}: give one number for all hosts, or {hosts}, one each; not {len(cores)}")
    return cores * hosts if len(cores) == 1 else cores


def limit(cores: Sequence[float]) -> None:
    """Make a control group for each host, in which its commands get its `cores`, and no more. Raises LabError."""
    root, version = hierarchy()
    for host, share in enumerate(cores):
        group = root / f"{HOST}{host}"
        quota = round(share * PERIOD)
        try:
            group.mkdir(exist_ok=True)
            name, weight = WEIGHTS[version]
            (group / name).write_text(str(weight))
            if version == 2:
                (group / "cpu.max").write_text(f"{quota} {PERIOD}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError as error:
            raise LabError(
                f"no quota of processors can be set in {group} ({error.strerror}); leave out --cores"
            ) from None


def hierarchy() -> tuple[Path, int]:
    """Find the folder for groups of the processor controller, and the version of control groups. Raises LabError."""
    mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    for _, place, kind, options, *_ in mounts:
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(place), 1
    for _, place, kind, *_ in mounts:
        root = Path(place)
        if kind != "cgroup2" or "cpu" not in (root / "cgroup.controllers").read_text().split():
            continue
        try:
            (root / "cgroup.subtree_control").write_text("+cpu")
        except OSError as error:
            raise LabError(
                f"{root} hands no processors out to groups ({error.strerror}), as in a container; leave out --cores, "
                "or start the lab on the machine itself"
            ) from None
        return root, 2
    raise LabError("this kernel has no control groups of processors mounted; leave out --cores")


def groups() -> list[Path]:
    """List the groups of all hosts, also those that a killed `up` left."""
    roots = (Path(place) for _, place, kind, *_ in map(str.split, MOUNTS.read_text().splitlines()) if "cgroup" in kind)
    return [group for root in roots for group in root.glob(f"{HOST}*") if group.name.removeprefix(HOST).isdigit()]


def join(namespace: str) -> None:
    """Put this process, and what it will start, into the group of a host, if it has one."""
    for group in groups():
        if group.name == namespace:
            (group / "cgroup.procs").write_text(str(os.getpid()))


def remove() -> None:
    """Remove the groups of hosts on which nothing runs any more."""
    end = time.monotonic() + PATIENCE
    for group in groups():
        # A process that was killed leaves its group a moment later.
        while group.exists():
            with suppress(OSError):
                group.rmdir()
            if time.monotonic() > end:
                raise LabError(f"the control group {group} cannot be removed: processes are left in it")
            if group.exists():
                time.sleep(0.02)
