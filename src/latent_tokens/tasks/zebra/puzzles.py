"""Zebra (Einstein) puzzles in the clue language of Shah et al. (2024): n houses in a row, m attributes, one solution (appendix F.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_choice, is_whole
from latent_tokens.tasks.base import Examples, Keys, Scores, Tokens, split_by_key
from latent_tokens.tasks.zebra import clues as rules

WORDS = (  # in the release's order
    "<PAD>", "<BOS>", "<EOS>", "<SEP>", "0", "1", "2", "3", "4", "5", "!=", "=", "ANSWER", "CLUE_END", "LHS", "RHS",
    "c", "ends", "immediate-left", "inbetween", "left-of", "n", "nbr",
)  # fmt: skip
IDS = {word: number for number, word in enumerate(WORDS)}
PAD, BOS, EOS, SEP, DIGIT = 0, 1, 2, 3, 4
ARITY = {"=": 2, "!=": 2, "immediate-left": 2, "left-of": 2, "nbr": 2, "ends": 1, "inbetween": 3}
SAYS = {
    "=": "{0} is in the same house as {1}",
    "!=": "{0} is not in the same house as {1}",
    "immediate-left": "{0} is immediately left of {1}",
    "left-of": "{0} is somewhere left of {1}",
    "nbr": "{0} is next to {1}",
    "ends": "{0} is in the first or the last house",
    "inbetween": "{0}, {1} and {2} are in this order from left to right",
}
MANY = 3, 4, 5, 6
MOST_NODES = 100_000  # a puzzle that needs more is given up

Puzzle = tuple[NDArray[np.int8], int, int]  # clues (C, 4) as tasks.clues has them, houses, attributes


@dataclass(frozen=True)
class Zebra:
    """[BOS] clues 0 1 .. n-1 [SEP] table, a row an attribute; the answer's length follows from the clues, so nothing stands after it.

    With padding = "paper", [EOS] and PAD follow and are predicted too.
    """

    name: str
    houses: tuple[int, ...] = MANY  # the numbers of houses, and of attributes, to draw from
    attributes: tuple[int, ...] = MANY
    num_train: int = 1_500_000
    length: int = 384
    padding: Literal["none", "paper"] = "none"

    def __post_init__(self) -> None:
        check_choice("padding", self.padding, ("none", "paper"))
        for name, sizes in (("houses", self.houses), ("attributes", self.attributes)):
            if not isinstance(sizes, tuple) or not all(map(is_whole, sizes)):
                raise ValueError(f"{name}={sizes}: must be whole numbers, each 3 to 6")
            if not sizes or not set(sizes) <= set(MANY):
                raise ValueError(
                    f"{name}={' '.join(map(str, sizes))}: each must be 3 to 6, as the paper's are"
                )

    @property
    def vocab_size(self) -> int:
        return len(WORDS)

    @property
    def metric(self) -> str:
        return "exact"

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Random tables with random true clues, as many as propagation needs to solve it and none more: the solution is the only one."""
        sizes = np.array(
            [(houses, attributes) for houses in self.houses for attributes in self.attributes], np.int64
        )
        tokens = np.zeros((count, self.length), np.uint8)
        given, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
        rules.draw_puzzles(tokens, given, lengths, sizes, seed, first)
        fits = (lengths > 0) & (lengths < self.length)
        return self._ended(tokens[fits], given[fits], lengths[fits])

    def _ended(self, tokens: Tokens, given: NDArray[np.int64], lengths: NDArray[np.int64]) -> Examples:
        """Examples of whole sequences, with the end that the padding asks for."""
        known = np.arange(self.length) < given[:, None]
        if self.padding == "paper":
            tokens[np.arange(len(tokens)), lengths] = EOS
            lengths = np.full_like(lengths, self.length)
        return Examples(tokens, known, lengths.astype(np.uint16))

    def example(self, words: Sequence[str], houses: int, table: Sequence[Sequence[int]]) -> Examples:
        """One example from clue tokens and the answer, a row an attribute. Raises ValueError where they are none, or the answer is wrong
        or not the only one."""
        problem = self._problem([*words, *map(str, range(houses))])
        _, _, attributes = read_prompt(problem.tokens[0])
        if [len(row) for row in table] != [houses] * attributes:
            raise ValueError(
                f"answer of {len(table)} rows: must have {attributes} of {houses} values, as the clues say"
            )
        start = int(problem.known[0].sum())
        end = start + houses * attributes
        tokens = problem.tokens.copy()
        tokens[0, start:end] = [
            DIGIT + value if 0 <= value < houses else PAD for row in table for value in row
        ]
        wrong = self.verify(tokens[0])
        if wrong:
            raise ValueError(f"the answer is wrong: {wrong[0]}")
        count = self.count_solutions(problem)
        if count != 1:
            raise ValueError(
                f"the clues {'are too many cases to search through' if count is None else 'have several solutions'}"
            )
        return self._ended(tokens, np.array([start]), np.array([end]))

    def _problem(self, words: Sequence[str]) -> Examples:
        """The example without answer of a prompt in words. Raises ValueError for one that is none, or of a size that the task has not."""
        unknown = [word for word in words if word not in IDS or word.startswith("<")]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is no word of a puzzle: must be one of {' '.join(WORDS[DIGIT:])}"
            )
        prompt = [BOS, *(IDS[word] for word in words), SEP]
        _, houses, attributes = read_prompt(np.array(prompt, np.uint8))
        for name, found, allowed in (
            ("houses", houses, self.houses),
            ("attributes", attributes, self.attributes),
        ):
            if found not in allowed:
                raise ValueError(
                    f"puzzle of {found} {name}: {self.name} has {' or '.join(map(str, allowed))}"
                )
        end = len(prompt) + houses * attributes
        if end >= self.length:
            raise ValueError(f"puzzle of {end} tokens: {self.name} has room for {self.length - 1}")
        length = self.length if self.padding == "paper" else end
        return Examples.padded([prompt], [len(prompt)], [length], self.length, PAD)

    def keys(self, examples: Examples) -> Keys:
        """By the multiset of clues and the houses."""
        return np.asarray(rules.clue_keys(examples.tokens))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """By key."""
        return split_by_key(self.keys(examples))

    def encode(self, text: str) -> Examples:
        """A puzzle as its tokens set apart by blanks: the clues, each up to its CLUE_END, then the houses as 0 1 2."""
        return self._problem(text.split())

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """How many tables (at most `most`) agree with the clues; None where the search ran too long to tell."""
        puzzle, houses, attributes = read_prompt(problem.tokens[0])
        nodes = np.array([MOST_NODES])
        found = rules.count_solutions(puzzle, rules.open_domains(houses), houses, attributes, most, nodes)
        return int(found) if nodes[0] > 0 or found == most else None

    def decode(self, tokens: Tokens) -> str:
        """The clues in words, attributes as letters, values and houses from 1; then the table."""
        puzzle, houses, attributes = read_prompt(tokens)
        table = answer(tokens, houses, attributes)
        lines = [
            f"{houses} houses; of each attribute, A to {letter(attributes - 1)}, every house has another value, 1 to {houses}"
        ]
        lines += [f"{number:3}. {in_words(clue)}" for number, clue in enumerate(puzzle, start=1)]
        lines += ["", "house  " + "".join(f"{house + 1:<4}" for house in range(houses))]
        for attribute, row in enumerate(table):
            lines.append(
                "       "
                + "".join(
                    (value_name(attribute, value) if 0 <= value < houses else ".").ljust(4)
                    for value in row.tolist()
                )
            )
        return "\n".join(line.rstrip() for line in lines)

    def verify(self, tokens: Tokens) -> list[str]:
        """The rows of the table that lack a value, the clues that are not true of it, and an end that is missing."""
        puzzle, houses, attributes = read_prompt(tokens)
        table = answer(tokens, houses, attributes)
        lacking = [
            f"attribute {letter(i)} lacks a value"
            for i, row in enumerate(table)
            if sorted(row.tolist()) != list(range(houses))
        ]
        untrue = [f"not true: {in_words(clue)}" for clue in puzzle[~true_clues(puzzle, table)]]
        return [
            *lacking,
            *untrue,
            *["the answer goes on after its table"] * (not self._framed(tokens, table.size)),
        ]

    def score(self, tokens: Tokens, truth: Examples | None = None) -> Scores:
        """valid: every clue true of a whole table. clues: the share that is. exact, cells, rows: against the stored table."""
        names = ("valid", "clues") if truth is None else ("valid", "clues", "exact", "cells", "rows")
        figures: dict[str, list[float]] = {name: [] for name in names}
        for i, row in enumerate(tokens):
            puzzle, houses, attributes = read_prompt(row)
            table = answer(row, houses, attributes)
            figures["valid"].append(not self.verify(row))
            figures["clues"].append(true_clues(puzzle, table).mean())
            if truth is not None:
                same = table == answer(truth.tokens[i], houses, attributes)
                figures["exact"].append(same.all() and self._framed(row, same.size))
                figures["cells"].append(same.mean())
                figures["rows"].append(same.all(1).mean())
        return {name: np.array(values, np.float64) for name, values in figures.items()}

    def _framed(self, tokens: Tokens, count: int) -> bool:
        """Whether the answer of `count` cells ends where it should, for a padding that predicts its end."""
        end = tokens.tolist().index(SEP) + 1 + count
        return self.padding == "none" or (end < self.length and int(tokens[end]) in (EOS, PAD))


def read_prompt(tokens: Tokens) -> Puzzle:
    """The clues, houses and attributes of a sequence up to SEP. Raises ValueError naming the clue that is none."""
    end = tokens.tolist().index(SEP)
    words = [WORDS[token] for token in tokens[:end].tolist()]
    last = max((at for at in range(end) if words[at] == "CLUE_END"), default=0)
    houses = end - last - 1
    if not (last and houses) or words[last + 1 : end] != [str(house) for house in range(houses)]:
        raise ValueError("no row of houses: after the last CLUE_END must stand the houses, like 0 1 2")
    found, start = [], 1
    for at in range(1, last + 1):
        if words[at] == "CLUE_END":
            found.append(read_clue(words[start:at], houses))
            start = at + 1
    puzzle = np.array(found, np.int8)
    named = puzzle[:, 1:][puzzle[:, 1:] < rules.HOUSE]
    attributes = int(named.max()) // rules.MOST + 1 if len(named) else 0
    silent = set(range(attributes)) - set((named // rules.MOST).tolist())
    if silent or not attributes:
        raise ValueError(
            f"no clue names attribute {min(silent, default=0)}: the puzzle cannot have one solution"
        )
    return puzzle, houses, attributes


def read_clue(words: list[str], houses: int) -> list[int]:
    """A clue from its words without CLUE_END, as tasks.clues has it. Raises ValueError naming it where it is none."""
    kind, *rest = words or [""]
    arity = ARITY.get(kind, 0)
    references = [rest[at : at + 3] for at in (1, 5, 8)[:arity]]
    framed = arity and len(rest) == 2 + 3 * arity and (rest[0], rest[4]) == ("LHS", "RHS")
    if not framed or not all(is_reference(reference, houses) for reference in references):
        raise ValueError(
            f"clue {' '.join(words)!r}: must be like '= LHS c 0 1 RHS c 2 0', with values and houses below {houses}"
        )
    numbers = [
        (rules.HOUSE if sort == "n" else rules.MOST * int(row)) + int(value)
        for sort, row, value in references
    ]
    return [IDS[kind], *numbers, *[rules.NOWHERE] * (3 - len(numbers))]


def is_reference(words: list[str], houses: int) -> bool:
    """Whether the words are `c ATTRIBUTE VALUE` or `n 0 HOUSE`."""
    sort, row, value = words if len(words) == 3 else ("", "", "")
    digits = row.isdigit() and value.isdigit()
    return digits and int(value) < houses and (sort == "c" or (sort == "n" and row == "0"))


def answer(tokens: Tokens, houses: int, attributes: int) -> NDArray[np.int64]:
    """The table (attributes, houses) of a sequence; -1 or a value past the houses where there is none."""
    start = tokens.tolist().index(SEP) + 1
    cells = tokens[start : start + houses * attributes].astype(np.int64) - DIGIT
    full = np.full(houses * attributes, -1)
    full[: len(cells)] = np.where((cells >= 0) & (cells < rules.MOST), cells, -1)
    return full.reshape(attributes, houses)


def true_clues(puzzle: NDArray[np.int8], table: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which clues are true of a table; one is not where a value that it names stands in no house or in several."""
    attributes, houses = table.shape
    place = np.full(rules.NOWHERE + 1, -1)
    place[rules.HOUSE : rules.HOUSE + houses] = np.arange(houses)
    place[rules.NOWHERE] = 0
    for attribute in range(attributes):
        for value in range(houses):
            found = np.flatnonzero(table[attribute] == value)
            if len(found) == 1:
                place[rules.MOST * attribute + value] = found[0]
    where = place[puzzle[:, 1:]]
    true = [
        min(w) >= 0 and rules.holds(clue[0], w[0], w[1], w[2], houses)
        for clue, w in zip(puzzle.tolist(), where.tolist(), strict=True)
    ]
    return np.array(true, np.bool_)


def in_words(clue: NDArray[np.int8]) -> str:
    """A clue as a sentence."""
    kind, *references = clue.tolist()
    names = [
        f"house {r - rules.HOUSE + 1}" if r >= rules.HOUSE else value_name(*divmod(r, rules.MOST))
        for r in references
        if r != rules.NOWHERE
    ]
    sentence = SAYS[WORDS[kind]].format(*names)
    return sentence.replace("in the same house as house", "in house")


def value_name(attribute: int, value: int) -> str:
    """A value of an attribute, like A2."""
    return f"{letter(attribute)}{value + 1}"


def letter(attribute: int) -> str:
    """An attribute's letter."""
    return "ABCDEF"[attribute]
