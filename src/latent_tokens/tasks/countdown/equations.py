"""Countdown by the search of stream-of-search (Gandhi et al., 2024), as Ye et al. use it. Numba kernels."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.rng import below, start_stream

OPERATIONS = "+*-/"  # in the order in which they are tried
MOST_NUMBER = 99
RESULT_DIGITS = {3: (4,), 4: (4, 4), 5: (4, 6, 4)}
"""By the count of numbers, the digits of the results before the last in the longest answer.

A product of two numbers has at most 4 digits. So has the second last result, at most 100 * 99, as one more
number turns it into a target of at most 100. With five numbers a product of three, of 6 digits, may be
between the two."""


def longest_answer(count: int) -> int:
    """Return the number of characters of the longest answer with `count` numbers.

    Every given number of 2 digits is written once and every result before the last twice. The last result,
    the target, has at most 3 digits. An equation has two signs, and commas are between equations.

    Example:
        >>> longest_answer(3) == len("75*80=6000,6000/60=100")
        True
    """
    return 2 * count + 2 * sum(RESULT_DIGITS[count]) + 3 + 2 * (count - 1) + count - 2


def stack_of(numbers: list[int]) -> NDArray[np.int64]:
    """Return the work array of `first_solution`. Line n holds the n numbers that are left."""
    stack = np.zeros((len(numbers) + 1, len(numbers)), np.int64)
    stack[-1] = numbers
    return stack


@numba.njit(cache=True)
def first_solution(stack, left, target, steps):  # type: ignore[no-untyped-def]
    """Return whether the `left` numbers of stack[left] make the target. Write (a, operation, b, c) to steps.

    Depth first over pairs in their order, with + * - /, the larger number first for - and /.
    """
    if left == 1:
        return stack[1, 0] == target
    for i in range(left - 1):
        for j in range(i + 1, left):
            a, b = stack[left, i], stack[left, j]
            small, large = min(a, b), max(a, b)
            kept = 0
            for other in range(left):
                if other not in (i, j):
                    stack[left - 1, kept] = stack[left, other]
                    kept += 1
            for operation in range(4):
                if operation == 3 and (small == 0 or large % small != 0):
                    continue
                result = (a + b, a * b, large - small, large // max(small, 1))[operation]
                if left == 2 and result != target:
                    continue
                stack[left - 1, left - 2] = result
                if first_solution(stack, left - 1, target, steps):
                    step = steps[len(steps) - left + 1]
                    step[1], step[3] = operation, result
                    step[0], step[2] = (a, b) if operation < 2 else (large, small)
                    return True
    return False


@numba.njit(cache=True)
def draw_puzzles(numbers, targets, steps, low, high, seed, first):  # type: ignore[no-untyped-def]
    """Fill the rows with puzzles number first, first + 1, ... of the seed, each with its first solution."""
    state = np.zeros(1, np.uint64)
    count = numbers.shape[1]
    stack = np.zeros((count + 1, count), np.int64)
    for line in range(len(numbers)):
        start_stream(state, seed, first + line)
        targets[line] = low + below(high - low + 1, state)
        while True:
            for i in range(count):
                numbers[line, i] = 1 + below(MOST_NUMBER, state)
            stack[count] = numbers[line]
            if first_solution(stack, count, targets[line], steps[line]):
                break
