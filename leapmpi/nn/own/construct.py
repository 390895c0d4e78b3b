"""From the name of a user's class or function to a Model: arguments are passed by name, and a trial run follows."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from leapmpi.config.options import ModelMember
from leapmpi.config.sections import ModelConfig
from leapmpi.config.setting import names_code
from leapmpi.config.user_code import arguments_of, describe_error, load_named, running_user_code
from leapmpi.errors import ConfigError, LeapmpiError, nearest
from leapmpi.nn.layer import Layer
from leapmpi.nn.model import Model, stack
from leapmpi.nn.own.initial import Draws, begin
from leapmpi.nn.own.module import OwnModel
from leapmpi.nn.own.relation_graph import edge_types
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors, to_tensors
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.sampling.block import Block, indptr_of

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.nn.typed_schema import TypedSchema

FLAG = "--model"

ARGUMENTS = {
    "in_channels": ("in_dim", "in_feats", "in_features", "input_dim", "num_features", "num_node_features", "nfeat"),
    "hidden_channels": ("hidden", "hidden_dim", "hidden_size", "hidden_feats", "num_hidden", "nhid"),
    "out_channels": ("out_dim", "out_feats", "out_features", "output_dim", "num_classes", "classes", "nclass"),
    "num_layers": ("layers", "n_layers", "nlayers"),
    "dropout": ("dropout_rate", "drop_rate"),
    "heads": ("num_heads", "n_heads", "nheads"),
    "aggregate": (),
    "attention_dropout": (),
    "edge_dim": ("edge_channels", "edge_features", "num_edge_features"),
    "metadata": (),
}
"""Arguments that a constructor may take, with their other names."""

_SETTINGS = {"hidden_channels": "hidden", "dropout": "dropout"}
"""The setting of models whose value an argument receives."""

_MODEL_SETTINGS = tuple(field.name for field in dataclasses.fields(ModelConfig))

_ALSO = ("residual", "input_dropout")
"""Further settings, passed to arguments of the same name."""

_WITHOUT_OPTION = {"heads": 4, "aggregate": "auto", "attention_dropout": 0.0}
"""Values of these arguments without an option."""


def build(
    config: ModelConfig, layers: int, in_dim: int, out_dim: int, edge_dim: int = 0, schema: TypedSchema | None = None
) -> Model:
    """Build the model that config.name names, on the CPU; `schema` is that of a typed graph.

    A sub-class of Layer makes a stack of such layers. Any other class or function is called with those of ARGUMENTS
    that it takes; its result is a Model or any torch module. Initial weights are drawn by its own code, each from
    config.seed and its name where possible (initial.py). Raises ConfigError for faults of the class or function.
    """
    # Draws are functions of the seed alone, so all ranks start with the same weights.
    draws = Draws()
    with torch.random.fork_rng(devices=[]):
        begin(config.seed)
        model = _made(config, (layers, in_dim, out_dim, edge_dim), schema, draws)
        draws.draw_again(model, config.seed)
    return model


def _made(config: ModelConfig, sizes: tuple[int, int, int, int], schema: TypedSchema | None, draws: Draws) -> Model:
    """Make the model by its code, while `draws` notes the draws. `sizes`: layers, in_dim, out_dim, edge_dim."""
    named, (layers, in_dim, out_dim, edge_dim) = config.name, sizes
    made_by = load_named(named, FLAG)
    # A layer of leapmpi is stacked like the built-in ones, and keeps their ways to cross ranks.
    if isinstance(made_by, type) and issubclass(made_by, Layer):
        if schema is not None:
            raise ConfigError(f"{FLAG} {named}: a layer in parts is not given types, as this graph has; write a module")
        layer: Callable[..., Layer] = made_by
        if edge_dim and "edge_dim" in arguments_of(made_by):
            layer = partial(layer, edge_dim=edge_dim)
        with draws:
            return _run(lambda: stack(layer, config, layers, in_dim, out_dim), named, "__init__")
    if not callable(made_by) or isinstance(made_by, nn.Module):
        raise ConfigError(f"{FLAG} {named}: it is of type {type(made_by).__name__}; name a class or a function")
    # Anything else is called with what its signature names, and must make a module.
    options = options_for(made_by, config)
    given = arguments_for(config, layers, in_dim, out_dim, edge_dim) | _of_types(schema) | options
    known = _chosen(made_by, given, named)
    with draws:
        module = _run(lambda: made_by(**known), named, "__init__" if isinstance(made_by, type) else "it")
    if isinstance(module, Model):
        return module
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{FLAG} {named}: it made one of type {type(module).__name__}, not a torch.nn.Module")
    if type(module).forward is nn.Module.forward:
        takes = "x, edge_index" if schema is None else "x_dict, edge_index_dict"
        raise ConfigError(f"{FLAG} {named}: {type(module).__name__} has no method forward({takes})")
    _keep_no_statistics(module)
    _check_parts(module, named)
    model = OwnModel(module, named, config, layers, in_dim, out_dim, schema)

    # Lazy parameters are drawn when the module first runs.
    draws.made = True
    lazy = any(isinstance(each, UninitializedParameter) for each in module.parameters())
    with draws if lazy else nullcontext():
        _try(model, layers, in_dim, edge_dim)
    if lazy:
        # Its weights were drawn after it had run.
        model.tried = None
    return model


def _of_types(schema: TypedSchema | None) -> dict[str, Any]:
    """List the values of arguments that differ in typed graphs: columns by type, and PyG's metadata; else none."""
    if schema is None:
        return {}
    columns = dict(zip(schema.names, schema.columns.tolist(), strict=True))
    widths = dict.fromkeys(("in_channels", *ARGUMENTS["in_channels"]), columns)
    return widths | {"metadata": (list(schema.names), edge_types(schema.graph))}


def arguments_for(config: ModelConfig, layers: int, in_dim: int, out_dim: int, edge_dim: int = 0) -> dict[str, Any]:
    """List the values of arguments, by all of their names; none for features of edges where there are none."""
    values: dict[str, Any] = {"in_channels": in_dim, "out_channels": out_dim, "num_layers": layers}
    values |= {name: getattr(config, setting) for name, setting in _SETTINGS.items()}
    values |= {"edge_dim": edge_dim} if edge_dim else {}
    values |= _WITHOUT_OPTION
    given = {other: value for name, value in values.items() for other in (name, *ARGUMENTS[name])}
    return given | {name: getattr(config, name) for name in _ALSO} | {"config": config}


def options_for(made_by: Callable[..., Any], config: ModelConfig) -> dict[str, Any]:
    """Return the arguments that `--model-option` gives to `made_by`, each as the number, truth or text that it spells.

    Raises ConfigError for an option that is not an argument; a function that takes `config` may read any.
    """
    found: dict[str, Any] = {}
    taken = arguments_of(made_by)
    for text in config.options:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not equals:
            raise ConfigError(f"model.options: {text!r} is not an option; write it as name=value")
        # Libraries call the same thing by several names.
        named = [each for each in (name, *ARGUMENTS.get(name, ())) if each in taken]
        if not named and "config" not in taken:
            raise ConfigError(f"model.options: {config.name} takes no argument {name!r}; {nearest(name, taken)}")
        found |= {each: _meant(value) for each in named}
    return found


def _meant(text: str) -> Any:
    """Return the value that `text` spells: a number, True, False, or the text itself."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(text, text)
    return value if isinstance(value, int | float) else text


def settings_without_effect(configs: Sequence[Config]) -> dict[str, str]:
    """List the settings of the section `model` that act on none of the models of `configs`, if all are users' own."""
    names = dict.fromkeys(config.model.name for config in configs)
    if not all(names_code(name) for name in names):
        return {}
    read = {"name", "seed", "missing_features", "options"}.union(*(_settings_read(name) for name in names))
    return {name: f"not read by {' and '.join(names)}" for name in _MODEL_SETTINGS if name not in read}


def _settings_read(named: str) -> set[str]:
    """Return the settings that reach `named`: those that its arguments stand for."""
    made_by = load_named(named, FLAG)
    taken = set(arguments_of(made_by))
    if "config" in taken or (isinstance(made_by, type) and issubclass(made_by, Layer)):
        return set(_MODEL_SETTINGS)
    read = {setting for name, setting in _SETTINGS.items() if taken & {name, *ARGUMENTS[name]}}
    return read | (taken & set(_ALSO))


def _chosen(made_by: Any, given: Mapping[str, Any], named: str) -> dict[str, Any]:
    """Return the arguments that `made_by` takes. Raises ConfigError for one that it needs and nobody knows."""
    chosen = {}
    for name, parameter in arguments_of(made_by).items():
        if name in given:
            chosen[name] = given[name]
        elif parameter.default is parameter.empty and name in ("edge_dim", *ARGUMENTS["edge_dim"]):
            raise ConfigError(f"{FLAG} {named}: it wants {name!r}, but the edges of this dataset have no features")
        elif parameter.default is parameter.empty:
            names = ", ".join(ARGUMENTS)
            raise ConfigError(
                f"{FLAG} {named}: it wants an argument {name!r}, which leapmpi does not know; give it a default, or "
                f"call it one of {names} (leapmpi/nn/README.md lists all)"
            )
    return chosen


def _run(action: Callable[[], Any], named: str, what: str) -> Any:
    """Return the result of `action`, which is the user's code. Raises ConfigError for any exception in it."""
    try:
        with running_user_code():
            return action()
    except (LeapmpiError, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigError(f"{FLAG} {named}: {what} raised {describe_error(error, named)}") from error


def _keep_no_statistics(module: nn.Module) -> None:
    """Set batch normalisation to keep no running statistics: each rank would have its own, and no file any.

    In evaluation too, it then uses the statistics of the rows at hand.
    """
    for each in module.modules():
        if isinstance(each, nn.modules.batchnorm._NormBase):
            each.running_mean = each.running_var = each.num_batches_tracked = None
            each.track_running_stats = False


def _check_parts(module: nn.Module, named: str) -> None:
    """Raise ConfigError for parts of `module` that cannot be trained so."""
    for name, each in module.named_modules():
        if getattr(each, "cached", False) is True:
            raise ConfigError(
                f"{FLAG} {named}: {name} ({type(each).__name__}) has cached=True, which would keep the first sampled "
                "block for all others; leave it out"
            )
    if not any(True for _ in module.parameters()):
        raise ConfigError(f"{FLAG} {named}: the module has no parameters to train")
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            raise ConfigError(
                f"{FLAG} {named}: parameter {name} takes no gradient (requires_grad is False), but leapmpi trains all "
                "parameters; make it a buffer"
            )
        if not parameter.is_floating_point():
            raise ConfigError(f"{FLAG} {named}: parameter {name} is {parameter.dtype}; use real numbers")


def _try(model: OwnModel, layers: int, in_dim: int, edge_dim: int) -> None:
    """Run `model` once on a few rows, so that faults are found, and lazy parameters get their shapes."""
    if model.schema is not None:
        _run_once(model, *_few_typed_blocks(model.schema, layers))
        return
    blocks = _few_blocks(layers, edge_dim, model.requires("edge_weight"))
    if model.requires("edge_attr") and not edge_dim:
        raise ConfigError(
            f"{FLAG} {model.named}: forward wants edge_attr, but the edges of this dataset have no features; import "
            "them, or write edge_attr=None"
        )
    _run_once(model, blocks, torch.linspace(-1, 1, blocks[-1].n_src * in_dim).reshape(-1, in_dim))


def _run_once(model: OwnModel, blocks: Sequence[BlockTensors], rows: Rows) -> None:
    """Run `model` on `rows`, and keep what it returned. Raises ConfigError where it writes a buffer."""
    model.examined = True
    with torch.no_grad(), model.keeping_buffers():
        out = model(blocks, rows)
    # What draws numbers differs by rank for that reason, which another check describes.
    assert model.last is not None
    alike = not model.last.random and out.device == next(model.parameters()).device
    model.tried = out if alike else None
    model.examined, model.last = False, None


def _few_blocks(layers: int, edge_dim: int, weighted: bool) -> list[BlockTensors]:
    """Make blocks of three roots, where every destination has two in-neighbours.

    Features of edges are zeros; if `weighted`, their weights are ones.
    """
    blocks, count = [], 3
    for hop in range(layers):
        names = np.arange(count + 2)
        indices = (np.add.outer(np.arange(count), [1, 2]).reshape(-1) % (count + 2)).astype(np.int32)
        indptr = np.arange(0, 2 * count + 1, 2)
        block = Block(hop, count, names, indptr, indices, names, np.full(count + 2, 2))
        features = torch.zeros(len(indices), edge_dim) if edge_dim else None
        weight = torch.ones(len(indices)) if weighted else None
        blocks.append(replace(to_tensors(block), edge_features=features, weight=weight))
        count += 2
    return blocks


def _few_typed_blocks(schema: TypedSchema, layers: int) -> tuple[list[BlockTensors], TypedMatrix]:
    """Make blocks of two roots, and their rows; two vertices of each type are new, and every relation has edges."""
    types = schema.graph
    assert types.target_number is not None, "training has a target type"
    kinds, blocks = np.full(2, types.target_number), []
    # From the roots outward, as a sample grows: every destination gets two sources by each relation that ends there.
    for hop in range(layers):
        count, kinds = len(kinds), np.concatenate([kinds, np.repeat(np.arange(len(types.vertices)), 2)])
        edges = [
            (v, r, u)
            for v in range(count)
            for r, (s, d) in enumerate(types.ends.tolist())
            if d == kinds[v]
            for u in (count + 2 * s, count + 2 * s + 1)
        ]
        target, relation, source = np.array(edges, np.int64).reshape(-1, 3).T
        names, indptr = np.arange(len(kinds)), indptr_of(np.bincount(target, minlength=count))
        sources = names, indptr, source.astype(np.int32), names, np.full(len(kinds), 2)
        blocks.append(to_tensors(Block(hop, count, *sources, relation=relation.astype(np.uint16))))
    columns, numbers = schema.columns.tolist(), torch.from_numpy(kinds)
    rows = [torch.linspace(-1, 1, len(kinds) * each).reshape(-1, each) for each in columns]
    places = torch.arange(len(kinds))
    return blocks, TypedMatrix(1, rows, None, numbers, places, places)


MEMBER = ModelMember(build, reads_edge_features=True, typed=None)
"""The member that builds any model of a user."""
