"""Options of models and samplers: set by flags, files and --vary, refused where there are none, listed by the help."""

import pytest

from leapmpi.cli.commands import train
from leapmpi.config.options import MODELS, options_of, texts_of, with_option
from leapmpi.config.other_names import recorded_values
from leapmpi.config.parser import CommandParser
from leapmpi.config.schema import Config, models_of
from leapmpi.config.toml import read_toml, to_toml
from leapmpi.errors import ConfigError


def test_a_table_of_a_file_and_a_dotted_key_set_single_options(tmp_path):
    (tmp_path / "config.toml").write_text(
        '[model]\nname = "gat"\n[model.options]\nheads = 2\nattention-dropout = 0.5\n'
    )
    config = Config.from_values(read_toml(tmp_path / "config.toml"))
    assert config.model.options == ("heads=2", "attention-dropout=0.5")
    config = config.replaced(
        {"model.options.heads": 8, "sampling.sampler": "ladies", "sampling.options.layer_size": [5, 6]}
    )
    assert config.model.options == ("attention-dropout=0.5", "heads=8")
    assert config.sampling.options == ("layer-size=5,6",)
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert Config.from_values(read_toml(tmp_path / "again.toml")) == config


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"model.name": "gcn", "model.options": "heads=2"},
            "model.options: model gcn has no option 'heads'; it has none",
        ),
        ({"model.name": "gat", "model.options": "head=2"}, "model gat has no option 'head'; did you mean 'heads'?"),
        ({"model.name": "gat", "model.options": "heads"}, "'heads' is not an option; write it as name=value"),
        ({"model.name": "gat", "model.options": "heads=0"}, "model.options: heads: 0 is too small"),
        ({"model.name": "gat", "model.options": "heads=2;heads=3"}, "heads is given twice"),
        ({"strategy.vary": "model.options.heads=2,3"}, "model sage has no option 'heads'"),
        ({"sampling.options.rounds": 2}, "sampler node-wise has no option 'rounds'; it has none"),
    ],
)
def test_what_a_model_has_not_is_refused(values, sentence):
    with pytest.raises(ConfigError) as caught:
        Config.from_values(values)
    assert sentence in str(caught.value)


def test_models_may_differ_in_options():
    models = models_of(Config.from_values({"model.name": "gat", "strategy.vary": "model.options.heads=2,4"}))
    assert [options_of(MODELS, "gat", each.model.options).heads for each in models] == [2, 4]


def test_texts_give_the_same_options_again():
    options = options_of(MODELS, "deepgcn", with_option(("mlp_layers=2",), "message-norm", True))
    assert (options.mlp_layers, options.message_norm) == (2, True)
    assert options_of(MODELS, "deepgcn", texts_of(options)) == options


def test_the_whole_help_lists_them(capsys):
    parser = CommandParser(prog="leapmpi train")
    train.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--help-all"])
    said = " ".join(capsys.readouterr().out.split())
    assert "gat heads: attention heads, which divide --hidden (default 4)" in said
    assert "sage aggregate: how in-neighbours are combined: mean, max (default mean)" in said
    assert "ladies layer-size: expected vertices drawn per hop" in said


def test_an_older_run_keeps_what_its_model_reads():
    older = {"model.name": "gat", "model.heads": 8, "model.aggregate": "mean", "model.temperature": 0.0}
    assert recorded_values(older) == {"model.name": "gat", "model.options.heads": 8}
    varied = {"strategy.vary": ["model.heads=2,8", "train.lr=1,2"]}
    assert recorded_values(varied) == {"strategy.vary": ("model.options.heads=2,8", "train.lr=1,2")}
    older = {"model.name": "mine.py:Net", "model.heads": 8}
    assert recorded_values(older) == {"model.name": "mine.py:Net", "model.options.heads": 8}
