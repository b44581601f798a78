"""The interface of every task, and every task with every method."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from helpers.refusals import refused
from latent_tokens import METHODS, TASKS, EvalConfig, Examples, Task, evaluate, fit, from_pretrained
from latent_tokens.tasks import SPLITS, configured, described, description

SMALL = [
    "sudoku-6",
    "sudoku-16",
    "sudoku-6-puzzle",
    "zebra-3",
    "zebra-compact-3",
    "countdown-3",
    "countdown-4",
]
# Every method on one task, and one method per readout on the others. scripts/fingerprints.py has all pairs.
TRAINED = [
    *(("sudoku-4", method) for method in METHODS),
    *((name, method) for name in SMALL for method in ("scdm", "arm")),
]
EVERY = sorted({task.name for task in TASKS.values()})
PADDED = [name for name in EVERY if hasattr(TASKS[name], "padding")]
PADDINGS = [(name, padding) for name in PADDED for padding in ("none", "paper")]


@pytest.mark.parametrize(("name", "method"), TRAINED)
def test_a_method_learns_and_is_judged_on_a_task(name, method, tmp_path):
    few = {"size": "pico", "steps": 2, "batch_size": 2, "num_train": 4, "num_validation": 2}
    net = from_pretrained(fit(name, method, out=tmp_path / "run", precision="fp32", **few))
    (row,) = evaluate(net, TASKS[name], EvalConfig(num_samples=1 if name == "sudoku-16" else 2))
    assert net.method == METHODS[method]
    assert row["task"] == name
    assert 0 <= row[row["metric"]] <= 100
    assert row["metric"] == TASKS[name].metric
    assert 0 < row["relative_cost"] <= 1


@pytest.mark.parametrize(
    ("name", "padding"), [*PADDINGS, ("zebra-compact-3", None), ("zebra-compact-4", None)]
)
def test_examples_are_what_their_verifier_and_their_scores_want(name, padding):
    task = configured(name, {} if padding is None else {"padding": padding})
    assert isinstance(task, Task)
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


@pytest.mark.parametrize("name", EVERY)
@given(cut=st.integers(1, 29), seed=st.integers(0, 99))
def test_examples_do_not_depend_on_the_calls_they_are_made_in(name, cut, seed):
    task = TASKS[name]
    whole = task.generate(30, seed)
    parts = task.generate(cut, seed), task.generate(30 - cut, seed, first=cut)
    for part, arrays in zip(whole, zip(*parts, strict=True), strict=True):
        assert (np.concatenate(arrays) == part).all()


@pytest.mark.parametrize("name", EVERY)
def test_every_split_has_its_share(name):
    task = TASKS[name]
    examples = task.generate(640 if name != "sudoku-puzzle" else 320, seed=8)
    splits = task.splits(examples)
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
        made = TASKS[puzzles].generate(5, seed=0)
        solutions = TASKS[puzzles].answers(made.tokens)
        assert (TASKS[boards].keys(Examples.of(solutions, known=0)) == TASKS[puzzles].keys(made)).all()


@pytest.mark.parametrize(("name", "padding"), [*((name, None) for name in EVERY), *PADDINGS])
def test_a_task_is_described_and_found_again(name, padding):
    task = configured(name, {} if padding is None else {"padding": padding})
    assert described(description(task)) == task
    assert (task == TASKS[name]) == (padding != "paper")


def test_the_papers_names_vocabularies_and_lengths():
    assert TASKS["sudoku-gen"] is TASKS["sudoku-9"]
    assert TASKS["sudoku-large"] is TASKS["sudoku-36"]
    table = {  # the paper's table of datasets
        "sudoku-gen": (100_000, 128, 11), "sudoku-puzzle": (1_800_000, 192, 14),
        "zebra": (1_500_000, 384, 23),
        "countdown": (500_000, 64, 20), "sudoku-large": (100_000, 1_536, 38),
    }  # fmt: skip
    for name, row in table.items():
        task = configured(name, {"padding": "paper"})
        assert (task.num_train, task.length, task.vocab_size) == row
    assert TASKS["sudoku-gen"].vocab_size == 9


REFUSED = [
    ("sudoku-9", {"clues": 30}, "clues=30: sudoku-9 has no such setting. Use source, padding"),
    ("zebra", {"name": "x"}, "name=x: zebra has no such setting"),
    *(
        ("sudoku-puzzle", {"clues": clues}, f"clues={clues}: must be 'minimal' or 21 to 80")
        for clues in (20, 81, 30.5)
    ),
    ("sudoku-6-puzzle", {"clues": 7}, "clues=7: must be 'minimal' or 8 to 35"),
    ("zebra", {"houses": (7,)}, "houses=7: each must be 3 to 6"),
    ("zebra", {"houses": ()}, "houses=: each must be 3 to 6"),
    ("zebra", {"houses": 3}, "houses=3: each must be 3 to 6"),
    ("zebra", {"houses": [[3]]}, "houses=[3]: each must be 3 to 6"),
    ("zebra-3", {"attributes": (3, 2)}, "attributes=3 2: each must be 3 to 6"),
    *(("countdown", {"numbers": numbers}, f"numbers={numbers}: must be 3, 4 or 5") for numbers in (2, 3.0)),
    *(
        ("countdown", {"targets": targets}, "must be lowest and highest, whole numbers within 1 and 100")
        for targets in ((10, 1000), (50, 10), (10.5, 20), (0, 9), None)
    ),
    ("countdown", {"targets": (14, 14)}, "targets=14 14: all of them are held out"),
    ("sudoku-9", {"source": "file"}, "source=file: must be one of solver, pattern"),
    *((name, {"padding": "wide"}, "padding=wide: must be one of none, paper") for name in PADDED),
    ("sudoku-puzzle", {"guessing": 7}, "guessing=7: must be one of never, allowed"),
    ("chess", {}, "task=chess: must be one of sudoku-4"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_impossible_settings_are_refused_by_name(name, changes, message):
    with refused(message):
        configured(name, changes)
