"""Learned rows of one rank: first values, Adam of single rows, what is kept and taken over."""

import numpy as np
import pytest
import torch

from leapmpi.config.schema import Config
from leapmpi.errors import ConfigError, DataError
from leapmpi.features.learned_rows import IDS, ROWS, LearnedRows, first_rows
from leapmpi.system import unnamed_files

ORIGINAL = np.array([4, 9, 11, 30])


def learned(original=ORIGINAL, width=3):
    return LearnedRows(original, 10, width, "float64", seed=5)


def moved(rows, ids, gradient, **more):
    """`rows` after a step in which local `ids` were read and got `gradient`."""
    tensor = torch.zeros(len(ids), rows.values.shape[1], dtype=torch.float64)
    rows.read(np.array(ids), tensor)
    tensor.grad = torch.as_tensor(gradient, dtype=torch.float64).expand_as(tensor).clone()
    rows.collect(None)
    rows.step(**{"rate": 0.1, "decay": 0.0, "decoupled": False, **more})
    return rows


def test_first_rows_depend_on_seed_vertex_and_column_alone():
    rows = first_rows(ORIGINAL, 4, "float64", 7)
    assert np.array_equal(first_rows(ORIGINAL[[2, 0]], 4, "float64", 7), rows[[2, 0]])
    # The range follows from the width.
    narrow = first_rows(ORIGINAL, 3, "float64", 7)
    np.testing.assert_allclose(narrow, rows[:, :3] * (4 / 3) ** 0.5, rtol=1e-14)
    assert np.array_equal(first_rows(ORIGINAL, 4, "float32", 7), rows.astype(np.float32))
    assert not np.isin(first_rows(ORIGINAL, 4, "float64", 8), rows).any()
    many = first_rows(np.arange(10_000), 64, "float64", 0)
    assert abs((many**2).sum(axis=1).mean() - 1) < 0.01
    assert abs(many.mean()) < 1e-3


def test_a_row_moves_as_adam_moves_it_alone():
    rows, wanted = learned(), torch.tensor(learned().values[1], requires_grad=True)
    adam = torch.optim.Adam([wanted], lr=0.1, weight_decay=0.01)
    for gradient in (0.5, -2.0, 0.25):
        wanted.grad = torch.full((3,), gradient, dtype=torch.float64)
        adam.step()
        # Steps in which other rows move leave it alone, its moments and their corrections included.
        moved(rows, [13], 1.0)
        moved(rows, [11], gradient, decay=0.01)
    np.testing.assert_allclose(rows.values[1], wanted.detach().numpy(), rtol=1e-12)
    assert np.array_equal(rows.values[[0, 2]], learned().values[[0, 2]])


def test_decoupled_decay_shrinks_rows_that_move():
    rows = moved(learned(), [10], 0.0, decay=0.5, decoupled=True)
    np.testing.assert_allclose(rows.values[0], learned().values[0] * (1 - 0.1 * 0.5))
    assert np.array_equal(rows.values[1:], learned().values[1:])


def test_gradients_of_a_row_that_is_read_twice_add_up():
    rows = learned()
    tensor = torch.zeros(3, 3, dtype=torch.float64)
    rows.read(np.array([12, 10, 12]), tensor)
    tensor.grad = torch.arange(9, dtype=torch.float64).reshape(3, 3)
    rows.collect(None)
    assert rows.touched.tolist() == [2, 0]
    assert rows.gradients.tolist() == [[6, 8, 10], [3, 4, 5]]


def test_state_is_found_by_original_ids():
    rows = moved(learned(), [10, 12], 1.0)
    rows.keep_best()
    moved(rows, [11], 1.0)
    state = {name: array[[3, 1, 0, 2]] for name, array in rows.state().items()}
    pieces = [{name: array[part] for name, array in state.items()} for part in (slice(0, 3), slice(3, 4))]
    other = learned()
    other.restore(pieces, "there")
    for name, array in rows.state().items():
        assert np.array_equal(other.state()[name], array), name
    with pytest.raises(DataError, match="there: it lacks 1 learned row of"):
        learned().restore(pieces[:1], "there")
    with pytest.raises(DataError, match="of another width"):
        learned(width=4).restore(pieces, "there")


def test_rows_in_files_move_as_those_in_memory():
    random, original = np.random.default_rng(2), np.arange(3000) * 2
    held = [LearnedRows(original, 10, 3, "float64", 5, room=room) for room in (None, 5000)]
    assert np.array_equal(held[0].values, held[1].values)
    for step in range(4):
        ids, gradient = random.integers(10, 3010, 500), random.standard_normal((500, 3))
        for rows in held:
            moved(rows, ids, gradient)
            if step == 1:
                rows.keep_best()
    state = held[0].state()
    restored = LearnedRows(original, 10, 3, "float64", 5, room=5000)
    restored.restore([{name: array[::-1] for name, array in state.items()}], "there")
    for rows in (held[1], restored):
        assert all(np.array_equal(rows.state()[name], array) for name, array in state.items())
    restored.assign({IDS: original, ROWS: held[0].best}, "file")
    assert np.array_equal(restored.values, held[0].best)


def test_rows_in_files_need_a_disk(monkeypatch):
    monkeypatch.setattr(unnamed_files, "file_system", lambda folder: "tmpfs")
    with pytest.raises(ConfigError, match=r"learned rows take 0.0 MiB in a file, but .* is in memory; set TMPDIR"):
        LearnedRows(ORIGINAL, 0, 3, "float64", 5, room=5000)


def test_rows_of_a_weights_file_are_found_by_original_ids():
    rows = learned()
    ids = np.array([1, 4, 9, 11, 30])
    rows.assign({IDS: ids, ROWS: np.outer(ids, [1.0, 2.0, 3.0])}, "file")
    assert rows.values[:, 0].tolist() == ORIGINAL.tolist()
    with pytest.raises(DataError, match=r"file: it holds no row of vertex 11 \(original id\) and 1 others"):
        rows.assign({IDS: ids[:3], ROWS: np.ones((3, 3))}, "file")
    with pytest.raises(DataError, match="file: it holds no learned rows of 3 columns"):
        rows.assign({}, "file")


@pytest.mark.parametrize("text", ["learned", "learned:0", "learned:x", "ones:4", "learned:64:3", "learned:-1", "64"])
def test_other_ways_are_refused(text):
    with pytest.raises(ConfigError, match="cannot replace missing features"):
        Config.from_values({"model.missing_features": text})
