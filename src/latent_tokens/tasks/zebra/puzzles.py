"""Zebra (Einstein) puzzles of Shah et al. (2024): houses in a row, with attributes (appendix G.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_choice
from latent_tokens.tasks.base import BOS, EOS, PAD, SEP, Keys, Scores, split_by_key
from latent_tokens.tasks.examples import Examples, Tokens, TokensLike, as_array, one_sequence
from latent_tokens.tasks.zebra import clues as rules
from latent_tokens.tasks.zebra.clues import DIGIT, draw_puzzles

# In the order of the release.
SPECIAL = ("<PAD>", "<BOS>", "<EOS>", "<SEP>")
VALUE_WORDS = ("0", "1", "2", "3", "4", "5")
MARKS = ("!=", "=", "ANSWER", "CLUE_END", "LHS", "RHS", "c")
RELATIONS = ("ends", "immediate-left", "inbetween", "left-of", "n", "nbr")
WORDS = (*SPECIAL, *VALUE_WORDS, *MARKS, *RELATIONS)
IDS = {word: number for number, word in enumerate(WORDS)}

MANY = 3, 4, 5, 6  # houses or attributes
MOST_SEARCHED = 100_000  # of the search for solutions
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

# Clues (C, 4) as in tasks.zebra.clues, houses, attributes
Puzzle = tuple[NDArray[np.int8], int, int]


def read_prompt(tokens: Tokens) -> Puzzle:
    """Return the clues, houses and attributes of a prompt. Raise ValueError naming a wrong clue."""
    # The row of houses follows the last clue.
    prompt = tokens[: tokens.tolist().index(SEP)].tolist()
    *clue_words, row = " ".join(WORDS[token] for token in prompt[1:]).split("CLUE_END")
    houses = len(row.split())
    if not (clue_words and houses) or row.split() != [str(house) for house in range(houses)]:
        raise ValueError("no row of houses: after the last CLUE_END must be the houses, like 0 1 2")
    puzzle = np.array([read_clue(words.split(), houses) for words in clue_words], np.int8)

    # Count the attributes, each of which a clue must name.
    named = {reference // rules.MOST for reference in puzzle[:, 1:].flat if reference < rules.HOUSE}
    attributes = int(max(named, default=-1)) + 1
    unnamed = min(set(range(attributes)) - named, default=0)
    if len(named) < attributes or not attributes:
        raise ValueError(f"no clue names attribute {unnamed}: the puzzle cannot have one solution")
    return puzzle, houses, attributes


def read_clue(words: list[str], houses: int) -> list[int]:
    """Return a clue from its words without CLUE_END. Raise ValueError if it is not one."""
    kind, *rest = words or [""]
    arity = ARITY.get(kind, 0)
    references = [rest[at : at + 3] for at in (1, 5, 8)[:arity]]
    framed = arity and len(rest) == 2 + 3 * arity and (rest[0], rest[4]) == ("LHS", "RHS")
    if not framed or not all(is_reference(reference, houses) for reference in references):
        problem = "must be like '= LHS c 0 1 RHS c 2 0', with values and houses"
        raise ValueError(f"clue {' '.join(words)!r}: {problem} below {houses}")
    numbers = [
        (rules.HOUSE if sort == "n" else rules.MOST * int(row)) + int(value)
        for sort, row, value in references
    ]
    return [IDS[kind], *numbers, *[rules.NOWHERE] * (3 - len(numbers))]


def is_reference(words: list[str], houses: int) -> bool:
    """Return whether the words are `c ATTRIBUTE VALUE` or `n 0 HOUSE`."""
    sort, row, value = words
    digits = row.isdigit() and value.isdigit()
    return digits and int(value) < houses and (sort == "c" or (sort == "n" and row == "0"))


def answered_table(tokens: Tokens, houses: int, attributes: int) -> NDArray[np.int64]:
    """Return the table (attributes, houses) of a sequence, -1 or a number beyond the houses for no value."""
    start = tokens.tolist().index(SEP) + 1
    cells = tokens[start : start + houses * attributes].astype(np.int64) - DIGIT
    full = np.full(houses * attributes, -1)
    full[: len(cells)] = np.where((cells >= 0) & (cells < rules.MOST), cells, -1)
    return full.reshape(attributes, houses)


def true_clues(puzzle: NDArray[np.int8], table: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which clues are true. One is false if a value that it names is not in exactly one house."""
    attributes, houses = table.shape
    place = np.full(rules.NOWHERE + 1, -1)
    place[rules.HOUSE : rules.HOUSE + houses] = np.arange(houses)
    place[rules.NOWHERE] = 0
    for attribute in range(attributes):
        for value in range(houses):
            at = np.flatnonzero(table[attribute] == value)
            if len(at) == 1:
                place[rules.MOST * attribute + value] = at[0]
    where = place[puzzle[:, 1:]]
    true = [
        min(w) >= 0 and rules.clue_holds(clue[0], w[0], w[1], w[2], houses)
        for clue, w in zip(puzzle.tolist(), where.tolist(), strict=True)
    ]
    return np.array(true, np.bool_)


def clue_in_words(clue: NDArray[np.int8]) -> str:
    """Return a clue as a sentence."""
    kind, *references = clue.tolist()
    names = [
        f"house {r - rules.HOUSE + 1}" if r >= rules.HOUSE else value_name(*divmod(r, rules.MOST))
        for r in references
        if r != rules.NOWHERE
    ]
    sentence = SAYS[WORDS[kind]].format(*names)
    return sentence.replace("in the same house as house", "in house")


def value_name(attribute: int, value: int) -> str:
    """Return the name of a value, like A2."""
    return f"{letter(attribute)}{value + 1}"


def letter(attribute: int) -> str:
    """Return the letter of an attribute."""
    return "ABCDEF"[attribute]


@dataclass(frozen=True)
class Zebra:
    """[BOS] clues 0 1 .. n-1 [SEP] table, with one row of the table per attribute.

    The clues determine the length of the answer, so no end follows. With padding = "paper", [EOS]
    and PAD follow and are predicted too.

    Example:
        >>> TASKS["zebra-3"].generate(2, seed=0).tokens.shape
        (2, 96)
    """

    name: str
    houses: tuple[int, ...] = MANY  # the numbers to draw from, each 3 to 6
    attributes: tuple[int, ...] = MANY  # likewise
    num_train: int = 1_500_000
    length: int = 384  # longer puzzles are left out
    padding: Literal["none", "paper"] = "none"

    symbols = WORDS
    vocab_size = len(WORDS)
    metric = "exact"

    def __post_init__(self) -> None:
        check_choice("padding", self.padding, ("none", "paper"))
        for name, sizes in (("houses", self.houses), ("attributes", self.attributes)):
            if not isinstance(sizes, tuple) or not sizes or not all(size in MANY for size in sizes):
                typed = " ".join(map(str, sizes)) if isinstance(sizes, tuple) else sizes
                raise ValueError(f"{name}={typed}: each must be 3 to 6")

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate random tables with a minimal set of true clues that propagation solves."""
        sizes = np.array(list(product(self.houses, self.attributes)), np.int64)
        tokens = np.zeros((count, self.length), np.uint8)
        given = np.zeros(count, np.int64)
        lengths = np.zeros(count, np.int64)
        draw_puzzles(tokens, given, lengths, sizes, seed, first)
        fits = (lengths > 0) & (lengths < self.length)
        return self._with_end(tokens[fits], given[fits], lengths[fits])

    def _with_end(
        self, tokens: Tokens, given: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Examples:
        """Return examples of sequences, with the end that the padding asks for."""
        known = np.arange(self.length) < given[:, None]
        if self.padding == "paper":
            tokens[np.arange(len(tokens)), lengths] = EOS
            lengths = np.full_like(lengths, self.length)
        return Examples(tokens, known, lengths.astype(np.uint16))

    def example(
        self, words: Sequence[str], houses: int, table: Sequence[Sequence[int]]
    ) -> Examples:
        """Return one example of the tokens of clues, and the answer, one row per attribute.

        Raise ValueError if the clues are no puzzle, or the answer is wrong or not unique.
        """
        problem = self._problem([*words, *map(str, range(houses))])
        _, _, attributes = read_prompt(problem.tokens[0])
        if [len(row) for row in table] != [houses] * attributes:
            raise ValueError(
                f"answer of {len(table)} rows: must have {attributes} of {houses} values"
            )
        start = int(problem.known[0].sum())
        end = start + houses * attributes
        tokens = problem.tokens.copy()
        values = np.array(table).ravel()
        tokens[0, start:end] = np.where((values >= 0) & (values < houses), DIGIT + values, PAD)
        wrong = self.verify(tokens[0])
        if wrong:
            raise ValueError(f"the answer is wrong: {wrong[0]}")
        count = self.count_solutions(problem)
        if count != 1:
            reason = "several solutions" if count else "too many cases to search through"
            raise ValueError(f"the clues have {reason}")
        return self._with_end(tokens, np.array([start]), np.array([end]))

    def _problem(self, words: Sequence[str]) -> Examples:
        """Return a prompt in words as an example. Raise ValueError if it is not a puzzle of this task."""
        unknown = [word for word in words if word not in IDS or word.startswith("<")]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is not a word of a puzzle: must be one of {' '.join(WORDS[DIGIT:])}"
            )
        prompt = [BOS, *(IDS[word] for word in words), SEP]
        _, houses, attributes = read_prompt(np.array(prompt, np.uint8))
        sizes = {"houses": (houses, self.houses), "attributes": (attributes, self.attributes)}
        for name, (number, allowed) in sizes.items():
            if number not in allowed:
                sizes_of_task = " or ".join(map(str, allowed))
                raise ValueError(f"puzzle of {number} {name}: {self.name} has {sizes_of_task}")
        end = len(prompt) + houses * attributes
        if end >= self.length:
            raise ValueError(f"puzzle of {end} tokens: {self.name} has room for {self.length - 1}")
        length = self.length if self.padding == "paper" else end
        return Examples.padded([prompt], [len(prompt)], self.length, [length], PAD)

    def keys(self, examples: Examples) -> Keys:
        """Return keys of the multiset of clues and the houses."""
        return np.asarray(rules.clue_keys(examples.tokens))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return splits by key."""
        return split_by_key(self.keys(examples))

    def encode(self, text: str) -> Examples:
        """Return a puzzle from its tokens as text: clues that end in CLUE_END, and houses as 0 1 2."""
        return self._problem(text.split())

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return how many tables (at most `most`) agree with the clues, None if it takes too long."""
        puzzle, houses, attributes = read_prompt(problem.tokens[0])
        nodes = np.array([MOST_SEARCHED])
        domains = rules.open_domains(houses)
        count = rules.count_solutions(puzzle, domains, houses, attributes, most, nodes)
        return int(count) if nodes[0] > 0 or count == most else None

    @property
    def answer_format(self) -> str:
        """The form of an answer in words."""
        return "the value of each house, attribute by attribute, like A2 A1 A3 B1 B3 B2 or 213 132"

    def prompt(self, problem: Examples) -> str:
        """Return the clues and the houses as tokens, which `encode` reads."""
        tokens = problem.tokens[0].tolist()
        return " ".join(WORDS[token] for token in tokens[1 : tokens.index(SEP)])

    def answered(self, problem: Examples, text: str) -> Examples:
        """Return a puzzle with a table as its answer. Raise ValueError for another text.

        Values with letters, like A2, may come in any order of the attributes: B1 A2 is house by
        house. Without letters they are attribute by attribute.
        """
        _, houses, attributes = read_prompt(problem.tokens[0])
        names = re.findall(r"([A-Za-z]?)([0-9])", text)
        if any(name for name, _ in names):
            names.sort(key=lambda pair: pair[0].upper())
            expected = [letter(attribute) for attribute in range(attributes) for _ in range(houses)]
            if [name.upper() for name, _ in names] != expected:
                raise ValueError(f"must have {houses} values of each of A to {expected[-1]}")
        values = [int(digit) - 1 for _, digit in names]
        if len(values) != houses * attributes or not all(0 <= value < houses for value in values):
            raise ValueError(f"must be {attributes} x {houses} values of 1 to {houses}")
        tokens = problem.tokens.copy()
        start = tokens[0].tolist().index(SEP) + 1
        tokens[0, start : start + len(values)] = [DIGIT + value for value in values]
        return Examples(tokens, problem.known, problem.lengths)

    def decode(self, tokens: TokensLike) -> str:
        """Return the clues in words, attributes as letters, values and houses from 1, and the table."""
        tokens = one_sequence(tokens)
        puzzle, houses, attributes = read_prompt(tokens)
        table = answered_table(tokens, houses, attributes)
        lines = [
            f"{houses} houses; of each attribute, A to {letter(attributes - 1)}, "
            f"every house has another value, 1 to {houses}"
        ]
        lines += [
            f"{number:3}. {clue_in_words(clue)}" for number, clue in enumerate(puzzle, start=1)
        ]
        lines += ["", "house  " + "".join(f"{house + 1:<4}" for house in range(houses))]
        for attribute, row in enumerate(table):
            names = [
                value_name(attribute, value) if 0 <= value < houses else "."
                for value in row.tolist()
            ]
            lines.append("       " + "".join(name.ljust(4) for name in names))
        return "\n".join(line.rstrip() for line in lines)

    def verify(self, tokens: TokensLike) -> list[str]:
        """Return the rows of the table that lack a value, the clues that are not true, and a missing end."""
        tokens = one_sequence(tokens)
        puzzle, houses, attributes = read_prompt(tokens)
        table = answered_table(tokens, houses, attributes)
        lacking = [
            f"attribute {letter(i)} lacks a value"
            for i, row in enumerate(table)
            if sorted(row.tolist()) != list(range(houses))
        ]
        untrue = [f"not true: {clue_in_words(clue)}" for clue in puzzle[~true_clues(puzzle, table)]]
        if self._framed(tokens, table.size):
            return [*lacking, *untrue]
        return [*lacking, *untrue, "the answer does not end after its table"]

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score samples: valid (a complete table and every clue true) and clues (the share of true ones).

        If there is a stored table, also exact, cells and rows: the share that agrees with it.
        """
        tokens = as_array(tokens)
        of_truth = () if truth is None else ("exact", "cells", "rows")
        figures: dict[str, list[float]] = {name: [] for name in ("valid", "clues", *of_truth)}
        for i, row in enumerate(tokens):
            puzzle, houses, attributes = read_prompt(row)
            table = answered_table(row, houses, attributes)
            figures["valid"].append(not self.verify(row))
            figures["clues"].append(true_clues(puzzle, table).mean())
            if truth is not None:
                same = table == answered_table(truth.tokens[i], houses, attributes)
                figures["exact"].append(same.all() and self._framed(row, same.size))
                figures["cells"].append(same.mean())
                figures["rows"].append(same.all(1).mean())
        return {name: np.array(values, np.float64) for name, values in figures.items()}

    def _framed(self, tokens: Tokens, count: int) -> bool:
        """Return whether the answer ends after `count` cells, for a padding that predicts its end."""
        end = tokens.tolist().index(SEP) + 1 + count
        return self.padding == "none" or (end < self.length and int(tokens[end]) in (EOS, PAD))
