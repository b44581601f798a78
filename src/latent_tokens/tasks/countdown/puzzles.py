"""Countdown: make the target from the given numbers, each used once, in N - 1 equations (Ye et al., 2025; appendix F.4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_choice, is_whole
from latent_tokens.tasks.base import Examples, Keys, Scores, Tokens, hash_rows, split_by_key
from latent_tokens.tasks.countdown.equations import (
    MOST_NUMBER,
    OPERATIONS,
    draw_puzzles,
    first_solution,
    stack_of,
)

PAD, BOS, EOS, SEP = range(4)
CHARACTERS = ",=+-*/0123456789"  # ids from 4 on
HELD_OUT_TARGETS = (
    14,
    39,
    41,
    57,
    62,
    81,
    87,
    89,
    96,
)  # of the test of Ye et al.: the first nine of shuffle(10..100), seed 4
NUMBER = "(0|[1-9][0-9]*)"
EQUATION = re.compile(f"{NUMBER}([-+*/]){NUMBER}={NUMBER}")


@dataclass(frozen=True)
class Countdown:
    """[BOS] 8,91,30,36,98,55 [SEP] 98-91=7,... [EOS], then PAD, which is part of the answer (D-11, Countdown answer length)."""

    name: str
    numbers: int  # given, beside the target
    num_train: int = 500_000
    targets: tuple[int, int] = (10, 100)  # lowest and highest
    padding: Literal["none", "paper"] = "none"

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
        low, high = self.targets
        if not 1 <= low <= high <= MOST_NUMBER + 1:
            raise ValueError(
                f"targets={low} {high}: must be lowest and highest, within 1 and {MOST_NUMBER + 1}"
            )
        if set(range(low, high + 1)) <= set(HELD_OUT_TARGETS):
            raise ValueError(
                f"targets={low} {high}: all of them are held out for the test; use a wider range"
            )

    @property
    def length(self) -> int:
        """80 for five numbers where the paper's 64 loses 2 % of the puzzles (D-11, Countdown answer length)."""
        return 64 if self.padding == "paper" else 16 * self.numbers

    @property
    def vocab_size(self) -> int:
        return 4 + len(CHARACTERS)

    @property
    def temperature(self) -> float:
        """The paper takes the likeliest token here (D-17, temperature)."""
        return 0.0

    @property
    def metric(self) -> str:
        return "lenient"

    @property
    def room(self) -> int:
        """Positions for an answer and its end: what the longest problem, N numbers of two digits and a target of three, leaves."""
        return self.length - (3 * self.numbers + 5)

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Random targets, each with random numbers 1..99 redrawn until it can be made, and the first solution of the search."""
        numbers = np.empty((count, self.numbers), np.int64)
        targets, steps = np.empty(count, np.int64), np.empty((count, self.numbers - 1, 4), np.int64)
        draw_puzzles(numbers, targets, steps, self.targets[0], self.targets[1], seed, first)
        problems = [",".join(map(str, row)) for row in np.column_stack([numbers, targets]).tolist()]
        answers = [answer_text(row) for row in steps.tolist()]
        return self._rows([pair for pair in zip(problems, answers, strict=True) if self._fits(*pair)])

    def example(self, problem: str, answer: str) -> Examples:
        """One example from texts. Raises ValueError where the problem is none, the answer is wrong, or it does not fit."""
        self._numbers(problem)
        if not self._fits(problem, answer):
            raise ValueError(
                f"{len(problem) + len(answer) + 3} tokens do not fit in the {self.length} of {self.name}, padding={self.padding}"
            )
        made = self._rows([(problem, answer)])
        wrong = self.verify(made.tokens[0])
        if wrong:
            raise ValueError(f"answer {answer!r} is wrong: {wrong[0]}")
        return made

    def _fits(self, problem: str, answer: str) -> bool:
        return (
            len(answer) < self.room
            if self.padding == "none"
            else len(problem) + len(answer) + 3 <= self.length
        )

    def _rows(self, pairs: Sequence[tuple[str, str]]) -> Examples:
        """An example for each (problem, answer); an empty answer leaves only PAD after SEP."""
        given = [len(problem) + 2 for problem, _ in pairs]
        sequences = [
            [BOS, *ids(problem), SEP, *ids(answer), *[EOS][: len(answer)]] for problem, answer in pairs
        ]
        lengths = [self.length if self.padding == "paper" else prompt + self.room for prompt in given]
        return Examples.padded(sequences, given, lengths, self.length, PAD)

    def _numbers(self, problem: str) -> list[int]:
        """The numbers and the target of a problem. Raises ValueError where they are none of this task."""
        low, high = self.targets
        parts = problem.split(",")
        if len(parts) != self.numbers + 1 or not all(re.fullmatch("[1-9][0-9]{0,3}", part) for part in parts):
            hint = (
                "; countdown-3, countdown-4 and countdown (5) take other numbers"
                if len(parts) in (4, 5, 6)
                else ""
            )
            raise ValueError(
                f"problem {problem!r}: must be {self.numbers} numbers and the target, set apart by commas, like 86,28,13,31,96{hint}"
            )
        *given, target = map(int, parts)
        if max(given) > MOST_NUMBER:
            raise ValueError(f"number {max(given)} in {problem!r}: must be 1 to {MOST_NUMBER}")
        if not low <= target <= high:
            raise ValueError(f"target {target} in {problem!r}: must be {low} to {high}")
        return [*given, target]

    def keys(self, examples: Examples) -> Keys:
        """By the sorted numbers and the target."""
        problems = self._problems(examples)
        problems[:, :-1].sort(axis=1)
        return np.asarray(hash_rows(problems))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """The test has the held-out targets; of the others a share is for validation."""
        targets = self._problems(examples)[:, -1]
        return np.where(np.isin(targets, HELD_OUT_TARGETS), 2, split_by_key(self.keys(examples)) == 1).astype(
            np.int8
        )

    def _problems(self, examples: Examples) -> NDArray[np.uint8]:
        """The numbers and the target of each example: (N, numbers + 1)."""
        problems = [numbers_of(problem) for problem, _ in map(texts, examples.tokens)]
        return np.array(problems, np.uint8).reshape(-1, self.numbers + 1)

    def encode(self, text: str) -> Examples:
        """A problem like 86,28,13,31,96: the numbers, then the target."""
        problem = re.sub(r"\s*,\s*", ",", text.strip())
        self._numbers(problem)
        return self._rows([(problem, "")])

    def count_solutions(self, problem: Examples, most: int = 1) -> int:
        """1 where the target can be made, however often, else 0."""
        *given, target = self._numbers(texts(problem.tokens[0])[0])
        return int(
            first_solution(stack_of(given), self.numbers, target, np.empty((self.numbers - 1, 4), np.int64))
        )

    def decode(self, tokens: Tokens) -> str:
        """The problem in words, and an equation a line."""
        problem, answer = texts(tokens)
        *given, target = problem.split(",")
        equations = (
            [re.sub(r"([-+*/=])", r" \1 ", equation) for equation in answer.split(",")] if answer else []
        )
        return "\n".join(
            [f"make {target} of {', '.join(given)}", *(f"  {equation}" for equation in equations)]
        )

    def verify(self, tokens: Tokens) -> list[str]:
        """Strict: every equation true, each given or produced number used at most once, all given numbers used, the target last."""
        problem, answer = texts(tokens)
        *given, target = numbers_of(problem)
        wrong: list[str] = []
        made: list[int] = []
        for equation in answer.split(","):
            parts = parts_of(equation)
            if parts is None:
                return [*wrong, f"{equation!r} is no equation"]
            a, operation, b, c = parts
            if not holds(a, operation, b, c):
                wrong.append(f"{equation} is not true")
            for operand in (a, b):
                stock = given if operand in given else made
                if operand in stock:
                    stock.remove(operand)
                else:
                    wrong.append(f"{operand} in {equation} is not there to use")
            made.append(c)
        if c != target:
            wrong.append(f"the last result is {c}, not {target}")
        return wrong + [f"{', '.join(map(str, given))} not used"] * bool(given)

    def score(self, tokens: Tokens, truth: Examples | None = None) -> Scores:
        """lenient: Ye et al.'s, which looks at the equations alone. strict: nothing to object. exact, cells: against the stored answer."""
        figures = {
            "lenient": [lenient(row) for row in tokens],
            "strict": [not self.verify(row) for row in tokens],
        }
        if truth is not None:
            answers = [texts(row)[1] for row in truth.tokens]
            found = [texts(row)[1] for row in tokens]
            figures["exact"] = [ours == theirs for ours, theirs in zip(found, answers, strict=True)]
            figures["cells"] = [agreement(ours, theirs) for ours, theirs in zip(found, answers, strict=True)]  # type: ignore[misc]
        return {name: np.array(values, np.float64) for name, values in figures.items()}


def ids(text: str) -> list[int]:
    """The tokens of a text. Raises ValueError naming a character that has none."""
    for character in text:
        if character not in CHARACTERS:
            raise ValueError(f"{character!r} in {text!r}: must be one of {CHARACTERS}")
    return [4 + CHARACTERS.index(character) for character in text]


def texts(tokens: Tokens) -> tuple[str, str]:
    """(problem, answer) of one sequence; the answer ends at EOS or PAD, and what is no character shows as ?."""
    row = tokens.tolist()
    sep = row.index(SEP)
    characters = [CHARACTERS[i - 4] if 4 <= i < 4 + len(CHARACTERS) else "?" for i in row]
    end = next((at for at in range(sep + 1, len(row)) if row[at] in (EOS, PAD)), len(row))
    return "".join(characters[1:sep]), "".join(characters[sep + 1 : end])


def answer_text(steps: list[list[int]]) -> str:
    """The equations (a, operation, b, c) as the data write them."""
    return ",".join(f"{a}{OPERATIONS[operation]}{b}={c}" for a, operation, b, c in steps)


def numbers_of(problem: str) -> list[int]:
    """The numbers of a problem, the target last."""
    return [int(number) for number in problem.split(",")]


def parts_of(equation: str) -> tuple[int, str, int, int] | None:
    """(a, operation, b, c) of a text a operation b = c, or None where it is no equation."""
    parts = EQUATION.fullmatch(equation)
    return parts and (int(parts[1]), parts[2], int(parts[3]), int(parts[4]))


def holds(a: int, operation: str, b: int, c: int) -> bool:
    """Whether a operation b = c, division without remainder."""
    return {"+": a + b == c, "-": a - b == c, "*": a * b == c, "/": b != 0 and a == b * c}[operation]


def lenient(tokens: Tokens) -> bool:
    """Whether every equation is true and the last result is the target, whatever the operands (Ye et al.'s evaluation)."""
    problem, answer = texts(tokens)
    parts = [parts_of(equation) for equation in answer.split(",")]
    return (
        all(part and holds(*part) for part in parts) and answer.rsplit("=", 1)[1] == problem.rsplit(",", 1)[1]
    )


def agreement(found: str, stored: str) -> float:
    """The share of the stored answer's characters, its end included, that are found in their place."""
    return sum(a == b for a, b in zip(found + "$", stored + "$", strict=False)) / (len(stored) + 1)
