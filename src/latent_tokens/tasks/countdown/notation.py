"""Countdown problems and answers as text and as tokens."""

from __future__ import annotations

import re

from latent_tokens.tasks.base import Tokens
from latent_tokens.tasks.countdown.equations import OPERATIONS

PAD, BOS, EOS, SEP = range(4)
CHARACTERS = ",=+-*/0123456789"  # ids from 4 on
SYMBOLS = ("[PAD]", "[BOS]", "[EOS]", "[SEP]", *CHARACTERS)
NUMBER = "(0|[1-9][0-9]*)"
EQUATION = re.compile(f"{NUMBER}([-+*/]){NUMBER}={NUMBER}")


def ids(text: str) -> list[int]:
    """Return the tokens of a text. Raise ValueError naming a character without one."""
    for character in text:
        if character not in CHARACTERS:
            raise ValueError(f"{character!r} in {text!r}: must be one of {CHARACTERS}")
    return [4 + CHARACTERS.index(character) for character in text]


def texts(tokens: Tokens) -> tuple[str, str]:
    """Return (problem, answer) of one sequence. The answer ends at EOS or PAD; other tokens become ?."""
    row = tokens.tolist()
    sep = row.index(SEP)
    characters = [CHARACTERS[i - 4] if 4 <= i < 4 + len(CHARACTERS) else "?" for i in row]
    end = next((at for at in range(sep + 1, len(row)) if row[at] in (EOS, PAD)), len(row))
    return "".join(characters[1:sep]), "".join(characters[sep + 1 : end])


def answer_text(steps: list[list[int]]) -> str:
    """Return equations (a, operation, b, c) as text."""
    return ",".join(f"{a}{OPERATIONS[operation]}{b}={c}" for a, operation, b, c in steps)


def numbers_of(problem: str) -> list[int]:
    """Return the numbers of a problem, the target last."""
    return [int(number) for number in problem.split(",")]


def checked_numbers(problem: str, count: int, targets: tuple[int, int], most: int) -> list[int]:
    """Return the numbers of a problem, the target last.

    Args:
        problem: the text.
        count: how many numbers are given.
        targets: lowest and highest target.
        most: the largest given number.

    Raises:
        ValueError: the problem has other numbers.
    """
    parts = problem.split(",")
    if len(parts) != count + 1 or not all(re.fullmatch("[1-9][0-9]{0,3}", part) for part in parts):
        is_other_task = len(parts) in (4, 5, 6)
        hint = ". countdown-3, countdown-4 and countdown (5) take other numbers" if is_other_task else ""
        raise ValueError(
            f"problem {problem!r}: must be {count} numbers and the target, set apart by commas, "
            f"like 86,28,13,31,96{hint}"
        )
    *given, target = map(int, parts)
    if max(given) > most:
        raise ValueError(f"number {max(given)} in {problem!r}: must be 1 to {most}")
    low, high = targets
    if not low <= target <= high:
        raise ValueError(f"target {target} in {problem!r}: must be {low} to {high}")
    return [*given, target]


def parts_of(equation: str) -> tuple[int, str, int, int] | None:
    """Return (a, operation, b, c) of an equation, or None if the text is not one."""
    parts = EQUATION.fullmatch(equation)
    return parts and (int(parts[1]), parts[2], int(parts[3]), int(parts[4]))


def holds(a: int, operation: str, b: int, c: int) -> bool:
    """Return whether a operation b = c, with division without remainder."""
    return {"+": a + b == c, "-": a - b == c, "*": a * b == c, "/": b != 0 and a == b * c}[operation]


def lenient(tokens: Tokens) -> bool:
    """Return whether all equations are true and the last result is the target (Ye et al.'s evaluation)."""
    problem, answer = texts(tokens)
    parts = [parts_of(equation) for equation in answer.split(",")]
    return (
        all(part and holds(*part) for part in parts) and answer.rsplit("=", 1)[1] == problem.rsplit(",", 1)[1]
    )


def agreement(answer: str, stored: str) -> float:
    """Return the share of the stored answer's characters, its end included, that agree."""
    return sum(a == b for a, b in zip(answer + "$", stored + "$", strict=False)) / (len(stored) + 1)
