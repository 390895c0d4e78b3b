"""The network: host names and addresses that are not unique, and links slower than others of their kind."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from leapmpi.runs.tables.rank_table import ranks_text
from leapmpi.tools.doctor.problems import Problem, by_node

_SLOW = 1 / 3
"""A link is slow below this share of the median rate."""

_LONG_DELAY = 5000.0
"""Microseconds of a small message above which processors seem to be shared."""


def find(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong."""
    firsts = [ranks[0] for ranks in by_node(facts).values()]
    if len(firsts) > 1:
        yield from _names(firsts)
        yield from _addresses(facts, firsts)
    yield from _links(facts)


def _names(firsts: list[dict[str, Any]]) -> Iterator[Problem]:
    hosts = [rank["host"] for rank in firsts]
    for host in sorted({host for host in hosts if hosts.count(host) > 1}):
        yield Problem(f"several nodes are named {host}, which MPI may take for one", "give every node its own name")
    for rank in firsts:
        if (rank["host_address"] or "").startswith("127."):
            yield Problem(
                f"{rank['host']} resolves its own name to {rank['host_address']}, by which other nodes cannot reach it",
                f"let /etc/hosts on {rank['host']} give it the address of its network",
                grave=False,
            )


def _addresses(facts: Mapping[str, Any], firsts: list[dict[str, Any]]) -> Iterator[Problem]:
    """Bridges of containers and virtual machines have the same address on every node; messages sent there are lost."""
    owners = defaultdict(set)
    for rank in firsts:
        for name, address in rank["addresses"].items():
            if not address.startswith("127."):
                owners[address, name].add(rank["host"])
    chosen = any("_tcp_if_" in name for name in firsts[0]["mpi_settings"])
    for (address, name), hosts in owners.items():
        if len(hosts) > 1 and not chosen and "Open MPI" in facts["mpi"]["library"]:
            yield Problem(
                f"{', '.join(sorted(hosts))} have the same address {address} ({name}), which Open MPI may try to use",
                "name the network that connects the nodes: export OMPI_MCA_btl_tcp_if_include=NETWORK/BITS",
            )


def _links(facts: Mapping[str, Any]) -> Iterator[Problem]:
    """Links within nodes and between nodes, each compared with links of the same kind and memory."""
    for crosses in (False, True):
        # Rate and delay of each pair of ranks of this kind.
        rates, delays = [], []
        for link in facts["links"]:
            size = len(link["mbytes"])
            for rank in (rank for rank in range(size) if link["crosses_nodes"][rank] == crosses):
                pair = rank, (rank + link["distance"]) % size
                rates.append((link["mbytes"][rank], pair, link["memory"]))
                delays.append((link["microseconds"][rank], pair))

        for memory in sorted({memory for _, _, memory in rates}):
            yield from _slow([each for each in rates if each[2] == memory], crosses)
        if delays and statistics.median(delay for delay, _ in delays) > _LONG_DELAY:
            yield Problem(
                f"a small message takes {statistics.median(delay for delay, _ in delays):,.0f} us",
                "with more ranks than cores, let waiting ranks give up theirs: OMPI_MCA_mpi_yield_when_idle=1",
                grave=False,
            )


def _slow(rates: list[tuple[float, tuple[int, int], str]], crosses: bool) -> Iterator[Problem]:
    """The slowest pair of ranks, where it is much slower than the median of `rates` (rate, pair, memory)."""
    usual = statistics.median(rate for rate, _, _ in rates)
    slow = [(rate, pair) for rate, pair, _ in rates if rate < _SLOW * usual]
    if slow:
        rate, pair = min(slow)
        between = "between nodes" if crosses else "within a node"
        yield Problem(
            f"rank {pair[0]} sends to {ranks_text([pair[1]])} at {rate:,.0f} MB/s, where {usual:,.0f} MB/s are usual "
            f"{between}",
            "see whether other jobs share the link or the cores, and the state of its cable and switch",
            grave=False,
        )
