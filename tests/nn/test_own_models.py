"""Users' own modules: PyG's layers give what they give on the whole graph; mistakes get a sentence."""

import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from leapmpi.cli.commands.evaluate import with_code
from leapmpi.config.schema import Config
from leapmpi.config.sections import ModelConfig
from leapmpi.errors import ConfigError
from leapmpi.nn.model import build_model, settings_without_effect
from leapmpi.nn.own.batch_check import examine
from leapmpi.nn.own.block_graph import BlockGraph
from leapmpi.nn.tensors import to_tensors
from leapmpi.runs.run import load_run
from leapmpi.sampling.edge_lookup import EdgeDataSampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey
from tests.support import twin
from tests.support.launch import PROJECT, mpirun

pyg = pytest.importorskip("torch_geometric", reason="torch_geometric is not installed: pip install 'leapmpi[pyg]'")

from tests.support.pyg_layers import COUNTING, LAYERS, ON_EDGES  # noqa: E402

PYG_LAYERS = PROJECT / "tests/support/pyg_layers.py"
README = PROJECT / "leapmpi/nn/README.md"
KEY = DrawKey(TRAIN, 0, 0, 0)
FEATURES, CLASSES = 6, 3
TOPOLOGY = twin.random_topology(90, 700, seed=4)
ROWS = torch.randn(TOPOLOGY.vertices, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
ROOTS = np.arange(0, 40, 3)


def built(name, fanouts=(3, 2), dtype=torch.float64, edge_dim=0, **settings):
    config = ModelConfig(name=str(name), hidden=8, **{"dropout": 0.4} | settings)
    return build_model(config, len(fanouts), FEATURES, CLASSES, 0, dtype, edge_dim)


def sample(roots, fanouts=(3, 2), rows=ROWS):
    blocks = NodeWiseSampler(TOPOLOGY, fanouts, 1).sample(KEY, roots)
    return [to_tensors(block) for block in blocks], rows[blocks[-1].src]


def examined(model, fanouts=(3, 2), rows=ROWS):
    return examine(model, sample(ROOTS, fanouts, rows), [sample(ROOTS[n::2], fanouts, rows) for n in (0, 1)], KEY)


@pytest.mark.parametrize("name", sorted(set(LAYERS) - set(COUNTING)))
def test_a_layer_gives_what_it_gives_on_the_whole_graph_and_does_not_see_where_roots_are(name):
    model = built(f"{PYG_LAYERS}:{name}")
    logits = model(*sample(ROOTS, (-1, -1)))
    target = np.repeat(np.arange(TOPOLOGY.vertices), np.diff(TOPOLOGY.indptr))
    edge_index = torch.from_numpy(np.stack([TOPOLOGY.indices, target])).long()
    # The module as it is, without blocks.
    whole = model.module.eval()(ROWS, edge_index)[ROOTS]
    torch.testing.assert_close(logits, whole, rtol=1e-10, atol=1e-12)
    assert examined(model) == []


OF_EDGES = np.random.default_rng(5).standard_normal((len(TOPOLOGY.indices), 3))
WEIGHT = np.random.default_rng(6).integers(0, 5, len(TOPOLOGY.indices)).astype(np.float32) / 2
SUMS = np.array([WEIGHT[a:b].sum() for a, b in pairwise(TOPOLOGY.indptr)], np.float64)
CARRYING = replace(TOPOLOGY, edge_weight=WEIGHT, weight_sum=SUMS)


def carrying(roots, fanouts=(3, 2)):
    """As `sample`, of edges with weights and features."""
    blocks = EdgeDataSampler(NodeWiseSampler(CARRYING, fanouts, 1)).sample(KEY, roots)
    features = (torch.from_numpy(OF_EDGES[block.edge_numbers]) for block in blocks)
    tensors = [replace(to_tensors(block), edge_features=next(features)) for block in blocks]
    return tensors, ROWS[blocks[-1].src]


@pytest.mark.parametrize("name", ON_EDGES)
def test_what_edges_carry_reaches_layers_as_on_the_whole_graph(name):
    model = built(f"{PYG_LAYERS}:{name}OnEdges", edge_dim=3)
    assert model.layers[0].edge_data == ("edge_weight", "edge_features")
    target = np.repeat(np.arange(TOPOLOGY.vertices), np.diff(TOPOLOGY.indptr))
    edge_index = torch.from_numpy(np.stack([TOPOLOGY.indices, target])).long()
    carried = torch.from_numpy(OF_EDGES), torch.from_numpy(WEIGHT).double()
    logits, whole = model(*carrying(ROOTS, (-1, -1))), model.module.eval()(ROWS, edge_index, *carried)[ROOTS]
    torch.testing.assert_close(logits, whole, rtol=1e-10, atol=1e-12)
    assert examine(model, carrying(ROOTS), [carrying(ROOTS[n::2]) for n in (0, 1)], KEY) == []


def test_edges_weigh_as_the_dataset_and_the_sampler_say():
    blocks, _ = carrying(ROOTS)
    drawn = torch.full((len(blocks[0].edges.indices),), 3.0)
    both = BlockGraph(replace(blocks[0], weight=drawn), torch.float64).edge_weight
    torch.testing.assert_close(both, 3 * blocks[0].edge_weight.double())
    assert BlockGraph(replace(blocks[0], weights=None), torch.float64).edge_weight is None


def test_edges_that_carry_nothing_are_told_to_a_model_that_wants_something(tmp_path):
    with pytest.raises(ConfigError, match="wants 'edge_dim', but the edges of this dataset have no features"):
        built(f"{PYG_LAYERS}:GINEConvOnEdges")
    head, _, tail = HEAD.replace("BODY", "        return self.b(h, edge_index)").partition("EXTRA")
    for argument, sentence in (
        ("edge_attr", "forward wants edge_attr, but the edges of this dataset have no features"),
        ("edge_weight", "forward wants edge_weight, but neither the edges of this dataset nor the sampler"),
    ):
        path = tmp_path / f"{argument}.py"
        path.write_text(head + tail.replace("edge_index):", f"edge_index, {argument}):"))
        with pytest.raises(ConfigError, match=sentence):
            built(f"{path}:Net")(*sample(ROOTS))


def test_degrees_that_are_counted_inside_a_block_are_told():
    (sentence,) = examined(built(f"{PYG_LAYERS}:SGConv"))
    assert "layers.0 (SGConv) gives a vertex other values among other vertices" in sentence


def test_a_sampled_block_gives_what_a_plain_loop_over_pyg_gives():
    model = built(f"{PYG_LAYERS}:TransformerConv", dropout=0.0)
    blocks, rows = sample(ROOTS)
    logits, h = model(blocks, rows), rows
    for number, block in enumerate(reversed(blocks)):
        target = torch.arange(block.n_dst).repeat_interleave(block.edges.counts)
        edge_index = torch.stack([block.edges.indices.long(), target])
        h = model.module.layers[number]((h, h[: block.n_dst]), edge_index)
        h = torch.nn.functional.elu(h) if number == 0 else h + model.module.skip(rows[: len(ROOTS)])
    torch.testing.assert_close(logits, h, rtol=1e-12, atol=1e-12)


def test_parameters_bear_the_modules_names_and_depend_on_the_seed_alone():
    one, other = built(f"{PYG_LAYERS}:GATConv"), built(f"{PYG_LAYERS}:GATConv", dtype=torch.float32)
    assert [name for name, _ in one.named_parameters()] == list(one.module.state_dict())
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b.double())
    config = ModelConfig(name=f"{PYG_LAYERS}:GATConv", hidden=8)
    third = build_model(config, 2, FEATURES, CLASSES, 1)
    assert not torch.equal(next(third.parameters()), next(other.parameters()))


def test_pygs_own_models_are_named_by_their_module():
    for name in ("GraphSAGE", "GCN", "GAT"):
        assert examined(built(f"torch_geometric.nn.models:{name}")) == []
    why = settings_without_effect([Config.from_values({"model.name": "torch_geometric.nn.models:GCN"})])
    assert "norm" in why
    assert "hidden" not in why
    assert "missing_features" not in why


HOOK = "h = self.b(h, edge_index); h.requires_grad and h.register_hook(lambda g: g.nothing); return h"
HEAD = """
import torch, torch.nn.functional as F
from torch import nn
class Mean(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin, self.own = nn.Linear(i, o), nn.Linear(i, o)
    def forward(self, x, edge_index):
        source, target = edge_index
        sums = x.new_zeros(len(x), x.shape[1]).index_add(0, target, x[source])
        return self.own(x) + self.lin(sums)
class Net(nn.Module):
    def __init__(self, in_channels, hidden, num_classes, dropout=0.5):
        super().__init__()
        self.a, self.b, self.p = Mean(in_channels, hidden), Mean(hidden, num_classes), dropout
EXTRA    def forward(self, x, edge_index):
        h = F.relu(self.a(x, edge_index))
BODY
"""


@pytest.mark.parametrize(
    ("extra", "body", "sentence"),
    [
        ("", "return self.b(F.dropout(h, self.p, self.training) + h, edge_index)", None),
        ("", "return torch.cat([self.b(h, edge_index), h], 1)[:, :3]", None),
        (
            "self.n = nn.BatchNorm1d(hidden)",
            "return self.b(self.n(h), edge_index)",
            r"n \(BatchNorm1d\) gives a vertex",
        ),
        (
            "",
            "return self.b(h + torch.rand_like(h), edge_index)",
            r"time steps: numbers are drawn by rand_like in forward \(Net\) \(the",
        ),
        ("", "return self.b(h - h.mean(0), edge_index)", r"forward \(Net\) gives a vertex other values"),
    ],
)
def test_what_depends_on_other_roots_is_told(tmp_path, extra, body, sentence):
    found = examined(built(written(tmp_path, extra, body)))
    assert (found == []) if sentence is None else re.search(sentence, found[0])


@pytest.mark.parametrize(
    ("extra", "body", "sentence"),
    [
        ("", "return self.b(x, edge_index)", r"RuntimeError: .*at net\.py, line \d+, in forward in b\.own \(Linear\)"),
        ("", "return h.nothing", r"'Tensor' object has no attribute 'nothing', at net\.py, line 19, in forward$"),
        (
            "",
            "out = self.b(h, edge_index); out.requires_grad and out.register_hook(lambda g: g.nothing); return out",
            r"backward raised .*in <lambda>$",
        ),
        ("", "raise SystemExit(0)", "forward raised SystemExit: 0"),
        ("", "raise GeneratorExit('bye')", r"forward raised GeneratorExit: bye, at net\.py, line 19, in forward$"),
        ("", "raise BaseException('bye')", r"forward raised BaseException: bye, at net\.py, line 19, in forward$"),
        ("raise GeneratorExit('bye')", "return h", r"__init__ raised GeneratorExit: bye, at net\.py, line 16"),
        ("", "return self.b(h, edge_index.flip(0))", r"b \(Mean\) gets an edge_index other than the one"),
        ("", "return self.b(self.b(h, edge_index), edge_index)", "RuntimeError|message passing number 3"),
        ("", "return h", "passes messages 1 time, but --fanout names 2 layers"),
        ("", "return self.b(h, edge_index)[:2]", r"returned \[2, 3\] for 3 roots of 3 classes"),
        ("", "return [self.b(h, edge_index)]", "returned list and not a tensor"),
        ("", "return self.b(h, edge_index) * 1j", "returned numbers of type complex"),
        ("", "return self.b(h, edge_index).detach()", "returned a tensor through which no gradient flows"),
        ("", "return self.b(torch.log(h - 9), edge_index)", r"log in forward \(Net\) gives values that are infinite"),
        (
            "self.n = nn.Linear(2, 2)",
            "return self.b(h, edge_index)",
            r"parameter n\.weight \(and 1 more\) gets no gradie",
        ),
        (
            "self.a.lin.weight.requires_grad_(False)",
            "return self.b(h, edge_index)",
            r"a\.lin\.weight takes no gradient",
        ),
        (
            "self.register_buffer('c', torch.zeros(1))",
            "self.c += 1; return self.b(h, edge_index)",
            "writes the buffer c",
        ),
        (
            "self.register_buffer('c', torch.zeros(1))",
            "self.c += self.training; return self.b(h, edge_index)",
            "writes the buffer c",
        ),
        (
            "self.register_buffer('c', torch.zeros(1))",
            "self.c.fill_(0); return self.b(h, edge_index)",
            "writes the buffer c",
        ),
        ("", "self.register_buffer('c', h.detach()); return self.b(h, edge_index)", "writes the buffer c"),
        (
            "",
            "self.training and self.register_buffer('c', h.detach()); return self.b(h, edge_index)",
            "writes the buffer c",
        ),
        (
            "",
            "self.c = nn.Parameter(torch.zeros(1)); return self.b(h + self.c, edge_index)",
            "makes the parameter c, which would not be trained",
        ),
        (
            "self.register_buffer('c', torch.zeros(1))",
            "self.c.data.add_(1); return self.b(h, edge_index)",
            "writes the buffer c",
        ),
        (
            "self.n = nn.LazyBatchNorm1d()",
            "return self.b(self.n(h).nothing, edge_index)",
            "'Tensor' object has no attribute 'nothing'",
        ),
        (
            "self.a.lin = torch.nn.utils.parametrizations.spectral_norm(self.a.lin)",
            "return self.b(h, edge_index)",
            r"writes the buffer a\.lin\.parametrizations\.weight\.0\._[uv]",
        ),
        (
            "self.kept = 0",
            "h = h + self.kept; self.kept = h.mean() if self.training else 0; return self.b(h, edge_index)",
            "backward raised RuntimeError: Trying to backward through the graph a second time",
        ),
        ("self.nothing.x = 1", "return h", r"__init__ raised AttributeError: .*line 16, in __init__"),
    ],
)
def test_a_mistake_in_a_module_gets_a_sentence(tmp_path, extra, body, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        examined(built(written(tmp_path, extra, body)))
    assert "--model" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_hook_of_later_steps_gets_a_sentence_too(tmp_path):
    model = built(
        written(
            tmp_path,
            "",
            "out = self.b(h, edge_index); out.requires_grad and out.register_hook(lambda g: g.nothing); return out",
        )
    )
    with pytest.raises(ConfigError, match=r"--model .*: backward raised AttributeError: .*, at net\.py, line \d+"):
        model.backward(model(*sample(ROOTS)).sum())


def test_a_forward_that_enables_gradients_gives_rows_without_one_where_none_is_wanted(tmp_path):
    inside = "torch.set_grad_enabled(True); out = self.b(h, edge_index); torch.set_grad_enabled(False); return out"
    model = built(written(tmp_path, "", inside))
    with torch.no_grad():
        assert not model(*sample(ROOTS)).requires_grad


def test_the_working_directory_of_a_module_is_its_own_and_streams_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/found").touch()
    model = built(
        written(
            tmp_path,
            "import os; os.chdir('inside')",
            "import os, sys; assert os.path.exists('found'); sys.stdout = sys.stderr = None; return self.b(h, "
            "edge_index)",
        )
    )
    streams = sys.stdout, sys.stderr
    for _ in range(2):
        model(*sample(ROOTS))
        assert Path.cwd() == tmp_path
        assert (sys.stdout, sys.stderr) == streams


MISCHIEF = """
import os, sys, torch
os.chdir("/")
class Net(torch.nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin, self.runs = torch.nn.Linear(in_channels, out_channels), 0
    def forward(self, x, adjs):
        os.chdir("/tmp")
        sys.stdout.close()
        sys.stdout = sys.stderr = None
        self.runs += 1
        if self.runs > 9:
            END
        return self.lin(x[: adjs[-1][2][1]])
"""


@pytest.mark.long(60)
@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("raise GeneratorExit('bye')", 2)])
def test_what_a_module_does_to_the_process_does_the_job_no_harm(tmp_path, small_data, end, code):
    (tmp_path / "net.py").write_text(MISCHIEF.replace("END", end))
    (tmp_path / "data").symlink_to(small_data)
    words = "train data --run run --epochs 4 --model net.py:Net --batch-size 64 --device cpu"
    job = mpirun(2, [sys.executable, "-m", "leapmpi.cli", *words.split()], cwd=tmp_path)
    assert job.returncode == code, job.stderr
    assert "Traceback" not in job.stderr
    run = load_run(tmp_path / "run")
    assert run.finished == (code == 0)
    if code:
        assert "forward raised GeneratorExit: bye, at net.py, line 14, in forward" in job.stderr
        assert "forward raised GeneratorExit: bye" in run.failure["why"]
    else:
        assert "finished in" in job.stdout


def test_a_lack_of_memory_is_not_the_module_s_mistake(tmp_path):
    model = built(
        written(
            tmp_path,
            "",
            "out = self.b(h, edge_index); "
            "out.requires_grad and out.register_hook(lambda g: torch.empty(1 << 60)); return out",
        )
    )
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        model.backward(model(*sample(ROOTS)).sum())


def test_a_buffer_made_in_inference_mode_is_read(tmp_path):
    # Torch counts no writes to it, and refuses them.
    made = "with torch.inference_mode(): kept = torch.ones(1)\n        self.register_buffer('kept', kept)"
    model = built(written(tmp_path, made, "return self.b(h + self.kept, edge_index)"))
    assert torch.isfinite(model(*sample(ROOTS))).all()


@pytest.mark.parametrize(
    ("late", "sentence"),
    [
        ("self.register_buffer('c', torch.zeros(1))", "writes the buffer c"),
        ("self.c = nn.Parameter(torch.zeros(1))", "makes the parameter c"),
        ("self.kept.add_(1)", "writes the buffer kept"),
        ("self.kept = self.kept + 1", "writes the buffer kept"),
    ],
)
def test_a_module_that_changes_in_a_later_run_gets_a_sentence(tmp_path, late, sentence):
    body = f"self.late and exec({late!r}); return self.b(h, edge_index)"
    model = built(written(tmp_path, "self.late = False; self.register_buffer('kept', torch.zeros(1))", body))
    model(*sample(ROOTS))
    model.module.late = True
    with pytest.raises(ConfigError, match=sentence):
        model(*sample(ROOTS))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "there is no file"),
        ("def f(:", "cannot be loaded: SyntaxError"),
        ("class Other: pass", "defines no Net"),
        ("import torch\nclass Net(torch.nn.Module):\n    def __init__(self, foo): pass", "wants an argument 'foo'"),
        ("import torch\nclass Net(torch.nn.Linear):\n    def __init__(self): super().__init__(2, 2)", "forward takes"),
        (
            "import torch\nclass Net(torch.nn.Module):\n    def __init__(self): super().__init__()",
            "has no method forward",
        ),
        ("def Net(): return 3", "it made one of type int"),
        ("raise SystemExit", "cannot be loaded: SystemExit"),
        ("Net = 3", "name a class or a function"),
    ],
)
def test_what_is_no_module_gets_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "net.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        built(f"{path}:Net")


def test_a_file_without_a_class_gets_a_sentence():
    with pytest.raises(ConfigError, match=r"name the class in the file too, as in net\.py:CLASS"):
        built("net.py")


def written(folder, extra, body):
    text = HEAD.replace("EXTRA", f"        {extra or 'pass'}\n").replace("BODY", f"        {body}")
    (folder / "net.py").write_text(text)
    return f"{folder / 'net.py'}:Net"


def examples():
    """The Python blocks of the README's section for plain graphs, with the names of what they define."""
    section = README.read_text().split("## Your own model")[1].split("\n## ")[0]
    blocks = [each for each in re.findall(r"```python\n(.*?)```", section, re.DOTALL) if "x_dict" not in each]
    return [(re.findall(r"^(?:class|def) (\w+)", block, re.MULTILINE)[-1], block) for block in blocks]


@pytest.mark.parametrize(("name", "text"), examples(), ids=lambda each: each if each.isidentifier() else "")
def test_the_examples_of_the_page_can_be_trained(tmp_path, name, text):
    (tmp_path / "page.py").write_text(text)
    model = built(f"{tmp_path / 'page.py'}:{name}")
    if hasattr(model, "module"):
        assert examined(model) == []
    else:
        assert model(*sample(ROOTS)).shape == (len(ROOTS), CLASSES)


def test_the_table_of_the_page_lists_all_layers():
    section = README.read_text().split("## Your own model")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(\w+)`", section.split("<!-- layers -->")[1]))
    on_edges = set(re.findall(r"`(\w+)`", section.split("<!-- on edges -->")[1]))
    assert on_edges == set(ON_EDGES)
    counting = set(re.findall(r"`(\w+)`", section.split("<!-- counting -->")[1]))
    assert (listed, counting) == (set(LAYERS) - set(COUNTING), set(COUNTING))


def test_evaluate_runs_code_only_when_it_is_named(tmp_path):
    class Trained:
        path, config = tmp_path, Config.from_values({"model.name": "net.py:Net"})

    assert with_code(Trained, ["far/net.py:Net"]).model.name == "far/net.py:Net"
    with pytest.raises(ConfigError, match=r"add --model net\.py:Net"):
        with_code(Trained, ["1"])
