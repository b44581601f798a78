"""The tasks by name. Nothing in here knows torch or the rest of the package."""

from latent_tokens.configs import Names
from latent_tokens.tasks.base import Examples, Task
from latent_tokens.tasks.sudoku import SIZES, Sudoku

TASKS: Names[Task] = Names("task", {task.name: task for task in SIZES})

__all__ = ["TASKS", "Examples", "Sudoku", "Task"]
