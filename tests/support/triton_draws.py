"""Draws of all samplers by Triton's interpreter, compared with the CPU's blocks: python -m tests.support.triton_draws.

Prints the kernels that served, and by kind the operations of an iteration of two hops on the stand-in for a GPU.
"""

import json
import os
from collections import Counter

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np

from leapmpi.nn.kernels import triton_choice
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.device.test_device_sampler import LEAVING_OUT, OPTIONS, both, graph, on_devices
from tests.support import kinds
from tests.support.same_blocks import same_blocks
from tests.support.stand_in_gpu import DEVICE, present

CARRYING = on_devices(carried=True)
"""Kinds whose edges may have weights, and numbers."""
FEW = {"ladies": ("layer-size=6",), "ladies, unbiased": ("layer-size=5,4", "row-normalise=no")}
"""Options with which these draw fewer vertices than there are."""
WEIGHED = "weighted, edges"
"""Kind that cannot do without weights of edges."""
VERTICES = 16


def main() -> None:
    """Compare blocks of two iterations: in the second edges carry data, and some are left out, where the kind can."""
    kinds.KINDS = OPTIONS | FEW
    roots, operations = np.random.default_rng(0).permutation(VERTICES)[:5], {}
    with present() as gpu:
        for kind in dict.fromkeys([*on_devices(), *CARRYING]):
            for iteration in (0, 1):
                carried = kind == WEIGHED or (iteration == 1 and kind in CARRYING)
                topology = graph(VERTICES, 300, 3, carried)
                ends = np.repeat(roots, np.diff(topology.indptr)[roots])
                targets = np.stack([topology.in_neighbours(roots), ends], axis=1)[::3]
                sampler, drawing = both(kind, topology, (3, 2), numbers=carried, device=DEVICE)
                key = DrawKey(TRAIN, 7, 1, iteration)
                if iteration and kind.startswith(LEAVING_OUT):
                    drawing.leave_out(key, targets)
                gpu.phases = Counter()
                found = drawing.sample(key, roots)
                operations.setdefault(kind, gpu.phases.copy())
                same_blocks(found, sampler.sample(key, roots))
    print(json.dumps({"served": triton_choice.tried(), "operations": operations}))


if __name__ == "__main__":
    main()
