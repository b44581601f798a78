"""The interface of every task, every task with every method, and the examples of tasks."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils.data import DataLoader

import latent_tokens as lt
from helpers.refusals import refused
from latent_tokens.tasks import SPLITS, configured, described, description

# Some methods on one task, and every task with one method. scripts/fingerprints.py has all pairs.
TRAINED = [
    *(("sudoku-4", method) for method in ("mdm", "sidm", "esolm", "ar-mtp")),
    *((name, "scdm") for name in ("sudoku-6-puzzle", "zebra-3", "zebra-compact-3", "countdown-3")),
]
EVERY = sorted({task.name for task in lt.TASKS.values()})
PADDED = [name for name in EVERY if hasattr(lt.TASKS[name], "padding")]
PADDINGS = [(name, padding) for name in PADDED for padding in ("none", "paper")]


@pytest.mark.parametrize(("name", "method"), TRAINED)
def test_a_method_learns_and_is_judged_on_a_task(name, method, tmp_path):
    few = {"size": "pico", "steps": 1, "batch_size": 2, "num_train": 2, "num_validation": 1}
    net = lt.from_pretrained(lt.fit(name, method, out=tmp_path / "run", precision="fp32", **few))
    (row,) = lt.evaluate(net, lt.TASKS[name], lt.EvalConfig(num_samples=1))
    assert net.method == lt.METHODS[method]
    assert (row["task"], row["metric"]) == (name, lt.TASKS[name].metric)
    assert 0 <= row[row["metric"]] <= 100
    assert 0 < row["relative_cost"] <= 1


@pytest.mark.parametrize(
    ("name", "padding"), [*PADDINGS, ("zebra-compact-3", None), ("zebra-compact-4", None)]
)
def test_examples_are_what_their_verifier_and_their_scores_want(name, padding):
    task = configured(name, {} if padding is None else {"padding": padding})
    assert isinstance(task, lt.Task)
    examples = task.generate(6, seed=4)
    assert examples.tokens.shape == examples.known.shape == (len(examples.lengths), task.length)
    assert examples.tokens.dtype == (np.uint8 if padding else np.uint16)
    assert (examples.lengths <= task.length).all()
    inside = np.arange(task.length) < examples.lengths[:, None]
    assert (examples.tokens[inside] < task.vocab_size).all()
    assert (inside & ~examples.known).any(1).all()
    if padding == "paper":
        assert inside.all()
    for tokens in examples.tokens:
        assert task.verify(tokens) == []
        assert task.decode(tokens)
    scores = task.score(examples.tokens, examples)
    assert task.metric in scores
    for figure, values in scores.items():
        assert (values == (0 if figure == "soft_loss" else 1)).all(), figure


@pytest.mark.parametrize(
    ("name", "at", "error"),
    [
        ("sudoku-9", 0, "the cells are not between [BOS] and [EOS]"),
        ("sudoku-9", 82, "the cells are not between [BOS] and [EOS]"),
        ("sudoku-6-puzzle", 74, "the answer does not end after its last cell"),
        ("zebra-3", -1, "the answer does not end after its table"),
    ],
)
def test_answer_in_a_wrong_frame_is_not_exact(name, at, error):
    task = configured(name, {"padding": "paper"})
    examples = task.generate(1, seed=0)
    examples.known[0, 1] = True  # a board without a given cell has no exact answer
    tokens = examples.tokens.copy()
    slot = np.flatnonzero(tokens[0])[at] if at < 0 else at
    tokens[0, slot] = 3
    scores = task.score(tokens, examples)
    assert (scores["exact"], scores["valid"], scores["cells"]) == (0, 0, 1)
    assert scores.get("soft_loss", 24) == 24
    assert task.verify(tokens[0]) == [error]


@pytest.mark.parametrize("name", EVERY)
@given(cut=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=8)
def test_examples_do_not_depend_on_the_calls_they_are_made_in(name, cut, seed):
    task = lt.TASKS[name]
    whole = task.generate(10, seed)
    parts = task.generate(cut, seed), task.generate(10 - cut, seed, first=cut)
    for part, arrays in zip(whole, zip(*parts, strict=True), strict=True):
        assert (np.concatenate(arrays) == part).all()


@pytest.mark.parametrize("name", EVERY)
def test_every_split_has_its_share(name):
    task = lt.TASKS[name]
    splits = task.splits(task.generate(200, seed=8))
    assert set(splits.tolist()) == set(range(len(SPLITS)))
    assert 0.7 < (splits == 0).mean() < 0.95


@pytest.mark.parametrize("name", PADDED)
def test_the_same_problem_is_the_same_in_every_padding(name):
    tasks = [configured(name, {"padding": padding}) for padding in ("none", "paper")]
    keys = [task.keys(task.generate(20, seed=2)) for task in tasks]
    assert len(keys[0]) == len(keys[1]) == 20
    assert (keys[0] == keys[1]).all()


def test_a_board_has_one_key_whether_it_is_a_board_or_a_puzzle():
    for boards, puzzles in (("sudoku-9", "sudoku-puzzle"), ("sudoku-6", "sudoku-6-puzzle")):
        made = lt.TASKS[puzzles].generate(5, seed=0)
        solutions = lt.TASKS[puzzles].answers(made.tokens)
        assert (
            lt.TASKS[boards].keys(lt.Examples.of(solutions, known=0)) == lt.TASKS[puzzles].keys(made)
        ).all()


@pytest.mark.parametrize(("name", "padding"), [*((name, None) for name in EVERY), *PADDINGS])
def test_a_task_is_described_and_found_again(name, padding):
    task = configured(name, {} if padding is None else {"padding": padding})
    assert described(description(task)) == task
    assert (task == lt.TASKS[name]) == (padding != "paper")


def test_the_papers_names_vocabularies_and_lengths():
    assert lt.TASKS["sudoku-gen"] is lt.TASKS["sudoku-9"]
    assert lt.TASKS["sudoku-large"] is lt.TASKS["sudoku-36"]
    assert lt.TASKS["sudoku-gen"].vocab_size == 9
    for name, row in {  # the paper's table of datasets
        "sudoku-gen": (100_000, 128, 11),
        "sudoku-puzzle": (1_800_000, 192, 14),
        "zebra": (1_500_000, 384, 23),
        "countdown": (500_000, 64, 20),
        "sudoku-large": (100_000, 1_536, 38),
    }.items():
        task = configured(name, {"padding": "paper"})
        assert (task.num_train, task.length, task.vocab_size) == row


REFUSED = [
    ("sudoku-9", {"clues": 30}, "clues=30: sudoku-9 has no such setting. Use source, padding"),
    ("zebra", {"name": "x"}, "name=x: zebra has no such setting"),
    *(("sudoku-puzzle", {"clues": n}, f"clues={n}: must be 'minimal' or 21 to 80") for n in (20, 81, 30.5)),
    ("sudoku-6-puzzle", {"clues": 7}, "clues=7: must be 'minimal' or 8 to 35"),
    *(("zebra", {"houses": value}, ": each must be 3 to 6") for value in ((7,), (), 3, [[3]])),
    ("zebra-3", {"attributes": (3, 2)}, "attributes=3 2: each must be 3 to 6"),
    *(("countdown", {"numbers": n}, f"numbers={n}: must be 3, 4 or 5") for n in (2, 3.0)),
    *(
        ("countdown", {"targets": targets}, "must be lowest and highest, whole numbers within 1 and 100")
        for targets in ((10, 101), (10.5, 20), (0, 9), None)
    ),
    ("countdown", {"targets": (14, 14)}, "targets=14 14: all of them are held out"),
    ("sudoku-9", {"source": "file"}, "source=file: must be one of solver, pattern"),
    *((name, {"padding": "wide"}, "padding=wide: must be one of none, paper") for name in PADDED),
    ("sudoku-puzzle", {"guessing": 7}, "guessing=7: must be one of never, allowed"),
]


def test_impossible_settings_are_refused_by_name():
    for name, changes, message in REFUSED:
        with refused(message):
            configured(name, changes)


# The examples of a task, as a data set of PyTorch, tensors, arrays and lists.


def test_padded_examples_have_the_lengths_of_their_sequences():
    examples = lt.Examples.padded([[1, 2, 3], [300]], [2, 0], 4)
    assert examples.tokens.tolist() == [[1, 2, 3, 0], [300, 0, 0, 0]]
    assert examples.tokens.dtype == np.uint16
    assert examples.known.sum(1).tolist() == [2, 0]
    assert examples.lengths.tolist() == [3, 1]
    assert lt.Examples.padded([[255]], 1, length=2).tokens.dtype == np.uint8
    assert lt.Examples.padded([[1], [1]], 1, 3, [2, 3], 9).tokens.tolist() == [[1, 9, 9], [1, 9, 9]]
    assert lt.Examples.padded([], 1, 3).tokens.shape == (0, 3)


def test_data_loader_yields_batches_of_examples():
    examples = lt.dataset(lt.TASKS["sudoku-4"], "train", 12)
    assert len(examples) == 12
    first = examples[0]
    assert (first["tokens"].shape, first["known"].shape, first["length"]) == ((16,), (16,), 16)
    batches = [*DataLoader(examples, batch_size=5)]
    assert [len(batch["tokens"]) for batch in batches] == [5, 5, 2]
    for name, expected in zip(("tokens", "known", "length"), lt.as_tensors(examples), strict=True):
        assert (batches[0][name] == expected[:5]).all()
        assert batches[0][name].dtype == expected.dtype


def test_examples_unpack_into_their_arrays_and_are_indexed_as_they():
    examples = lt.TASKS["sudoku-4"].generate(6, 0)
    for part, array in zip(examples, (examples.tokens, examples.known, examples.lengths), strict=True):
        assert part is array
    changed = examples._replace(known=~examples.known)
    assert (changed.known == ~examples.known).all()
    assert changed.tokens is examples.tokens
    again = pickle.loads(pickle.dumps(examples))
    assert all((a == b).all() for a, b in zip(again, examples, strict=True))
    for which in (slice(2, 4), np.array([2, 3]), np.isin(np.arange(6), [2, 3])):
        assert isinstance(examples[which], lt.Examples)
        assert (examples[which].tokens == examples.tokens[2:4]).all()
    assert (examples[-1]["tokens"] == examples.tokens[5]).all()
    with pytest.raises(IndexError):
        examples[6]


def test_examples_convert_to_a_hugging_face_data_set():
    pytest.importorskip("datasets")
    examples = lt.TASKS["sudoku-4"].generate(3, 0)
    assert examples.to_hf()[:]["tokens"] == examples.tokens.tolist()


@pytest.mark.parametrize("name", ["sudoku-4", "sudoku-6-puzzle", "zebra-compact-3", "countdown-3"])
def test_tasks_take_tensors_arrays_and_lists(name):
    task = lt.TASKS[name]
    tokens = task.generate(2, 0).tokens
    wide = tokens.astype(np.int64)
    for same in (torch.from_numpy(wide), wide, tokens.tolist()):
        assert task.decode(same[0]) == task.decode(tokens[0])
        assert task.verify(same[0]) == task.verify(tokens[0])
        for figure, values in task.score(same).items():
            assert (values == task.score(tokens)[figure]).all()
