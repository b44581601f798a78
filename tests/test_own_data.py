"""Examples as a data set of PyTorch, and tokens as tensors, arrays and lists."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from latent_tokens import TASKS, Examples, dataset
from latent_tokens.data.loading import as_tensors

TASK = TASKS["sudoku-4"]


def test_data_loader_yields_batches_of_examples():
    examples = dataset(TASK, "train", 12)
    assert len(examples) == 12
    first = examples[0]
    assert (first["tokens"].shape, first["known"].shape, first["length"]) == ((16,), (16,), 16)
    batches = [*DataLoader(examples, batch_size=5)]
    assert [len(batch["tokens"]) for batch in batches] == [5, 5, 2]
    tokens, known, lengths = as_tensors(examples)
    for name, expected in (("tokens", tokens), ("known", known), ("length", lengths)):
        assert (batches[0][name] == expected[:5]).all()
        assert batches[0][name].dtype == expected.dtype


def test_examples_unpack_into_their_arrays():
    examples = TASK.generate(3, 0)
    tokens, known, lengths = examples
    assert tokens is examples.tokens
    assert known is examples.known
    assert lengths is examples.lengths
    changed = examples._replace(known=~known)
    assert (changed.known == ~known).all()
    assert changed.tokens is tokens
    again = pickle.loads(pickle.dumps(examples))
    assert all((a == b).all() for a, b in zip(again, examples, strict=True))


def test_index_of_examples_selects_as_take_does():
    examples = TASK.generate(6, 0)
    for which in (slice(2, 4), np.array([2, 3]), np.isin(np.arange(6), [2, 3])):
        assert isinstance(examples[which], Examples)
        assert (examples[which].tokens == examples.tokens[2:4]).all()
    assert (examples[-1]["tokens"] == examples.tokens[5]).all()
    with pytest.raises(IndexError):
        examples[6]


def test_examples_convert_to_a_hugging_face_data_set():
    pytest.importorskip("datasets")
    rows = TASK.generate(3, 0).to_hf()
    assert rows.num_rows == 3
    assert rows[1]["tokens"] == TASK.generate(3, 0).tokens[1].tolist()


@pytest.mark.parametrize("name", ["sudoku-4", "sudoku-6-puzzle", "zebra-3", "countdown-3"])
def test_tasks_take_tensors_arrays_and_lists(name):
    task = TASKS[name]
    tokens = task.generate(2, 0).tokens
    for same in (torch.from_numpy(tokens.astype(np.int64)), tokens.astype(np.int64), tokens.tolist()):
        assert task.decode(same[0]) == task.decode(tokens[0])
        assert task.verify(same[0]) == task.verify(tokens[0])
        scores = task.score(same)
        assert {name: values.tolist() for name, values in scores.items()} == {
            name: values.tolist() for name, values in task.score(tokens).items()
        }
