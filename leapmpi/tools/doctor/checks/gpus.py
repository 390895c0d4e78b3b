"""GPUs: shared by ranks, not seen by torch, or with memory that MPI cannot take directly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.runs.tables.rank_table import ranks_text
from leapmpi.tools.doctor.problems import Problem


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    # GPUs of several ranks.
    users = defaultdict(list)
    for rank in facts["ranks"]:
        if rank["gpu"] is not None:
            users[rank["host"], rank["gpu"]].append(rank["rank"])
    for (host, gpu), ranks in users.items():
        if len(ranks) > 1:
            yield Problem(
                f"{ranks_text(ranks)} share one GPU ({gpu} on {host})",
                "start one rank per GPU; under Slurm ask for as many --gpus-per-node as --ntasks-per-node",
            )
    yield from _unseen(facts)
    yield from _segments(facts)


def _unseen(facts: Mapping[str, Any]) -> Iterator[Problem]:
    for rank in facts["ranks"]:
        if rank["torch_error"]:
            yield Problem(
                f"torch cannot be used by rank {rank['rank']} on {rank['host']}: {rank['torch_error']}",
                "install the PyTorch build that fits this machine and its driver",
            )

    # A GPU that torch does not see.
    blind = [rank for rank in facts["ranks"] if rank["gpu_files"] and not rank["gpus"] and not rank["torch_error"]]
    if blind:
        yield Problem(
            f"{blind[0]['host']} has a GPU ({blind[0]['gpu_files'][0]}) but torch sees none "
            f"({ranks_text(rank['rank'] for rank in blind)})",
            "install the PyTorch build that fits the CUDA driver, and see CUDA_VISIBLE_DEVICES",
            grave=False,
        )


def _segments(facts: Mapping[str, Any]) -> Iterator[Problem]:
    growing = [rank["rank"] for rank in facts["ranks"] if "expandable_segments:true" in rank["allocator"].lower()]
    if growing and facts["mpi"]["cuda_aware"]:
        yield Problem(
            f"PYTORCH_CUDA_ALLOC_CONF lets segments expand ({ranks_text(growing)}), whose memory a CUDA-aware MPI may "
            "copy at a fraction of the speed",
            "unset expandable_segments, or stage through the host: --mpi-device-path host",
        )
