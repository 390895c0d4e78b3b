"""ReFrame checks of an installed leapmpi: a small graph is made, cut and trained on by several ranks.

    reframe -C SITE.py -c jobs/packaging/reframe/leapmpi_check.py -r

`leapmpi` and `leapmpi-prep` have to be on PATH: by a module (-S modules=leapmpi), or in an environment that is active.
"""

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_before, sanity_function, variable


@rfm.simple_test
class LeapmpiTraining(rfm.RunOnlyRegressionTest):
    """Four epochs on 20,000 vertices: every rank takes part, the model learns, an epoch takes so many seconds."""

    descr = "leapmpi trains over MPI"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "leapmpi"
    strategy = parameter(["leap", "pull"])
    ranks = variable(int, value=4)
    maintainers = ["leapmpi"]
    tags = {"production", "mpi"}

    @run_before("run")
    def prepare(self):
        """Make and cut the graph before the ranks start."""
        self.num_tasks = self.ranks
        self.num_cpus_per_task = 1
        self.executable_opts = ["train", "data", "--run", "run", "--strategy", self.strategy, "--epochs", "4"]
        self.prerun_cmds = [
            "leapmpi-prep synth graph.h5 --vertices 20000 --edges 200000 --features 64 --classes 10 --seed 1",
            f"leapmpi-prep partition graph.h5 data --parts {self.ranks} --method metis",
        ]
        # The last of the four epochs: kernels are compiled by then.
        self.postrun_cmds = ["leapmpi export run run.prom"]
        self.keep_files = ["run.prom", "run/summary.json", "run/log.txt"]

    @sanity_function
    def every_rank_learned(self):
        """Check that the run ended as planned, on all ranks, far above guessing."""
        scores = sn.extractall(r'"val": ([\d.]+)', "run/summary.json", 1, float)
        return sn.all(
            [
                sn.assert_found(r'"status": "finished"', "run/summary.json"),
                sn.assert_found(rf'"ranks": {self.ranks},', "run/summary.json"),
                sn.assert_gt(sn.max(scores), 0.5),
            ]
        )

    @performance_function("s")
    def epoch(self):
        """Return the seconds of the last epoch."""
        return sn.extractsingle(r"^leapmpi_epoch_seconds\{.*\} (\S+)", "run.prom", 1, float)
