"""Countdown: make the target from N numbers in N - 1 equations (Ye et al., 2025; appendix G.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_choice, check_int, is_whole
from latent_tokens.tasks.base import BOS, EOS, PAD, SEP, Keys, Scores, hash_rows, split_by_key
from latent_tokens.tasks.examples import Examples, Tokens, TokensLike, as_array, one_sequence
from latent_tokens.tasks.rng import below, start_stream

CHARACTERS = ",=+-*/0123456789"  # ids from 4 on
TOKEN_NAMES = ("[PAD]", "[BOS]", "[EOS]", "[SEP]", *CHARACTERS)
NUMBER = "(0|[1-9][0-9]*)"
EQUATION = re.compile(f"{NUMBER}([-+*/]){NUMBER}={NUMBER}")
OPERATIONS = "+*-/"  # in the order in which they are tried

MOST_NUMBER = 99
# Of the test of Ye et al.: the first nine of shuffle(10..100), seed 4.
HELD_OUT_TARGETS = (14, 39, 41, 57, 62, 81, 87, 89, 96)
RESULT_DIGITS = {3: (4,), 4: (4, 4), 5: (4, 6, 4)}
"""By the count of numbers, the digits of the results before the last in the longest answer.

A product of two numbers has at most 4 digits. So has the second last result, at most 100 * 99, as one more
number turns it into a target of at most 100. With five numbers a product of three, of 6 digits, may be
between the two."""


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


def parts_of(equation: str) -> tuple[int, str, int, int] | None:
    """Return (a, operation, b, c) of an equation, or None if the text is not one."""
    parts = EQUATION.fullmatch(equation)
    return parts and (int(parts[1]), parts[2], int(parts[3]), int(parts[4]))


def holds(a: int, operation: str, b: int, c: int) -> bool:
    """Return whether a operation b = c, with division without remainder."""
    is_true = {"+": a + b == c, "-": a - b == c, "*": a * b == c, "/": b != 0 and a == b * c}
    return is_true[operation]


def lenient(tokens: Tokens) -> bool:
    """Return whether all equations are true and the last result is the target (Ye et al.'s evaluation)."""
    problem, answer = texts(tokens)
    parts = [parts_of(equation) for equation in answer.split(",")]
    is_true = all(part and holds(*part) for part in parts)
    return is_true and answer.rsplit("=", 1)[1] == problem.rsplit(",", 1)[1]


def agreement(answer: str, stored: str) -> float:
    """Return the share of the stored answer's characters, its end included, that agree."""
    return sum(a == b for a, b in zip(answer + "$", stored + "$", strict=False)) / (len(stored) + 1)


def longest_answer(count: int) -> int:
    """Return the number of characters of the longest answer with `count` numbers.

    Every given number of 2 digits is written once and every result before the last twice. The last
    result, the target, has at most 3 digits. An equation has two signs, and commas are between
    equations.

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
def draw_number_puzzles(numbers, targets, steps, low, high, seed, first):  # type: ignore[no-untyped-def]
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


@dataclass(frozen=True)
class Countdown:
    """[BOS] 8,91,30,36,98,55 [SEP] 98-91=7,... [EOS], then PAD.

    PAD is part of the answer (D-11, Countdown answer length).

    Example:
        >>> TASKS["countdown-3"].generate(2, seed=0).tokens.shape
        (2, 37)
    """

    name: str
    numbers: int  # given, without the target: 3, 4 or 5
    num_train: int = 500_000
    targets: tuple[int, int] = (10, 100)  # lowest and highest
    padding: Literal["none", "paper"] = "none"
    answer_length: int | None = None  # with padding "none". None: of the longest, with its end

    symbols = TOKEN_NAMES
    vocab_size = len(TOKEN_NAMES)
    metric = "lenient"
    temperature = 0.0  # as in the paper (D-17, temperature)

    def __post_init__(self) -> None:
        check_choice("padding", self.padding, ("none", "paper"))
        if not is_whole(self.numbers) or self.numbers not in RESULT_DIGITS:
            raise ValueError(f"numbers={self.numbers}: must be 3, 4 or 5")
        if self.answer_length is not None:
            check_int("answer_length", self.answer_length, 1)
        targets = self.targets if isinstance(self.targets, tuple) else ()
        typed = f"targets={' '.join(map(str, targets)) or self.targets}"
        whole = [target for target in targets if is_whole(target, 1) and target <= 100]
        if len(whole) != len(targets) or len(whole) != 2 or whole != sorted(whole):
            raise ValueError(f"{typed}: must be lowest and highest, whole numbers within 1 and 100")
        if {*range(targets[0], targets[1] + 1)} <= {*HELD_OUT_TARGETS}:
            raise ValueError(f"{typed}: all of them are held out for the test. Use a wider range.")

    @property
    def length(self) -> int:
        """L: the longest problem with the longest answer. The paper's 64 loses 2%."""
        return 64 if self.padding == "paper" else 3 * self.numbers + 5 + self.room

    @property
    def pad(self) -> int | None:
        """The token after the end of an answer, which training never masks first from left to right.

        It is None with padding "paper" or an `answer_length` (D-6, AR-MTP first masked position).
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
        draw_number_puzzles(numbers, targets, steps, self.targets[0], self.targets[1], seed, first)
        problems = [",".join(map(str, row)) for row in np.column_stack([numbers, targets]).tolist()]
        answers = [answer_text(row) for row in steps.tolist()]
        pairs = zip(problems, answers, strict=True)
        return self._rows([pair for pair in pairs if self._fits(*pair)])

    def example(self, problem: str, answer: str) -> Examples:
        """Return one example from texts. Raise ValueError if the answer is wrong or does not fit."""
        self._numbers(problem)
        if not self._fits(problem, answer):
            raise ValueError(
                f"answer {answer[:80]!r}: does not fit in the {self.length} tokens of {self.name}"
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
        lengths = [prompt + self.room for prompt in given]
        if self.padding == "paper":
            lengths = [self.length] * len(pairs)
        sequences = [
            [BOS, *ids(problem), SEP, *ids(answer), *[EOS][: len(answer)]]
            for problem, answer in pairs
        ]
        return Examples.padded(sequences, given, self.length, lengths, PAD)

    def _numbers(self, problem: str) -> list[int]:
        """Return the numbers and the target of a problem. Raise ValueError if they are none of this task."""
        if not re.fullmatch(rf"([1-9][0-9]*,){{{self.numbers}}}[1-9][0-9]*", problem):
            other = "countdown-3, countdown-4 and countdown (5) take other numbers"
            must = f"must be {self.numbers} numbers and the target, like 86,28,13,31,96"
            raise ValueError(f"problem {problem!r}: {must}. {other}")
        *given, target = numbers_of(problem)
        low, high = self.targets
        if max(given) > MOST_NUMBER:
            raise ValueError(f"number {max(given)} in {problem!r}: must be 1 to {MOST_NUMBER}")
        if not low <= target <= high:
            raise ValueError(f"target {target} in {problem!r}: must be {low} to {high}")
        return [*given, target]

    def keys(self, examples: Examples) -> Keys:
        """Return a key per example: of the sorted numbers and the target."""
        problems = self._problems(examples)
        problems[:, :-1].sort(axis=1)
        return np.asarray(hash_rows(problems))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each example. The test has the held-out targets, and validation a share."""
        is_held_out = np.isin(self._problems(examples)[:, -1], HELD_OUT_TARGETS)
        is_validation = split_by_key(self.keys(examples)) == 1
        return np.where(is_held_out, 2, is_validation).astype(np.int8)

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

    @property
    def answer_format(self) -> str:
        """The form of an answer in words."""
        return "equations separated by commas or lines, like 86+28=114,114-13=101"

    def prompt(self, problem: Examples) -> str:
        """Return the numbers and the target, which `encode` reads."""
        return texts(problem.tokens[0])[0]

    def answered(self, problem: Examples, text: str) -> Examples:
        """Return a problem with equations as its answer. Raise ValueError for another text."""
        equations = [re.sub(r"\s", "", line) for line in re.split(r"[,\n]", text.strip())]
        for equation in equations:
            if parts_of(equation) is None:
                raise ValueError(f"{equation[:80]!r} is not an equation")
        prompt, answer = self.prompt(problem), ",".join(equations)
        if not self._fits(prompt, answer):
            raise ValueError(f"{len(answer)} characters do not fit in {self.length} tokens")
        return self._rows([(prompt, answer)])

    def decode(self, tokens: TokensLike) -> str:
        """Return the problem in words and one equation per line."""
        problem, answer = texts(one_sequence(tokens))
        *given, target = problem.split(",")
        lines = [f"make {target} of {', '.join(given)}"]
        for equation in filter(None, answer.split(",")):
            lines.append("  " + re.sub(r"([-+*/=])", r" \1 ", equation))
        return "\n".join(lines)

    def verify(self, tokens: TokensLike) -> list[str]:
        """Return errors of the strict rules.

        Every equation is true, each given or computed number is used at most once, all given
        numbers are used, the last result is the target, and [EOS] follows it.
        """
        row = one_sequence(tokens)
        problem, answer = texts(row)
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
        end = len(problem) + 2 + len(answer)  # after [BOS], the problem and [SEP]
        if EOS not in row[end : end + 1]:
            wrong.append("[EOS] does not follow the last result")
        return wrong + [f"{', '.join(map(str, given))} not used"] * bool(given)

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score samples: lenient (Ye et al.'s, by the equations alone), strict, exact and cells."""
        tokens = as_array(tokens)
        figures: dict[str, Sequence[float]] = {
            "lenient": [lenient(row) for row in tokens],
            "strict": [not self.verify(row) for row in tokens],
        }
        if truth is not None:
            ours = [texts(row)[1] for row in tokens]
            theirs = [texts(row)[1] for row in truth.tokens]
            figures["exact"] = [a == b for a, b in zip(ours, theirs, strict=True)]
            figures["cells"] = [agreement(a, b) for a, b in zip(ours, theirs, strict=True)]
        return {name: np.array(values, np.float64) for name, values in figures.items()}
