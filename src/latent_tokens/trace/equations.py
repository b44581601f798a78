"""The wrong cells of the equations of Countdown."""

from __future__ import annotations

from latent_tokens.tasks.base import Tokens
from latent_tokens.tasks.countdown import puzzles as countdown


def broken_equations(target: str, tokens: Tokens) -> list[int]:
    """Return the cells of malformed or false equations, and of a last result that is not the target."""
    equations = countdown.texts(tokens)[1].split(",")
    broken = set[int]()
    start = 0
    for equation in equations:
        parts = countdown.parts_of(equation)
        if parts is None or not countdown.holds(*parts):
            broken |= set(range(start, start + max(len(equation), 1)))
        start += len(equation) + 1
    result = equations[-1].rsplit("=", 1)[-1]
    if result != target:
        broken |= set(range(start - 1 - max(len(result), 1), start - 1))
    return sorted(broken)
