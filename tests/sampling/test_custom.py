"""Custom samplers: GraphSAGE id for id, all that a class may set, and one sentence for each mistake."""

import numpy as np
import pytest

from leapmpi.config.flags import config_from
from leapmpi.config.schema import Config
from leapmpi.config.sections import SamplingConfig
from leapmpi.config.sweep_file import read_sweep
from leapmpi.errors import ConfigError
from leapmpi.sampling.construction.build import build_sampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.user_samplers import compile, samplers
from leapmpi.sampling.user_samplers.api import NONE, OwnSampler, below
from leapmpi.sampling.user_samplers.samplers import custom_sampler
from leapmpi.system.counter_rng import fold
from tests.support import twin
from tests.support.kinds import KEY, weighted_edges

pytestmark = pytest.mark.compiles

GRAPH_SAGE = "tests/support/graph_sage.py:GraphSage"


@pytest.fixture(scope="module")
def topology():
    return twin.random_topology(90, 2200, seed=4, hubs=3.0)


@pytest.fixture
def uncompiled(monkeypatch):
    """Run the user's functions as they are: compiling takes seconds for each class."""
    for module in (compile, samplers):
        monkeypatch.setattr(module, "compile_uncached", lambda function: function)
        monkeypatch.setattr(module, "compile_checked", lambda function: function)
        # Called from Python, compiled functions return plain integers.
        monkeypatch.setattr(module, "fold", lambda base, word: np.uint64(fold(base, np.uint64(word))))


def made(custom, topology, fanouts=(4, 3), threads=1):
    return custom_sampler(Setup(topology, fanouts, np.arange(topology.vertices), 0, threads), custom, named(custom))


def named(custom):
    return SamplingConfig(sampler=f"mine.py:{custom.__name__}")


class First(OwnSampler):
    """The first in-neighbours."""

    def next(neighbours, number, size, drawn, word):
        return neighbours[number]


class Anyhow(OwnSampler):
    """Independent draws, one in four left out."""

    sizes = (6, 5)
    unique = False

    def next(neighbours, number, size, drawn, word):
        return NONE if below(word, 4) == 0 else neighbours[below(word, len(neighbours))]


class Distinct(OwnSampler):
    """Drawn again until new; only vertices with an even name draw at the second step."""

    def next(neighbours, number, size, drawn, word):
        return neighbours[below(word, len(neighbours))]

    def transit(step, vertex, degree):
        return step == 0 or vertex % 2 == 0


class Together(Distinct):
    """Ten vertices for all transits of a step."""

    sizes = (10, 10)
    collective = True


def test_graph_sage_is_the_built_in_sampler_id_for_id(topology):
    values = {"sampling.sampler": GRAPH_SAGE, "sampling.fanout": "25,10"}
    roots = np.arange(0, 90, 4)
    built_in = NodeWiseSampler(topology, (25, 10)).sample(KEY, roots)
    custom = build_sampler(Config.from_values(values), topology, roots, threads=2).sample(KEY, roots)
    for block, same in zip(built_in, custom, strict=True):
        assert block.src.tolist() == same.src.tolist()
        assert block.indptr.tolist() == same.indptr.tolist()
        assert block.indices.tolist() == same.indices.tolist()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("custom", [First, Anyhow, Distinct, Together])
def test_draws_are_neighbours_and_depend_on_nothing_else(custom, topology):
    sampler, roots = made(custom, topology), np.arange(0, 90, 7)
    blocks = sampler.sample(KEY, roots)
    for block, size in zip(blocks, sampler.fanouts, strict=True):
        for i, v in enumerate(block.dst):
            drawn = block.src[block.indices[block.indptr[i] : block.indptr[i + 1]]]
            assert np.isin(drawn, topology.indices[topology.indptr[v] : topology.indptr[v + 1]]).all()
            assert len(drawn) <= size
            assert custom is Anyhow or len(set(drawn.tolist())) == len(drawn)
    new_id = np.random.default_rng(3).permutation(90)
    other = twin.renumbered(topology, new_id)
    edges = weighted_edges(blocks, topology).tolist()
    assert edges == weighted_edges(made(custom, other, threads=2).sample(KEY, new_id[roots]), other).tolist()
    apart = [weighted_edges(sampler.sample(KEY, roots[part::3], roots), topology) for part in range(3)]
    assert np.unique(np.concatenate(apart), axis=0).tolist() == np.unique(edges, axis=0).tolist()


@pytest.mark.usefixtures("uncompiled")
def test_what_a_class_says_is_done(topology):
    first, skipping, distinct, together = (
        made(custom, topology).sample(KEY, np.arange(0, 90, 7)) for custom in (First, Anyhow, Distinct, Together)
    )
    row = topology.indices[: topology.indptr[1]]
    assert first[0].src[first[0].indices[: first[0].indptr[1]]].tolist() == row[:4].tolist()
    assert np.diff(skipping[0].indptr).max() > np.diff(skipping[0].indptr).min()
    odd = distinct[1].src_original[: distinct[1].n_dst] % 2 == 1
    assert odd.any()
    assert (np.diff(distinct[1].indptr)[odd] == 0).all()
    assert (np.diff(distinct[1].indptr)[~odd] == np.minimum(3, distinct[1].src_degree[: distinct[1].n_dst][~odd])).all()
    assert len(np.unique(together[0].src[together[0].indices])) == 10


class Stranger(OwnSampler):
    """Names a vertex that is not a neighbour."""

    def next(neighbours, number, size, drawn, word):
        return neighbours[-1] + 1


class Stubborn(OwnSampler):
    """Always the same vertex."""

    def next(neighbours, number, size, drawn, word):
        return neighbours[0]


class Failing(OwnSampler):
    """Raises."""

    def next(neighbours, number, size, drawn, word):
        return neighbours[number // 0]


class Fickle(OwnSampler):
    """Random by itself."""

    def next(neighbours, number, size, drawn, word):
        return neighbours[np.random.randint(len(neighbours))]


class WrongCount(First):
    """Three steps."""

    sizes = (3, 2, 1)


class NoCount(First):
    """Sizes that are none."""

    sizes = (3, 0)


class TogetherAnyhow(First):
    """Options that exclude each other."""

    collective, unique = True, False


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("custom", "sentence"),
    [
        (Stranger, r"mine.py:Stranger: next returned \d+, which is not an in-neighbour of vertex \d+"),
        (Stubborn, r"keeps returning \d+, which is drawn already; 4 distinct"),
        (Failing, "mine.py:Failing: it raised ZeroDivisionError"),
        (Fickle, "a second call draws other vertices"),
        (WrongCount, "it has 3 steps, but --fanout names 2 layers; add --fanout 3,2,1"),
        (NoCount, r"sizes is \(3, 0\); give positive whole numbers"),
        (TogetherAnyhow, "keep unique = True"),
    ],
)
def test_mistakes_get_a_sentence(custom, sentence, topology):
    with pytest.raises(ConfigError, match=sentence) as caught:
        made(custom, topology)
    assert "\n" not in str(caught.value)


def test_what_numba_cannot_compile_gets_a_sentence(topology):
    class Uncompilable(OwnSampler):
        def next(neighbours, number, size, drawn, word):
            return neighbours.no_such_thing(number)

    with pytest.raises(ConfigError, match="numba cannot compile it: TypingError") as caught:
        made(Uncompilable, topology)
    assert "\n" not in str(caught.value)


def test_a_next_that_returns_nothing_gets_a_sentence(topology):
    class Mute(OwnSampler):
        def next(neighbours, number, size, drawn, word):
            neighbours[0] + 1

    with pytest.raises(ConfigError, match="next returns nothing; return one of neighbours, or NONE"):
        made(Mute, topology)


RAISING = """\
from leapmpi.sampling.user_samplers.api import OwnSampler

class Always(OwnSampler):
    def next(neighbours, number, size, drawn, word):
        raise ValueError("no such luck")

class Sometimes(OwnSampler):
    def next(neighbours, number, size, drawn, word):
        if number == 1:
            raise ValueError("no such luck")
        return neighbours[number]

class Transit(Sometimes):
    def transit(step, vertex, degree):
        raise ValueError("no such luck")

class Outside(OwnSampler):
    def next(neighbours, number, size, drawn, word):
        return neighbours[len(neighbours) + size]

class Mute(Sometimes):
    def transit(step, vertex, degree):
        step + vertex
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Always", "it raised ValueError: no such luck, at mine.py, line 5, in next"),
        ("Sometimes", "it raised ValueError: no such luck, at mine.py, line 10, in next"),
        ("Transit", "it raised ValueError: no such luck, at mine.py, line 15, in transit"),
        ("Outside", "it raised IndexError: index is out of bounds, in next, which begins at mine.py, line 18"),
        ("Mute", "transit returns nothing; return True or False"),
    ],
)
@pytest.mark.parametrize("as_module", [False, True])
def test_an_exception_of_the_user_is_named_with_its_line(tmp_path, monkeypatch, topology, name, sentence, as_module):
    (tmp_path / "mine.py").write_text(RAISING)
    monkeypatch.syspath_prepend(tmp_path)
    config = SamplingConfig(sampler=f"{'mine' if as_module else tmp_path / 'mine.py'}:{name}")
    with pytest.raises(ConfigError) as caught:
        custom_sampler(Setup(topology, (4, 3), np.arange(90), 0, 1), compile.load_custom(config.sampler), config)
    assert str(caught.value) == f"--sampler {config.sampler}: {sentence}"


IMPORT = "from leapmpi.sampling.user_samplers.api import OwnSampler\n"


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        (IMPORT + "class A(OwnSampler): sizes = (2,)", "A", r"A: the class defines no next\(neighbours, number, size,"),
        (
            IMPORT + "class A(OwnSampler):\n  def next(a, b): return a[0]",
            "A",
            r"next does not take \(neighbours, number, ",
        ),
        (None, "A", "there is no file"),
        ("1 +", "A", "cannot be loaded: SyntaxError"),
        ("raise OSError('no')", "A", "cannot be loaded: OSError: no"),
        ("A = 3", "A", "has no class A made from"),
        (
            "from leapmpi.sampling.user_samplers.api import OwnSampler",
            "OwnSampler",
            "has no class OwnSampler made from",
        ),
    ],
)
def test_files_without_a_sampler_get_a_sentence(tmp_path, text, name, sentence):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        compile.load_custom(f"{path}:{name}")


class Arguments:
    """Parsed flags: none but --config and what is given."""

    def __init__(self, config, **flags):
        self.config, self.set, self.data = str(config), flags.pop("set", []), None
        vars(self).update(flags)


def test_code_runs_only_when_the_command_line_names_it(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('[sampling]\nsampler = "mine.py:Mine"\n')
    with pytest.raises(ConfigError, match=r"add --sampler mine\.py:Mine"):
        config_from(Arguments(file))
    for flags in ({"sampling.sampler": "mine.py:Mine"}, {"set": ["sampling.sampler=mine.py:Mine"]}):
        assert config_from(Arguments(file, **flags)).sampling.sampler == "mine.py:Mine"
    with pytest.raises(ConfigError, match="unknown"):
        Config.from_values({"sampling.sampler": "mine.py"})


def test_a_sweep_file_names_no_code(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text('[sweep]\nsampling.sampler = ["node-wise", "mine.py:Mine"]\n')
    with pytest.raises(ConfigError, match="code runs only when --sampler names it"):
        read_sweep(file)
