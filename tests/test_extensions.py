"""One new file in the folder of a kind is a new member of it: each is added and used from the command line.

The file stands in a folder of the test, by which a `sitecustomize` of that folder lengthens the path of the member
folder before the program starts. To Python, that is one more file in the member folder.
"""

import os
import sys
import textwrap

import pytest

from leapmpi import load_run, open_dataset
from tests.support.launch import PROJECT, child_environment, mpirun, run

LEAPMPI = [sys.executable, "-m", "leapmpi.cli"]
PREP = [sys.executable, "-m", "data_prep.cli"]
TRACE = "LEAPMPI_TEST_TRACE"

pytestmark = pytest.mark.long(50)

# The interfaces of these kinds: what a file must hold today. Keep them in step with the member folders.
SOURCE = """
    import numpy as np
    from data_prep.edges.raw_graph import RawGraph

    SUMMARY = "pairs of ids, one a line"
    OPTIONS = frozenset()

    def can_read(path):
        return path.suffix == ".mine"

    def read(path, options):
        edges = np.loadtxt(path, np.int64, ndmin=2).T
        return RawGraph(vertices=int(edges.max()) + 1, edges=edges)
"""
METHOD = """
    from dataclasses import replace
    from data_prep.partitioning.methods import hash

    def partition(graph, request):
        return hash.partition(graph, replace(request, seed=request.seed + 1))
"""
SAMPLER = """
    import numpy as np
    from leapmpi.sampling.hop_sampler import HopSampler, indptr_of
    from leapmpi.sampling.sampler import Drawn

    class EveryNeighbour(HopSampler):
        def draw(self, key, hop, vertices, original, degree):
            topology = self.topology
            rows = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in vertices]
            neighbours = np.concatenate([topology.indices[:0], *rows]).astype(np.int64)
            return Drawn(indptr_of(degree), neighbours)

    def build(setup, options):
        return EveryNeighbour(setup)
"""
POLICY = """
    import numpy as np

    def POLICY(access):
        return np.arange(access.topology.vertices, dtype=float) + 1
"""
MERGE = """
    import os
    from leapmpi.plan.merging import paper

    def merge(layout, time_steps, key):
        with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
            print(f"merged {layout.steps} steps into {time_steps}", file=trace)
        return paper.merge(layout, time_steps, key)
"""
COMMAND = """
    HELP = "say a word twice"

    def add_arguments(parser):
        parser.add_argument("word")

    def run(arguments):
        print(arguments.word, arguments.word)
        return 0
"""
MODEL = """
    from dataclasses import replace
    from leapmpi.nn.model import stack
    from leapmpi.nn.models.sage import SAGELayer

    def build(config, layers, in_dim, out_dim):
        return stack(SAGELayer, replace(config, hidden=2 * config.hidden), layers, in_dim, out_dim)
"""
TASK = """
    from leapmpi.nn.tasks.multi_class import MultiClass

    class Doubled(MultiClass):
        def loss(self, outputs, labels, weight):
            return super().loss(outputs, labels, 2 * weight)

    TASK = Doubled
"""
METRIC = """
    from leapmpi.training.metrics.accuracy import Accuracy

    class Errors(Accuracy):
        higher_is_better = False

        def value(self, counts):
            return 1 - super().value(counts)

    METRIC = Errors
"""
SCORER = """
    import os
    from leapmpi.nn.scorers.dot import Dot

    class Negated(Dot):
        def forward(self, source, destination):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("scored", file=trace)
            return -super().forward(source, destination)

    def build(width):
        return Negated()
"""
NEGATIVES = """
    import os
    import numpy as np
    from leapmpi.sampling.edges.negative_sampler import NegativeSampler

    class Next(NegativeSampler):
        def pick(self, words, rows, edges):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("drawn", file=trace)
            return (edges[rows, 1] + 1 + (words % np.uint64(99)).astype(np.int64)) % 240

    NEGATIVES = Next
"""
STRATEGY = """
    import os
    from leapmpi.strategies.pull import Pull

    class Backwards(Pull):
        def schedule(self, batch, epoch, iteration, time_steps=None):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("scheduled", file=trace)
            return super().schedule(batch[::-1].copy(), epoch, iteration, time_steps)

    STRATEGY = Backwards
"""
EXCHANGE_MODE = """
    import os
    from leapmpi.engine.exchange.modes.raw import Raw

    class Traced(Raw):
        def train(self, minibatch, number, labels):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("trained", file=trace)
            return super().train(minibatch, number, labels)

    MODE = Traced
"""

SITECUSTOMIZE = """
import importlib
for package, folder in {found!r}.items():
    importlib.import_module(package).__path__.append(folder)
"""


@pytest.fixture
def added(tmp_path):
    """A function: member folder, source text, ... -> the environment in which programs find these there as `mine`."""

    def add(*pairs):
        site, found = tmp_path / "site", {}
        site.mkdir()
        for package, source in zip(pairs[::2], pairs[1::2], strict=True):
            found[package] = str(tmp_path / package)
            (tmp_path / package).mkdir()
            (tmp_path / package / "mine.py").write_text(textwrap.dedent(source))
        (site / "sitecustomize.py").write_text(SITECUSTOMIZE.format(found=found))
        path = os.pathsep.join([str(site), child_environment()["PYTHONPATH"]])
        return {"PYTHONPATH": path, TRACE: str(tmp_path / "trace")}

    return add


def start(command, env, cwd):
    """Run `command`, which must succeed, and return what it printed."""
    job = run([str(word) for word in command], 100, child_environment(env), cwd)
    assert job.returncode == 0, job.stderr
    return job.stdout


def train(data, folder, env, *flags, ranks=1):
    """Train two epochs with `flags`; returns the run."""
    sizes = ["--epochs", "2", "--hidden", "8", "--batch-size", "32", "--threads", "1"]
    command = [*LEAPMPI, "train", data, "--run", folder, *sizes, *flags]
    if ranks == 1:
        start(command, env, PROJECT)
    else:
        job = mpirun(ranks, command, env=env)
        assert job.returncode == 0, job.stderr
    return load_run(folder)


def losses(finished):
    return [record["loss"] for record in finished.metrics() if record["event"] == "epoch"]


def test_a_source_is_a_file(added, tmp_path):
    env = added("data_prep.sources", SOURCE)
    (tmp_path / "ring.mine").write_text("0 1\n1 2\n2 3\n3 0\n")
    start([*PREP, "import", "ring.mine", "graph.h5", "--format", "mine"], env, tmp_path)
    start([*PREP, "partition", "graph.h5", "data", "--parts", "1", "--method", "contiguous"], env, tmp_path)
    dataset = open_dataset(tmp_path / "data")
    assert dataset.attributes["source_format"] == "mine"
    assert dataset.part(0).indices.tolist() == [1, 3, 0, 2, 1, 3, 0, 2]


def test_a_partition_method_is_a_file(added, tmp_path):
    env = added("data_prep.partitioning.methods", METHOD)
    start([*PREP, "synth", "graph.h5", "--vertices", "200", "--edges", "800", "--features", "1"], env, tmp_path)
    for method, seed in (("mine", 0), ("hash", 1)):
        words = ["graph.h5", method, "--parts", "4", "--method", method, "--seed", str(seed)]
        start([*PREP, "partition", *words], env, tmp_path)
    mine, other = open_dataset(tmp_path / "mine"), open_dataset(tmp_path / "hash")
    assert mine.attributes["method"] == "mine"
    for part in range(4):
        assert mine.part(part).original_id.tolist() == other.part(part).original_id.tolist()


def test_a_sampler_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.sampling.samplers", SAMPLER)
    mine = train(small_data, tmp_path / "mine", env, "--sampler", "mine", "--fanout", "1,1")
    every = train(small_data, tmp_path / "every", env, "--sampler", "node-wise", "--fanout", "all,all")
    assert losses(mine) == losses(every)


def test_a_cache_policy_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.features.policies", POLICY)
    flags = ["--strategy", "pull", "--remote", "raw", "--cache", "0.1", "--cache-policy", "mine"]
    finished = train(small_data, tmp_path / "run", env, *flags, ranks=2)
    records = {record["event"]: record for record in finished.metrics()}
    # A tenth of 240 vertices on each rank.
    assert records["banner"]["economy"]["cache"]["rows"] == 2 * 24
    assert records["epoch"]["rows"]["cached"] > 0


def test_a_merge_rule_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.plan.merging", MERGE)
    flags = ["--strategy", "leap", "--time-steps", "2", "--merge", "mine"]
    train(small_data, tmp_path / "run", env, *flags, ranks=3)
    assert "merged 3 steps into 2\n" in (tmp_path / "trace").read_text()


def test_a_command_is_a_file(added, tmp_path):
    env = added("leapmpi.cli.commands", COMMAND)
    assert "\n  mine        say a word twice\n" in start([*LEAPMPI, "--help"], env, tmp_path)
    assert start([*LEAPMPI, "mine", "hello"], env, tmp_path) == "hello hello\n"


# The interfaces of strategies, models and first-layer modes are about to change: adapt the three sources above.


def test_a_model_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.nn.models", MODEL)
    finished = train(small_data, tmp_path / "run", env, "--model", "mine")
    assert {shape for weights in finished.weights().values() for shape in weights.shape} == {5, 16, 3}


def test_a_task_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.nn.tasks", TASK)
    mine = train(small_data, tmp_path / "run", env, "--task", "mine", "--lr", "1e-30")
    plain = train(small_data, tmp_path / "plain", env, "--lr", "1e-30")
    assert losses(mine) == pytest.approx([2 * loss for loss in losses(plain)])


def test_a_metric_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.training.metrics", METRIC)
    finished = train(small_data, tmp_path / "run", env, "--metric", "mine")
    scores = [record["accuracy"]["val"] for record in finished.metrics() if record["event"] == "epoch"]
    assert (finished.summary["metric"], finished.summary["best"]["val"]) == ("mine", min(scores))


def test_a_scorer_and_a_way_to_draw_negatives_are_files(added, tmp_path, small_data):
    env = added("leapmpi.nn.scorers", SCORER, "leapmpi.sampling.negatives", NEGATIVES)
    flags = ["--task", "link", "--scorer", "mine", "--negatives", "mine"]
    finished = train(small_data, tmp_path / "run", env, *flags, ranks=1)
    assert set((tmp_path / "trace").read_text().split()) == {"drawn", "scored"}
    assert all(0 < loss < 10 for loss in losses(finished))


def test_a_strategy_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.strategies", STRATEGY)
    mine = train(small_data, tmp_path / "mine", env, "--strategy", "mine", "--dropout", "0", ranks=2)
    pull = train(small_data, tmp_path / "pull", env, "--strategy", "pull", "--dropout", "0", ranks=2)
    assert "scheduled\n" in (tmp_path / "trace").read_text()
    assert losses(mine) == pytest.approx(losses(pull), rel=1e-4)


def test_an_exchange_mode_is_a_file(added, tmp_path, small_data):
    env = added("leapmpi.engine.exchange.modes", EXCHANGE_MODE)
    train(small_data, tmp_path / "run", env, "--strategy", "pull", "--remote", "mine", ranks=2)
    assert "trained\n" in (tmp_path / "trace").read_text()
