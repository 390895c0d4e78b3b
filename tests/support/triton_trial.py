"""leapmpi with Triton's kernels run by its interpreter: python -m tests.support.triton_trial train DATA ...

Prints how often each kernel served.
"""

import json
import os
import sys
from collections import Counter

os.environ["TRITON_INTERPRET"] = "1"

from leapmpi.cli.main import main
from leapmpi.device import draws_triton
from leapmpi.nn.kernels import csr_triton

served: Counter[str] = Counter()


def counting(module, name):
    """Count the calls of a function of `module`."""
    genuine = getattr(module, name)

    def call(*arguments):
        served[name] += 1
        return genuine(*arguments)

    setattr(module, name, call)


counting(draws_triton, "node_wise")
counting(csr_triton, "weighted_sum")

if __name__ == "__main__":
    code = main(sys.argv[1:])
    print(json.dumps(served))
    sys.exit(code)
