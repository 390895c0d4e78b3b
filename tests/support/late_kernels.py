"""One rank of a training job that prints which kernels were compiled or loaded after training had begun:

jobs/mpirun/local 2 python -m tests.support.late_kernels train DATA ...
"""

import sys

from numba.core.dispatcher import Dispatcher

from leapmpi.cli.main import main
from leapmpi.training.trainer import Trainer

genuine_compile, genuine_epoch = Dispatcher.compile, Trainer.epoch
in_epoch = []


def compile_kernel(kernel, signature):
    """The genuine compilation, which tells when it comes late."""
    if in_epoch:
        print(f"late: {kernel.py_func.__module__}.{kernel.py_func.__name__}", flush=True)
    return genuine_compile(kernel, signature)


def epoch(trainer, number):
    """The genuine epoch and its evaluation."""
    in_epoch.append(number)
    try:
        return genuine_epoch(trainer, number)
    finally:
        in_epoch.pop()


Dispatcher.compile, Trainer.epoch = compile_kernel, epoch

if __name__ == "__main__":
    sys.exit(main())
