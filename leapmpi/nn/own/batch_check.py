"""A check of a user's module on one small batch before training: do its results depend on which roots run together?

The roots are run together, then split in two: by rule R1b neither rows nor gradients may differ. Where they do, the
first module with different rows is named. Runs are in float64, so that differences are not rounding errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from leapmpi.errors import ConfigError
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.own.passage import Passage
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors

_TOLERANCE = 1e-8
"""The largest difference in float64, relative to the whole, that counts as a rounding error."""

Sample = tuple[Sequence[BlockTensors], Rows]
"""Blocks from the roots outward, and the rows of the outermost sources, float[n_src, F]."""


def examine(model: OwnModel, whole: Sample, halves: Sequence[Sample], key: DropoutKey) -> list[str]:
    """Describe, in sentences, results that depend on which roots run together; none for a model that keeps rule R1b.

    `halves` hold the roots of `whole`, each once. Raises ConfigError for values that are NaN or infinite, for
    parameters without a gradient, for buffers that training writes, and for errors of the backward pass.
    """
    model.examined = True
    # All roots in one run: its values must be sound before any comparison makes sense.
    with model.keeping_buffers():
        together, gradients, seen = _run(model, whole, key)
    _check_numbers(model, together, seen)
    _check_gradients(model, gradients)
    if not halves:
        model.examined = False
        return []
    # The same roots in two runs. Rule R1b: a root's output depends on no other root.
    apart = [_run(model, half, key) for half in halves]
    model.examined = False

    # Outputs, then gradients.
    logits = torch.cat([each[0] for each in apart])
    roots = torch.cat([_roots(half) for half in halves])
    order = _places(roots, _roots(whole))
    differs = _difference(together, logits[order])
    # The loss is a sum over roots (rule R3), so gradients of the halves must add up to those of the whole.
    summed = [torch.stack(each).sum(0) for each in zip(*(each[1] for each in apart), strict=True)]
    flat, other = (torch.cat([each.reshape(-1) for each in found]) for found in (gradients, summed))
    differs = max(differs, _difference(flat, other))
    random = dict.fromkeys(name for passage in (seen, *(each[2] for each in apart)) for name in passage.random)
    if differs <= _TOLERANCE and not random:
        return []
    return [_sentence(model, differs, _first_that_differs(seen, [each[2] for each in apart]), list(random))]


def _run(model: OwnModel, sample: Sample, key: DropoutKey) -> tuple[Tensor, list[Tensor], Passage]:
    """Return outputs of the roots, gradients by parameter of a loss over all roots, and the record of the run."""
    blocks, rows = sample
    out = model(blocks, rows, key)
    share = torch.sin(_roots(sample).unsqueeze(1) + torch.arange(out.shape[1], device=out.device) + 1.0)
    parameters = list(model.parameters())
    with model.naming("backward"):
        found = torch.autograd.grad((out * share.to(out.dtype)).sum(), parameters, allow_unused=True)
    assert model.last is not None
    if model.schema is not None:
        # Modules of PyG have parameters for all relations in all layers, and some end at types that nothing reads.
        found = tuple(torch.zeros_like(p) if each is None else each for p, each in zip(parameters, found, strict=True))
    return out.detach(), list(found), model.last


def _check_numbers(model: OwnModel, out: Tensor, passage: Passage) -> None:
    if out.isfinite().all():
        return
    culprit = passage.odd.get("nan") or passage.odd.get("infinite") or "forward"
    raise ConfigError(
        f"--model {model.named}: {culprit} gives values that are infinite or no numbers on the first batch; look for "
        "divisions by zero and logarithms there, or for odd features with leapmpi-prep check"
    )


def _check_gradients(model: OwnModel, gradients: Sequence[Tensor | None]) -> None:
    unused = [name for (name, _), each in zip(model.named_parameters(), gradients, strict=True) if each is None]
    if unused:
        more = f" (and {len(unused) - 1} more)" if len(unused) > 1 else ""
        raise ConfigError(
            f"--model {model.named}: parameter {unused[0]}{more} gets no gradient, since the result of forward "
            "does not depend on it; use it or leave it out"
        )


def _roots(sample: Sample) -> Tensor:
    """Return int64[roots]: original ids."""
    first = sample[0][0]
    return first.dst_original


def _places(known: Tensor, wanted: Tensor) -> Tensor:
    """Return the places of `wanted` in `known`, both distinct ids."""
    order = known.argsort()
    return order[torch.searchsorted(known[order], wanted)]


def _difference(a: Tensor, b: Tensor) -> float:
    """Return the norm of a - b, relative to that of a; 1 for NaN or infinity."""
    norm = float(torch.linalg.vector_norm(a))
    change = float(torch.linalg.vector_norm(a - b))
    return (change / norm if norm else change) if np.isfinite(change) else 1.0


def _first_that_differs(whole: Passage, parts: Sequence[Passage]) -> str | None:
    """Return the first module whose rows, returned or passed to others, differ for the same vertices."""
    for part in parts:
        assert whole.seen is not None
        assert part.seen is not None
    for number, (name, vertices, rows) in enumerate(whole.seen or ()):
        for part in parts:
            other, ids, found = (part.seen or ())[number] if number < len(part.seen or ()) else (None, None, None)
            if other != name or ids is None or found is None or found.shape[1:] != rows.shape[1:]:
                continue
            known = torch.isin(ids, vertices)
            if _difference(rows[_places(vertices, ids[known])], found[known]) > _TOLERANCE:
                return name
    return None


def _sentence(model: OwnModel, differs: float, culprit: str | None, random: list[str]) -> str:
    """Describe the finding and its consequence."""
    # A module that draws numbers differs for that reason alone.
    explained = any(each.endswith(f" in {culprit}") for each in random)
    reasons = [f"{culprit} gives a vertex other values among other vertices"] if culprit and not explained else []
    reasons += [f"numbers are drawn by {', '.join(random)}"] if random else []
    why = "; ".join(reasons) or "forward itself reads other rows of the batch"
    return (
        f"{model.named} does not learn the same on other ranks, partitions or time steps: {why} (the roots of one "
        f"batch, run in two parts, differ by {differs:.1e} of the whole)"
    )
