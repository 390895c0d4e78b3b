"""One rank of a training job in which some ranks are sent a signal:

    jobs/mpirun/local 3 python -m tests.support.stopped_job SIGNAL RANKS EPOCH ITERATION train DATA ...

SIGNAL such as TERM; RANKS such as 0,2. It arrives inside the step of that iteration; in place of the iteration,
`evaluate` means the first round of the evaluation after that epoch, and `checkpoint` the writing of its first
checkpoint. Further arguments are those of leapmpi.
"""

import os
import signal
import sys

from leapmpi.cli.main import main
from leapmpi.comm.world import job_rank
from leapmpi.engine.engine import Engine
from leapmpi.evaluation.outputs import Outputs
from leapmpi.runs.checkpoint_folder import CheckpointFolder

name, ranks, epoch, iteration, *command = sys.argv[1:]
genuine_step, genuine_logits, genuine_write = Engine.forward_backward, Outputs.batch, CheckpointFolder._write
sent = []


def send():
    """Send the signal to this process, if it is meant and was not sent yet."""
    if str(job_rank()) in ranks.split(",") and not sent:
        sent.append(name)
        os.kill(os.getpid(), signal.Signals["SIG" + name])


def step(engine, minibatch):
    """The genuine step, before which the signal may arrive."""
    if (str(minibatch.schedule.epoch), str(minibatch.schedule.iteration)) == (epoch, iteration):
        send()
    return genuine_step(engine, minibatch)


def logits(evaluator, *arguments):
    """The genuine logits, before which the signal may arrive."""
    if iteration == "evaluate" and evaluator.ctx.phases.epoch == int(epoch):
        send()
    return genuine_logits(evaluator, *arguments)


def write(checkpoints, path, file):
    """The genuine writing, before which the signal may arrive."""
    if iteration == "checkpoint" and file.values["progress"]["epoch"] == int(epoch):
        send()
    genuine_write(checkpoints, path, file)


Engine.forward_backward, Outputs.batch, CheckpointFolder._write = step, logits, write

if __name__ == "__main__":
    sys.exit(main(command))
