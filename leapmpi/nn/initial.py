"""Initial weights as a function of seed and parameter name: the same on every rank and in every precision."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import nn

from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_WEIGHTS = 0x77656967_00000000  # keeps weights apart from other uses of the seed


@compiled
def _fill(base, limit, out):
    for i in range(len(out)):
        # 53 bits of the hash: as many as a float64 in [0, 1) has.
        unit = np.float64(fold(base, i) >> np.uint64(11)) * 2.0**-53
        out[i] = (2.0 * unit - 1.0) * limit


def uniform(seed: int, name: str, size: int, limit: float) -> np.ndarray:
    """float64[size] uniform in [-limit, limit): number i is a function of (seed, name, i)."""
    digest = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    base = fold(np.uint64(fold(np.uint64(fold(np.uint64(0), np.uint64(seed))), _WEIGHTS)), np.uint64(digest))
    out = np.empty(size)
    _fill(np.uint64(base), limit, out)
    return out


def glorot_limit(fan_in: int, fan_out: int) -> float:
    """The range of uniform weights that keeps variances. Glorot and Bengio (AISTATS 2010), equation 16."""
    return math.sqrt(6 / (fan_in + fan_out))


def initialise(model: nn.Module, seed: int) -> None:
    """Draw every parameter that its module lists in `fans` (name -> (fan in, fan out)); others keep their constants.

    Values are computed in float64 and rounded to the parameter's dtype: a float32 model is the rounded float64 one.
    """
    for path, module in model.named_modules():
        for name, fans in getattr(module, "fans", {}).items():
            parameter = module.get_parameter(name)
            full_name = f"{path}.{name}" if path else name
            values = torch.from_numpy(uniform(seed, full_name, parameter.numel(), glorot_limit(*fans)))
            with torch.no_grad():
                parameter.copy_(values.view(parameter.shape))
