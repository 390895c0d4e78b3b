"""The folders of the dataset and the run: whether they exist, can be read or written, are local, have free space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.tools.doctor.folders import NETWORK
from leapmpi.tools.doctor.problems import Problem

LEAST_FREE = 1 << 30


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    for seen in facts["places"]:
        if seen["data"]:
            yield from _data(seen["data"], seen["host"])
        if seen["run"]:
            yield from _run(seen["run"], seen["host"])


def _data(place: Mapping[str, Any], host: str) -> Iterator[Problem]:
    path = place["path"]
    if not place["exists"]:
        yield Problem(f"the dataset {path} is not there on {host}", "copy it there, or name one that all nodes see")
    elif not place["readable"]:
        yield Problem(f"the dataset {path} cannot be read on {host}", "change its permissions")
    elif place["file_system"] in NETWORK:
        yield Problem(
            f"the dataset {path} is read over the network on {host} ({place['file_system']})",
            "copy it to each node's own disk before the job: 'stage' in the profile of leapmpi submit",
            grave=False,
        )


def _run(place: Mapping[str, Any], host: str) -> Iterator[Problem]:
    path = place["path"]
    if not place["writable"]:
        yield Problem(f"the run folder {path} cannot be written on {host}", "choose another --run folder")

    # Checkpoints need space, and a folder that lasts.
    if place["free"] < LEAST_FREE:
        yield Problem(
            f"the run folder {path} has {place['free'] >> 20} MiB of free space on {host}",
            "free some, or choose another --run folder; checkpoints hold the weights several times",
        )
    if place["file_system"] in ("tmpfs", "ramfs"):
        yield Problem(
            f"the run folder {path} lies in the memory of {host} and is lost with it",
            "choose a --run folder on a disk",
            grave=False,
        )
