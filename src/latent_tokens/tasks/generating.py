"""Examples as a task generates them, checked: the code of a user may return anything."""

from __future__ import annotations

from inspect import Parameter, signature

import numpy as np

from latent_tokens.tasks.base import Task, check_tokens
from latent_tokens.tasks.examples import Examples, as_array

PARAMETERS = ("count", "seed", "first")
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def generate_checked(task: Task, count: int, seed: int, first: int = 0) -> Examples:
    """Return `task.generate`, with tokens and lengths in the types of data sets.

    Raises:
        ValueError: `generate` lacks a parameter, or what it returns is no examples of the task.

    Example:
        >>> generate_checked(TASKS["sudoku-4"], 2, seed=0).tokens.shape
        (2, 16)
    """
    check_parameters(task)
    return checked_examples(task, task.generate(count, seed, first))


def check_parameters(task: Task) -> None:
    """Raise ValueError unless `generate` takes a count, a seed and a first number, by position."""
    try:
        parameters = signature(task.generate).parameters.values()
    except ValueError:  # a compiled function may have no signature
        return
    if any(parameter.kind == Parameter.VAR_POSITIONAL for parameter in parameters):
        return
    names = tuple(parameter.name for parameter in parameters if parameter.kind in POSITIONAL)
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is Parameter.empty and parameter.kind != Parameter.VAR_KEYWORD
    ]
    missing = [name for name in PARAMETERS if name not in names]
    too_many = [name for name in required if name not in names[: len(PARAMETERS)]]
    if len(names) < len(PARAMETERS):
        problem = f"has no parameter {' and '.join(missing[len(names) - len(PARAMETERS) :])}"
    elif too_many:
        problem = f"has a parameter {too_many[0]} without a default"
    elif sorted(names[: len(PARAMETERS)]) == sorted(PARAMETERS) and names[: len(PARAMETERS)] != PARAMETERS:
        problem = f"has the parameters {', '.join(names)} in another order"
    else:
        return
    raise ValueError(f"generate of {task.name}: {problem}. Define generate(self, count, seed, first=0).")


def checked_examples(task: Task, examples: object) -> Examples:
    """Return what a task generated as examples in the types of data sets.

    Raises:
        ValueError: it is no `Examples`, or its arrays are not of the task.
    """
    if not isinstance(examples, Examples):
        problem = f"returns {type(examples).__name__}, and must return Examples"
        raise ValueError(f"generate of {task.name}: {problem}. Use Examples.padded or Examples.of.")
    try:
        tokens = as_array(examples.tokens)
        lengths = as_array(examples.lengths)
    except ValueError as error:
        raise ValueError(f"generate of {task.name}: {error}. Correct its examples.") from None

    # Their shapes and types.
    known = np.asarray(examples.known)
    if tokens.ndim != 2 or known.shape != tokens.shape or lengths.shape != tokens.shape[:1]:
        shapes = f"tokens {tokens.shape}, known {known.shape} and lengths {lengths.shape}"
        raise ValueError(
            f"generate of {task.name}: returns {shapes}, must be (N, L), (N, L) and (N,). "
            "Correct its examples."
        )
    if known.dtype != np.bool_:
        raise ValueError(
            f"generate of {task.name}: returns known of type {known.dtype}, must be bool. "
            "Use known.astype(bool)."
        )

    # Their values.
    longest = int(lengths.max(initial=0))
    if longest > tokens.shape[1]:
        raise ValueError(
            f"generate of {task.name}: returns a length of {longest} in {tokens.shape[1]} positions. "
            "Correct its examples."
        )
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    check_tokens(task, tokens, inside, "examples", "Correct vocab or generate of the task")
    return Examples(tokens, known, lengths.astype(np.uint16))
