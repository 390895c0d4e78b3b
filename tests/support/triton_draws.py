"""Draws of some samplers by Triton's interpreter, compared with the CPU's blocks: python -m tests.support.triton_draws.

Prints the kernels that served.
"""

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np

from leapmpi.device.device_frontier import DeviceTopology
from leapmpi.device.device_sampler import DeviceSampler
from leapmpi.nn.kernels import triton_choice
from leapmpi.nn.kernels.kernel_choice import standing_in
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.device.test_device_sampler import OPTIONS, graph
from tests.support import kinds
from tests.support.same_blocks import same_blocks

KINDS = ("node-wise", "with-replacement", "labor-0", "weighted", "weighted, edges")


def main() -> None:
    """Compare blocks of two iterations, in the second with edges left out."""
    kinds.KINDS = OPTIONS
    topology = graph(16, 300, 3, carried=True)
    roots = np.random.default_rng(0).permutation(16)[:5]
    ends = np.repeat(roots, np.diff(topology.indptr)[roots])
    targets = np.stack([topology.in_neighbours(roots), ends], axis=1)[::3]
    with standing_in() as device:
        for kind in KINDS:
            sampler = with_edge_data(kinds.make(kind, topology, (3, 2)), True)
            drawing = DeviceSampler(sampler, DeviceTopology(topology, device))
            for iteration in (0, 1):
                key = DrawKey(TRAIN, 7, 1, iteration)
                if iteration:
                    drawing.leave_out(key, targets)
                same_blocks(drawing.sample(key, roots), sampler.sample(key, roots))
    print(json.dumps(triton_choice.tried()))


if __name__ == "__main__":
    main()
