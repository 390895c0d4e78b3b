"""Compiled kernels: whether numba can keep them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.tools.doctor.problems import Problem, by_node


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    # The ranks of a node share the folder: one of them stands for all.
    for ranks in by_node(facts).values():
        kernels, host = ranks[0]["kernels"], ranks[0]["host"]
        if kernels["error"]:
            yield Problem(f"numba cannot be used on {host}: {kernels['error']}", "install numba again")
        elif not kernels["writable"]:
            yield Problem(
                f"the folder for compiled kernels cannot be written on {host}: {kernels['folder']}",
                "let NUMBA_CACHE_DIR name a folder that can be written",
            )
        elif not kernels["lasting"]:
            yield Problem(
                f"compiled kernels are kept in a temporary folder on {host} ({kernels['folder']}); jobs may compile "
                "them anew",
                "make the home folder writable, or let NUMBA_CACHE_DIR name a folder that lasts",
                grave=False,
            )
