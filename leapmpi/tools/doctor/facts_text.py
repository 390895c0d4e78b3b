"""Facts and problems as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

from leapmpi.errors import counted, plural
from leapmpi.tools.doctor.problems import Problem, by_node, named

_MOST_RANKS = 16
"""Most ranks listed one by one; with more, only nodes are listed."""

_MOST_NODES = 32
"""Most nodes listed."""


def lines(facts: Mapping[str, Any], found: Sequence[Problem]) -> Iterator[str]:
    """Yield all facts, then the problems `found`, line by line."""

    mpi = facts["mpi"]
    yield f"MPI library   {mpi['library']} (vendor {mpi['vendor']}, standard {mpi['standard']})"
    yield f"  file        {mpi['file']}"
    yield f"  mpi4py      {mpi['mpi4py']}"
    yield f"  threads     {mpi['thread_level']}"
    yield f"  launcher    {mpi['launcher']}"
    yield f"  CUDA-aware  {'yes' if mpi['cuda_aware'] else 'no'}: {mpi['cuda_aware_evidence']}"

    yield f"  GPU data    {_device_path(facts)}"

    nodes = by_node(facts)
    yield f"ranks         {len(facts['ranks'])} on {counted(len(nodes), 'node')}"
    yield from _ranks(facts, nodes)
    yield from _nodes(nodes)
    yield from _links(facts)
    yield from _rates(facts)
    yield from _folders(facts)
    variables = facts["ranks"][0]["launcher"]
    yield "launcher variables: " + (" ".join(f"{name}={value}" for name, value in variables.items()) or "none")
    yield "versions      " + ", ".join(f"{name} {number}" for name, number in facts["versions"].items())

    for problem in found:
        yield f"{'PROBLEM' if problem.grave else 'note   '}       {problem.what}"
        yield f"  mend        {problem.mend}"
    grave = sum(problem.grave for problem in found)
    yield f"{_count(grave, 'problem')}, {_count(len(found) - grave, 'note')}"


def folded(found: Iterator[str], width: int) -> str:
    """Return the lines `found` folded to `width` columns where they have blanks, with the rest under their values."""
    return "\n".join(
        fill(line, width, subsequent_indent=" " * 14, break_long_words=False, break_on_hyphens=False) for line in found
    )


def _count(number: int, noun: str) -> str:
    return counted(number, noun) if number else f"no {plural(noun)}"


def _device_path(facts: Mapping[str, Any]) -> str:
    """Describe the path of GPU data to MPI in a job on these ranks, and the reason."""
    if all(rank["gpu"] is None for rank in facts["ranks"]):
        return "none: no rank has a GPU"
    staged = "staged through pinned host memory, by --mpi-device-path host, the default"
    if facts["mpi"]["cuda_aware"]:
        return f"{staged}; auto or cuda hands it to MPI directly"
    return f"{staged}; auto stages it too, as MPI does not report support of device memory"


def _ranks(facts: Mapping[str, Any], nodes: Mapping[int, list[dict[str, Any]]]) -> Iterator[str]:
    if len(facts["ranks"]) > _MOST_RANKS:
        return
    for rank in facts["ranks"]:
        yield (
            f"  rank {rank['rank']}: {rank['host']} (node {rank['node']}), {rank['cores']} cores, "
            f"{rank['threads']} threads, GPU: {_gpu(rank)}"
        )


def _gpu(rank: Mapping[str, Any]) -> str:
    named = [f"{gpu['number']} {gpu['name']}" for gpu in rank["gpus"] if gpu["uuid"] == rank["gpu"]]
    return named[0] if named else "none"


def _nodes(nodes: Mapping[int, list[dict[str, Any]]]) -> Iterator[str]:
    for node in sorted(nodes)[:_MOST_NODES]:
        ranks = nodes[node]
        first, shared = ranks[0], ranks[0]["shared_memory"]
        shared_text = "/dev/shm none"
        if shared:
            shared_text = f"{shared['folder']} {shared['free'] / 2**30:.1f} of {shared['bytes'] / 2**30:.1f} GiB free"
        limits = " ".join(f"{name}={'unlimited' if it is None else it}" for name, it in first["limits"].items())
        addresses = " ".join(f"{name}={address}" for name, address in first["addresses"].items())
        yield f"  node {node}: {first['host']}, {named(ranks)}, {first['processor']}"
        yield f"    {shared_text}; {addresses or 'no addresses'}; limits {limits}"
        yield f"    kernels in {first['kernels']['folder']}"
    if len(nodes) > _MOST_NODES:
        yield f"  ... {len(nodes) - _MOST_NODES} more nodes (--json lists all)"


def _links(facts: Mapping[str, Any]) -> Iterator[str]:
    for link in facts["links"]:
        for crosses, where in ((False, "within nodes"), (True, "between nodes")):
            chosen = [rank for rank, flag in enumerate(link["crosses_nodes"]) if flag == crosses]
            if not chosen:
                continue
            rates, delays = ([link[name][rank] for rank in chosen] for name in ("mbytes", "microseconds"))
            slowest = chosen[rates.index(min(rates))]
            yield (
                f"links         {link['memory']}, to rank + {link['distance']}, {where}: "
                f"{statistics.median(rates):,.0f} MB/s (least {min(rates):,.0f}, from rank {slowest}), "
                f"{statistics.median(delays):,.0f} us (most {max(delays):,.0f})"
            )


def _rates(facts: Mapping[str, Any]) -> Iterator[str]:
    if rates := facts.get("rates"):
        spread = "" if rates["spread"] is None else f", repetitions differed by {rates['spread']:.0%}"
        yield f"rates         {rates['source']}{spread}"
        yield f"  of          {rates['key']}"
        steps = f"{rates['step'] * 1e3:,.2f} ms a time step"
        yield f"  computing   {1e-9 / rates['multiply_add']:,.1f} G multiply-adds/s a rank, {steps}"
        latency = f"{rates['collective'] * 1e6:,.0f} us a collective"
        yield f"  exchange    {8e-9 / rates['byte']:,.2f} Gbit/s a rank, {latency}"


def _folders(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield each folder once, though all nodes see it."""
    printed = set()
    for seen in facts["places"]:
        for name in ("data", "run"):
            if place := seen[name]:
                text = f"{place['path']}: {place['file_system']}, {place['free'] / 2**30:.1f} GiB free"
                if text not in printed:
                    printed.add(text)
                    yield f"{name:<12}  {text}"
