"""The diversity of boards: its counts against plain loops, known squares, and its columns in a table."""

from itertools import combinations

import numpy as np
import pytest

from latent_tokens import TASKS
from latent_tokens.evaluation.rows import in_percent
from latent_tokens.paper.watchers.diversity import Diversity, columns_of
from latent_tokens.tasks import configured
from latent_tokens.tasks.sudoku.boards import num_intercalates, share_of_distinct

TASK = TASKS["sudoku-4"]


def counted(board):
    """Return the intercalates of one square by a loop over pairs of rows and pairs of columns."""
    pairs = list(combinations(range(len(board)), 2))
    return sum(
        board[first, left] == board[second, right] and board[first, right] == board[second, left]
        for first, second in pairs
        for left, right in pairs
    )


@pytest.mark.parametrize("name", ["sudoku-4", "sudoku-6", "sudoku-9"])
def test_intercalates_equal_those_of_a_plain_loop(name):
    boards = TASKS[name].generate(30, seed=0).tokens
    side = TASKS[name].side
    expected = [counted(board) for board in boards.reshape(-1, side, side)]
    assert num_intercalates(boards, side).tolist() == expected
    assert len(set(expected)) > 1


def test_intercalates_of_known_squares():
    """Cyclic squares have side^2 / 4 if the side is even, else none. Those of xor have the maximum."""
    for side, expected in ((4, 4), (5, 0), (6, 9), (9, 0)):
        index = np.arange(side)
        cyclic = (index[:, None] + index) % side
        assert num_intercalates(cyclic.reshape(1, -1), side).tolist() == [expected]
    for side in (4, 8):
        index = np.arange(side)
        klein = index[:, None] ^ index
        assert num_intercalates(klein.reshape(1, -1), side).tolist() == [side**2 * (side - 1) // 4]


def test_distinct_boards_are_those_without_an_equal():
    first, second, third = TASK.generate(3, seed=0).tokens
    assert share_of_distinct(np.stack([first, second, first, third, first])) == 2 / 5
    assert share_of_distinct(np.stack([first, first])) == 0


@pytest.mark.parametrize("padding", ["none", "paper"])
def test_row_has_the_diversity_of_valid_boards(padding):
    task = configured("sudoku-4", {"padding": padding})
    boards = task.generate(3, seed=5).tokens
    watcher = Diversity(task)
    for batch in (boards[[0, 1, 1]], boards[[2, 0]]):
        watcher.begin(*batch.shape)
        watcher.end(batch, np.array([True] * (len(batch) - 1) + [False]))
    row = in_percent({"metric": "valid", "valid": 60.0, **watcher.measured()})
    assert row["distinct_share"] == 100  # boards 0, 1 and 2: the last of each batch is not valid
    cells = task.boards(boards).reshape(-1, 4, 4)
    assert row["intercalates"] == round(np.mean([counted(board) for board in cells]), 4)
    assert 4 < row["reference_intercalates"] < 12
    reference = row["reference_intercalates"]
    assert columns_of([row, {}]) == ("100.0", f"{row['intercalates']:.2f} ({reference:.2f})")


def test_row_without_a_valid_board_has_the_reference_only():
    watcher = Diversity(TASK)
    watcher.end(TASK.generate(2, seed=0).tokens, np.zeros(2, np.bool_))
    assert set(watcher.measured()) == {"reference_intercalates"}
    assert columns_of([watcher.measured()]) == ("", "")


def test_a_task_without_boards_has_no_diversity():
    with pytest.raises(ValueError, match="task=zebra-3: has no boards to compare"):
        Diversity(TASKS["zebra-3"])
