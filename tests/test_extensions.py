"""One new file in the folder of a kind is a new member of it: each is added and used from the command line.

Jobs take seconds to start: each uses several members, and several tests read it. The files stand in folders of the
test, by which a `sitecustomize` lengthens the paths of the member folders before the program starts. To Python, that is
one more file in each member folder.
"""

import os
import sys
import textwrap

import pytest

from data_prep.cli import main as prep
from leapmpi import Config, load_run, open_dataset, train
from leapmpi.dataset.topology import load_topology
from tests.support.launch import PROJECT, child_environment, mpirun, run

LEAPMPI = [sys.executable, "-m", "leapmpi.cli"]
PREP = [sys.executable, "-m", "data_prep.cli"]
TRACE = "LEAPMPI_TEST_TRACE"

pytestmark = pytest.mark.long(20)

# The interfaces of these kinds: what a file must hold today. Keep them in step with the member folders.
SOURCE = """
    import numpy as np
    from data_prep.edges.raw_graph import RawGraph, Source

    def can_read(path):
        return path.suffix == ".mine"

    def read(path, options):
        edges = np.loadtxt(path, np.int64, ndmin=2).T
        return RawGraph(vertices=int(edges.max()) + 1, edges=edges)

    MEMBER = Source("pairs of ids, one a line", frozenset(), can_read, read)
"""
METHOD = """
    from dataclasses import replace
    from data_prep.partitioning.method_registry import PartitionMethod
    from data_prep.partitioning.methods import hash

    def partition(graph, request):
        return hash.partition(graph, replace(request, seed=request.seed + 1))

    MEMBER = PartitionMethod(partition)
"""
SAMPLER = """
    import numpy as np
    from leapmpi.config.options import SamplerMember
    from leapmpi.sampling.hop_sampler import HopSampler, indptr_of
    from leapmpi.sampling.sampler import Drawn

    class EveryNeighbour(HopSampler):
        def draw(self, key, hop, vertices, original, degree):
            topology = self.topology
            rows = [topology.indices[topology.indptr[v] : topology.indptr[v + 1]] for v in vertices]
            neighbours = np.concatenate([topology.indices[:0], *rows]).astype(np.int64)
            return Drawn(indptr_of(degree), neighbours)

    MEMBER = SamplerMember(lambda setup, options: EveryNeighbour(setup))
"""
MERGE = """
    import os
    from leapmpi.plan.merging import paper
    from leapmpi.plan.root_assignment import MergeRule

    def merge(layout, time_steps, key):
        with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
            print(f"merged {layout.steps} steps into {time_steps}", file=trace)
        return paper.merge(layout, time_steps, key)

    MEMBER = MergeRule(merge)
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
    from leapmpi.config.options import ModelMember
    from leapmpi.nn.model import stack
    from leapmpi.nn.models.sage import SAGELayer

    def build(config, layers, in_dim, out_dim):
        return stack(SAGELayer, replace(config, hidden=2 * config.hidden), layers, in_dim, out_dim)

    MEMBER = ModelMember(build)
"""
TASK = """
    from leapmpi.nn.task import TaskMember
    from leapmpi.nn.tasks.multi_class import MultiClass

    class Doubled(MultiClass):
        def loss(self, outputs, labels, weight):
            return super().loss(outputs, labels, 2 * weight)

    MEMBER = TaskMember(Doubled)
"""
METRIC = """
    from leapmpi.scoring.metric import MetricMember
    from leapmpi.scoring.metrics.accuracy import Accuracy

    class Errors(Accuracy):
        higher_is_better = False

        def value(self, counts):
            return 1 - super().value(counts)

    MEMBER = MetricMember(Errors)
"""
SCORER = """
    import os
    from leapmpi.nn.scorer import ScorerMember
    from leapmpi.nn.scorers.dot import Dot

    class Negated(Dot):
        def forward(self, source, destination):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("scored", file=trace)
            return -super().forward(source, destination)

    MEMBER = ScorerMember(lambda width: Negated())
"""
NEGATIVES = """
    import os
    import numpy as np
    from leapmpi.sampling.negative_sampler import NegativeSampler, NegativesMember

    class Next(NegativeSampler):
        def pick(self, words, rows, edges):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("drawn", file=trace)
            return (edges[rows, 1] + 1 + (words % np.uint64(99)).astype(np.int64)) % 240

    MEMBER = NegativesMember(Next)
"""
STRATEGY = """
    import os
    from dataclasses import replace
    from leapmpi.strategies import leap

    class Backwards(leap.Leap):
        def schedule(self, batch, epoch, iteration, time_steps=None):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("scheduled", file=trace)
            return super().schedule(batch[::-1].copy(), epoch, iteration, time_steps)

    MEMBER = replace(leap.MEMBER, placement=Backwards)
"""
EXCHANGE_MODE = """
    import os
    from leapmpi.exchange.mode import ModeMember
    from leapmpi.exchange.modes.raw import Raw

    class Traced(Raw):
        def train(self, minibatch, number, labels):
            with open(os.environ["LEAPMPI_TEST_TRACE"], "a") as trace:
                print("trained", file=trace)
            return super().train(minibatch, number, labels)

    MEMBER = ModeMember(Traced)
"""

FILES = {
    "data_prep.sources": SOURCE,
    "data_prep.partitioning.methods": METHOD,
    "leapmpi.sampling.samplers": SAMPLER,
    "leapmpi.plan.merging": MERGE,
    "leapmpi.cli.commands": COMMAND,
    "leapmpi.nn.models": MODEL,
    "leapmpi.nn.tasks": TASK,
    "leapmpi.scoring.metrics": METRIC,
    "leapmpi.nn.scorers": SCORER,
    "leapmpi.sampling.negatives": NEGATIVES,
    "leapmpi.strategies": STRATEGY,
    "leapmpi.exchange.modes": EXCHANGE_MODE,
}

SITECUSTOMIZE = """
import importlib
for package, folder in {found!r}.items():
    importlib.import_module(package).__path__.append(folder)
"""


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """The environment in which programs find every file above in the folder of its kind, as `mine`."""
    base = tmp_path_factory.mktemp("added")
    site, found = base / "site", {}
    site.mkdir()
    for package, source in FILES.items():
        found[package] = str(base / package)
        (base / package).mkdir()
        (base / package / "mine.py").write_text(textwrap.dedent(source))
    (site / "sitecustomize.py").write_text(SITECUSTOMIZE.format(found=found))
    return {"PYTHONPATH": os.pathsep.join([str(site), child_environment()["PYTHONPATH"]]), TRACE: str(base / "trace")}


def start(command, env, cwd):
    """Run `command`, which must succeed, and return what it printed."""
    job = run([str(word) for word in command], 100, child_environment(env), cwd)
    assert job.returncode == 0, job.stderr
    return job.stdout


def train_mine(data, folder, env, *flags, ranks=1):
    """Train with members that were added; returns the run and the lines that they traced."""
    env = {**env, TRACE: str(folder.with_suffix(".trace"))}
    words = ["train", data, "--run", folder, "--epochs", "2", "--batch-size", "32", "--threads", "1", *flags]
    if ranks == 1:
        start([*LEAPMPI, *words], env, PROJECT)
    else:
        job = mpirun(ranks, [*LEAPMPI, *words], env=env)
        assert job.returncode == 0, job.stderr
    trace = folder.with_suffix(".trace")
    return load_run(folder), trace.read_text().splitlines() if trace.exists() else []


def train_plain(data, folder, **values):
    """Train in this process, with no member but those that come with leapmpi."""
    place = {"data": str(data), "run": {"folder": str(folder), "threads": 1, "log_level": "error"}}
    return train(Config.from_values({**place, "train": {"epochs": 2, "batch_size": 32}, **values}))


def losses(finished):
    return [record["loss"] for record in finished.metrics() if record["event"] == "epoch"]


@pytest.fixture(scope="module")
def ring(added, tmp_path_factory):
    """A folder with a graph that the source has read: a ring of 40 vertices."""
    folder = tmp_path_factory.mktemp("ring")
    (folder / "ring.mine").write_text("".join(f"{v} {(v + 1) % 40}\n" for v in range(40)))
    start([*PREP, "import", "ring.mine", "graph.h5", "--format", "mine"], added, folder)
    return folder


def partition(folder, name, parts, method, seed=0):
    """Cut the graph in `folder` in this process."""
    words = [str(folder / "graph.h5"), str(folder / name), "--parts", str(parts), "--method", method]
    assert prep(["partition", *words, "--seed", str(seed)]) == 0
    return open_dataset(folder / name)


def test_a_source_is_a_file(ring):
    dataset = partition(ring, "whole", 1, "contiguous")
    assert dataset.attributes["source_format"] == "mine"
    topology = load_topology(dataset)
    for v in range(40):
        assert sorted(topology.indices[topology.indptr[v] : topology.indptr[v + 1]]) == sorted(
            [(v - 1) % 40, (v + 1) % 40]
        )


def test_a_partition_method_is_a_file(added, ring):
    start([*PREP, "partition", "graph.h5", "mine", "--parts", "4", "--method", "mine", "--seed", "0"], added, ring)
    mine, other = open_dataset(ring / "mine"), partition(ring, "hash", 4, "hash", seed=1)
    assert mine.attributes["method"] == "mine"
    for part in range(4):
        assert mine.part(part).original_id.tolist() == other.part(part).original_id.tolist()


def test_a_command_is_a_file(added, tmp_path):
    assert "\n  mine        say a word twice\n" in start([*LEAPMPI, "--help"], added, tmp_path)
    assert start([*LEAPMPI, "mine", "hello"], added, tmp_path) == "hello hello\n"


@pytest.fixture(scope="module")
def one_rank(added, small_data, tmp_path_factory):
    """A run of one rank, and one without added members that does the same; nothing is learned in them."""
    folder = tmp_path_factory.mktemp("one")
    flags = ["--sampler", "mine", "--model", "mine", "--task", "mine", "--lr", "1e-30"]
    mine, _ = train_mine(small_data, folder / "mine", added, *flags, "--hidden", "8", "--fanout", "1,1")
    values = {"train": {"epochs": 2, "batch_size": 32, "lr": 1e-30}, "sampling.fanout": "all,all", "model.hidden": 16}
    return mine, train_plain(small_data, folder / "plain", **values)


def test_a_sampler_and_a_task_are_files(one_rank):
    mine, plain = one_rank
    # The sampler takes all neighbours, the task doubles the loss.
    assert losses(mine) == [2 * loss for loss in losses(plain)]


def test_a_model_is_a_file(one_rank):
    mine, _ = one_rank
    assert {shape for weights in mine.weights().values() for shape in weights.shape} == {5, 16, 3}


def test_a_scorer_and_a_way_to_draw_negatives_are_files(added, tmp_path, small_data):
    flags = ["--task", "link", "--scorer", "mine", "--negatives", "mine", "--hidden", "8"]
    finished, trace = train_mine(small_data, tmp_path / "run", added, *flags)
    assert set(trace) == {"drawn", "scored"}
    assert all(0 < loss < 10 for loss in losses(finished))


@pytest.fixture(scope="module")
def three_ranks(added, small_data, tmp_path_factory):
    """A run of three ranks, and the lines that were traced."""
    flags = ["--strategy", "mine", "--time-steps", "2", "--merge", "mine", "--remote", "mine", "--dropout", "0"]
    flags += ["--metric", "mine", "--hidden", "8"]
    return train_mine(small_data, tmp_path_factory.mktemp("three") / "run", added, *flags, ranks=3)


def test_a_strategy_is_a_file(three_ranks, small_data, tmp_path):
    finished, trace = three_ranks
    assert "scheduled" in trace
    plain = train_plain(small_data, tmp_path / "plain", **{"model.hidden": 8, "model.dropout": 0.0})
    assert losses(finished) == pytest.approx(losses(plain), rel=1e-4)


def test_a_merge_rule_and_an_exchange_mode_are_files(three_ranks):
    _, trace = three_ranks
    assert {"merged 3 steps into 2", "trained"} <= set(trace)


def test_a_metric_is_a_file(three_ranks):
    finished, _ = three_ranks
    scores = [record["accuracy"]["val"] for record in finished.metrics() if record["event"] == "epoch"]
    assert (finished.summary["metric"], finished.summary["best"]["val"]) == ("mine", min(scores))
