"""The tasks by name. Nothing in here knows torch or the rest of the package."""

from latent_tokens.configs import Names
from latent_tokens.tasks.base import Examples, Task
from latent_tokens.tasks.sudoku import Sudoku

TASKS: Names[Task] = Names(
    "task",
    {
        "sudoku-4": Sudoku("sudoku-4", 2, 2),
        "sudoku-6": Sudoku("sudoku-6", 2, 3),
        "sudoku-9": Sudoku("sudoku-9", 3, 3),
        "sudoku-16": Sudoku("sudoku-16", 4, 4),
        "sudoku-36": Sudoku("sudoku-36", 6, 6, source="pattern"),
    },
)

__all__ = ["TASKS", "Examples", "Sudoku", "Task"]
