"""Countdown: make the target from N numbers in N - 1 equations (Ye et al., 2025; appendix F.4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_choice, check_int, is_whole
from latent_tokens.tasks.base import Examples, Keys, Scores, hash_rows, split_by_key
from latent_tokens.tasks.countdown.equations import (
    MOST_NUMBER,
    draw_puzzles,
    first_solution,
    longest_answer,
    stack_of,
)
from latent_tokens.tasks.countdown.notation import (
    BOS,
    EOS,
    PAD,
    SEP,
    SYMBOLS,
    agreement,
    answer_text,
    checked_numbers,
    holds,
    ids,
    lenient,
    numbers_of,
    parts_of,
    texts,
)
from latent_tokens.tasks.examples import TokensLike, as_array

# Of the test of Ye et al.: the first nine of shuffle(10..100), seed 4.
HELD_OUT_TARGETS = (14, 39, 41, 57, 62, 81, 87, 89, 96)
ANSWER_LENGTHS_0_1 = {3: 34, 4: 47, 5: 60}  # of version 0.1, by the count of numbers

__all__ = ["HELD_OUT_TARGETS", "Countdown", "answer_text", "holds", "parts_of", "texts"]


@dataclass(frozen=True)
class Countdown:
    """[BOS] 8,91,30,36,98,55 [SEP] 98-91=7,... [EOS], then PAD.

    PAD is part of the answer (D-11, Countdown answer length).

    Attributes:
        name: The task's name.
        numbers: The number of given numbers without the target: 3, 4 or 5.
        num_train: The default number of training examples.
        targets: The lowest and the highest target.
        padding: "none" or "paper".
        answer_length: The positions of an answer with padding "none". None: of the longest, with its end.

    Example:
        >>> TASKS["countdown-3"].generate(2, seed=0).tokens.shape
        (2, 37)
    """

    name: str
    numbers: int  # given, beside the target
    num_train: int = 500_000
    targets: tuple[int, int] = (10, 100)  # lowest and highest
    padding: Literal["none", "paper"] = "none"
    answer_length: int | None = None

    symbols = SYMBOLS
    vocab_size = len(SYMBOLS)

    def __post_init__(self) -> None:
        check_choice("padding", self.padding, ("none", "paper"))
        if not is_whole(self.numbers) or self.numbers not in (3, 4, 5):
            raise ValueError(f"numbers={self.numbers}: must be 3, 4 or 5")
        if (
            not isinstance(self.targets, tuple)
            or len(self.targets) != 2
            or not all(map(is_whole, self.targets))
        ):
            raise ValueError(f"targets={self.targets}: must be two whole numbers, lowest and highest")
        if self.answer_length is not None:
            check_int("answer_length", self.answer_length, 1)
        low, high = self.targets
        if not 1 <= low <= high <= MOST_NUMBER + 1:
            raise ValueError(
                f"targets={low} {high}: must be lowest and highest, within 1 and {MOST_NUMBER + 1}"
            )
        if set(range(low, high + 1)) <= set(HELD_OUT_TARGETS):
            raise ValueError(
                f"targets={low} {high}: all of them are held out for the test. Use a wider range."
            )

    @property
    def length(self) -> int:
        """L: the longest problem with the longest answer. The paper's 64 loses 2%."""
        return 64 if self.padding == "paper" else 3 * self.numbers + 5 + self.room

    @property
    def temperature(self) -> float:
        """Return 0, as in the paper (docs/decisions.md, D-17, temperature)."""
        return 0.0

    @property
    def metric(self) -> str:
        return "lenient"

    @property
    def pad(self) -> int | None:
        """The token after the end of an answer, which training never masks first from left to right.

        It is None with padding "paper" and in data sets of version 0.1 (D-6, AR-MTP first masked position).
        """
        return PAD if self.padding == "none" and self.answer_length is None else None

    @property
    def room(self) -> int:
        """The positions of an answer and its end with padding "none"."""
        return self.answer_length or longest_answer(self.numbers) + 1

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate random targets, each with random numbers 1..99 that make it and the first solution."""
        numbers = np.empty((count, self.numbers), np.int64)
        targets = np.empty(count, np.int64)
        steps = np.empty((count, self.numbers - 1, 4), np.int64)
        draw_puzzles(numbers, targets, steps, self.targets[0], self.targets[1], seed, first)
        problems = [",".join(map(str, row)) for row in np.column_stack([numbers, targets]).tolist()]
        answers = [answer_text(row) for row in steps.tolist()]
        return self._rows([pair for pair in zip(problems, answers, strict=True) if self._fits(*pair)])

    def example(self, problem: str, answer: str) -> Examples:
        """Return one example from texts. Raise ValueError if the answer is wrong or does not fit."""
        self._numbers(problem)
        if not self._fits(problem, answer):
            raise ValueError(
                f"{len(problem) + len(answer) + 3} tokens do not fit in the {self.length} of {self.name}, "
                f"padding={self.padding}"
            )
        examples = self._rows([(problem, answer)])
        wrong = self.verify(examples.tokens[0])
        if wrong:
            raise ValueError(f"answer {answer!r} is wrong: {wrong[0]}")
        return examples

    def _fits(self, problem: str, answer: str) -> bool:
        """Return whether problem and answer fit into L."""
        if self.padding == "none":
            return len(answer) < self.room
        return len(problem) + len(answer) + 3 <= self.length

    def _rows(self, pairs: Sequence[tuple[str, str]]) -> Examples:
        """Return an example for each (problem, answer). An empty answer leaves only PAD after SEP."""
        given = [len(problem) + 2 for problem, _ in pairs]
        sequences = [
            [BOS, *ids(problem), SEP, *ids(answer), *[EOS][: len(answer)]] for problem, answer in pairs
        ]
        lengths = [self.length if self.padding == "paper" else prompt + self.room for prompt in given]
        return Examples.padded(sequences, given, lengths, self.length, PAD)

    def _numbers(self, problem: str) -> list[int]:
        """Return the numbers and the target of a problem. Raise ValueError if they are none of this task."""
        return checked_numbers(problem, self.numbers, self.targets, MOST_NUMBER)

    def keys(self, examples: Examples) -> Keys:
        """Return a key per example: of the sorted numbers and the target."""
        problems = self._problems(examples)
        problems[:, :-1].sort(axis=1)
        return np.asarray(hash_rows(problems))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each example. The test has the held-out targets, and validation a share."""
        targets = self._problems(examples)[:, -1]
        return np.where(np.isin(targets, HELD_OUT_TARGETS), 2, split_by_key(self.keys(examples)) == 1).astype(
            np.int8
        )

    def _problems(self, examples: Examples) -> NDArray[np.uint8]:
        """Return the numbers and the target of each example, (N, numbers + 1)."""
        problems = [numbers_of(problem) for problem, _ in map(texts, examples.tokens)]
        return np.array(problems, np.uint8).reshape(-1, self.numbers + 1)

    def encode(self, text: str) -> Examples:
        """Return the example of a problem like 86,28,13,31,96: the numbers, then the target."""
        problem = re.sub(r"\s*,\s*", ",", text.strip())
        self._numbers(problem)
        return self._rows([(problem, "")])

    def count_solutions(self, problem: Examples, most: int = 1) -> int:
        """Return 1 if the target can be made, however often, else 0."""
        *given, target = self._numbers(texts(problem.tokens[0])[0])
        steps = np.empty((self.numbers - 1, 4), np.int64)
        return int(first_solution(stack_of(given), self.numbers, target, steps))

    def decode(self, tokens: TokensLike) -> str:
        """Return the problem in words and one equation per line."""
        problem, answer = texts(as_array(tokens))
        *given, target = problem.split(",")
        equations = (
            [re.sub(r"([-+*/=])", r" \1 ", equation) for equation in answer.split(",")] if answer else []
        )
        return "\n".join(
            [f"make {target} of {', '.join(given)}", *(f"  {equation}" for equation in equations)]
        )

    def verify(self, tokens: TokensLike) -> list[str]:
        """Return errors of the strict rules.

        Every equation is true, each given or computed number is used at most once, all given numbers are
        used, and the last result is the target.
        """
        problem, answer = texts(as_array(tokens))
        *given, target = numbers_of(problem)
        wrong: list[str] = []
        results: list[int] = []
        for equation in answer.split(","):
            parts = parts_of(equation)
            if parts is None:
                return [*wrong, f"{equation!r} is not an equation"]
            a, operation, b, c = parts
            if not holds(a, operation, b, c):
                wrong.append(f"{equation} is not true")
            for operand in (a, b):
                stock = given if operand in given else results
                if operand in stock:
                    stock.remove(operand)
                else:
                    wrong.append(f"{operand} in {equation} is not there to use")
            results.append(c)
        if c != target:
            wrong.append(f"the last result is {c}, not {target}")
        return wrong + [f"{', '.join(map(str, given))} not used"] * bool(given)

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score samples: lenient (Ye et al.'s, by the equations alone), strict, exact and cells."""
        tokens = as_array(tokens)
        figures: dict[str, Sequence[float]] = {
            "lenient": [lenient(row) for row in tokens],
            "strict": [not self.verify(row) for row in tokens],
        }
        if truth is not None:
            answers = [texts(row)[1] for row in truth.tokens]
            outputs = [texts(row)[1] for row in tokens]
            pairs = list(zip(outputs, answers, strict=True))
            figures["exact"] = [ours == theirs for ours, theirs in pairs]
            figures["cells"] = [agreement(ours, theirs) for ours, theirs in pairs]
        return {name: np.array(values, np.float64) for name, values in figures.items()}
