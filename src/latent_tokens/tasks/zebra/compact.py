"""Zebra puzzles with one token per clue, and the house of each value as the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.base import BOS, PAD, SEP, Keys, Scores
from latent_tokens.tasks.examples import (
    Examples,
    Tokens,
    TokensLike,
    as_array,
    one_sequence,
    smallest_type,
)
from latent_tokens.tasks.zebra.clues import ATTRIBUTE, CLUE_END, DIGIT, LHS, POSITION, RHS
from latent_tokens.tasks.zebra.puzzles import ARITY, IDS, Zebra, answered_table, value_name

SYMMETRIC = ("=", "!=", "nbr")  # kinds of clues whose two operands may be exchanged


@dataclass(frozen=True)
class CompactZebra:
    """[pad].. clues [SEP] answer: a puzzle of `Zebra` in about a third of its tokens (D-42, compact Zebra).

    A clue is one token, composed of its kind and its operands (`parts`). The answer has the house
    of each value, attribute by attribute, and these are the only tokens that can be predicted.
    Puzzles, keys and splits are those of `Zebra`, and so are texts and scores.

    Tokens are the houses from 0, [SEP], [pad], and the clues: kind by kind, in the order of their
    operands. An operand is a value, or a house by its number.

    Example:
        >>> task = TASKS["zebra-compact-3"]
        >>> task.generate(2, seed=0).tokens.shape
        (2, 19)
    """

    name: str
    num_houses: int
    num_attributes: int
    max_clues: int  # positions for clues: puzzles with more are left out
    num_train: int = 300_000

    metric = "exact"

    @cached_property
    def zebra(self) -> Zebra:
        """The task whose puzzles these are."""
        return Zebra(self.name, (self.num_houses,), (self.num_attributes,))

    @property
    def num_cells(self) -> int:
        """The number of positions of an answer."""
        return self.num_houses * self.num_attributes

    @property
    def length(self) -> int:
        """L: clues, [SEP] and answer."""
        return self.max_clues + 1 + self.num_cells

    @property
    def operands(self) -> list[str]:
        """What a clue can name: the values of each attribute, then the houses."""
        values = [
            value_name(attribute, value)
            for attribute in range(self.num_attributes)
            for value in self.answer_tokens
        ]
        return [*values, *(f"house{house + 1}" for house in self.answer_tokens)]

    @property
    def answer_tokens(self) -> range:
        """The tokens that an answer can have: the houses."""
        return range(self.num_houses)

    @cached_property
    def clues(self) -> list[tuple[str, tuple[int, ...]]]:
        """The kind and the operands of each clue token."""
        numbers = range(len(self.operands))
        return [(kind, named) for kind, n in ARITY.items() for named in product(numbers, repeat=n)]

    @cached_property
    def words(self) -> list[bytes]:
        """The tokens of each clue in `Zebra`, KIND LHS operand RHS operands, without CLUE_END."""
        operands = [
            bytes([ATTRIBUTE, DIGIT + attribute, DIGIT + value])
            for attribute, value in product(range(self.num_attributes), self.answer_tokens)
        ]
        operands += [bytes([POSITION, DIGIT, DIGIT + house]) for house in self.answer_tokens]
        return [
            bytes([IDS[kind], LHS])
            + operands[named[0]]
            + bytes([RHS])
            + b"".join(operands[number] for number in named[1:])
            for kind, named in self.clues
        ]

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        """The number of each clue, by its tokens in `Zebra`."""
        return {words: number for number, words in enumerate(self.words)}

    @property
    def vocab_size(self) -> int:
        """The number of tokens without MASK."""
        return self.num_houses + 2 + len(self.clues)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The text of each token."""
        houses = [str(house + 1) for house in self.answer_tokens]
        names = self.operands
        clues = [f"{kind}({','.join(names[i] for i in named)})" for kind, named in self.clues]
        return (*houses, "|", "-", *clues)

    @cached_property
    def parts(self) -> NDArray[np.int64]:
        """The parts of each token, (V, 4): of a clue its kind and each operand, of another token itself.

        Clues that differ in the order of exchangeable operands have the same parts.
        """
        first_kind = self.num_houses + 2
        first_operand = first_kind + len(ARITY)
        rows = [[token, -1, -1, -1] for token in range(first_kind)]
        kinds = list(ARITY)
        for kind, named in self.clues:
            ordered = sorted(named) if kind in SYMMETRIC else named
            places = [
                first_operand + len(self.operands) * i + number for i, number in enumerate(ordered)
            ]
            rows.append([first_kind + kinds.index(kind), *places, *[-1] * (3 - len(places))])
        return np.array(rows)

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate the puzzles of `Zebra` that have at most `max_clues` clues."""
        return self._compact(self.zebra.generate(count, seed, first))

    def example(
        self, words: Sequence[str], houses: int, table: Sequence[Sequence[int]]
    ) -> Examples:
        """Return one example, as `Zebra.example`. Raise ValueError if it has too many clues."""
        return self._one(self.zebra.example(words, houses, table))

    def encode(self, text: str) -> Examples:
        """Return a puzzle from the text that `Zebra.encode` reads."""
        return self._one(self.zebra.encode(text))

    def _one(self, puzzle: Examples) -> Examples:
        num_clues = int((puzzle.tokens == CLUE_END).sum())
        if num_clues > self.max_clues:
            raise ValueError(
                f"puzzle of {num_clues} clues: {self.name} has room for {self.max_clues}"
            )
        return self._compact(puzzle)

    def _compact(self, puzzles: Examples) -> Examples:
        """Return puzzles of `Zebra` in this encoding, without those that have too many clues."""
        houses = self.num_houses
        start = self.max_clues + 1
        fits = (puzzles.tokens == CLUE_END).sum(1) <= self.max_clues
        puzzles = puzzles.take(fits)
        tokens = np.zeros((len(puzzles), self.length), smallest_type(self.vocab_size - 1))
        for row, puzzle in zip(tokens, puzzles.tokens, strict=True):
            # The clues, behind pads.
            *clues, rest = puzzle.tobytes()[1:].split(bytes([CLUE_END]))
            pads = [houses + 1] * (self.max_clues - len(clues))
            row[:start] = [*pads, *(houses + 2 + self.numbers[clue] for clue in clues), houses]

            # The house of each value, from the table with the value of each house. A prompt has none.
            for cell, token in enumerate(rest[houses + 1 :][: self.num_cells]):
                value = token - DIGIT
                if 0 <= value < houses:
                    row[start + houses * (cell // houses) + value] = cell % houses
        return Examples.of(tokens, start)

    def expand(self, tokens: Tokens) -> Tokens:
        """Return sequences (N, L) as `Zebra` has them. A cell whose house no value has is PAD."""
        houses = self.num_houses
        start = self.max_clues + 1
        puzzles = np.full((len(tokens), self.zebra.length), PAD, np.uint8)
        row_of_houses = bytes([DIGIT + house for house in range(houses)])
        for puzzle, row in zip(puzzles, tokens.tolist(), strict=True):
            clues = [
                self.words[token - houses - 2] for token in row[: start - 1] if token > houses + 1
            ]
            table = bytearray(self.num_cells)
            for cell, house in enumerate(row[start:]):
                if house < houses:
                    table[houses * (cell // houses) + house] = DIGIT + cell % houses
            prompt = b"".join(
                [bytes([BOS]), *(clue + bytes([CLUE_END]) for clue in clues), row_of_houses]
            )
            content = prompt + bytes([SEP]) + table
            puzzle[: len(content)] = np.frombuffer(content, np.uint8)
        return puzzles

    def keys(self, examples: Examples) -> Keys:
        """Return the keys that `Zebra` has for these puzzles."""
        return self.zebra.keys(Examples.of(self.expand(examples.tokens), 0))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the splits of `Zebra`."""
        return self.zebra.splits(Examples.of(self.expand(examples.tokens), 0))

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return how many tables (at most `most`) agree with the clues, None if it takes too long."""
        return self.zebra.count_solutions(Examples.of(self.expand(problem.tokens), 0), most)

    @property
    def answer_format(self) -> str:
        """The form of an answer in words, that of `Zebra`."""
        return self.zebra.answer_format

    def prompt(self, problem: Examples) -> str:
        """Return the text that `Zebra.encode` reads."""
        return self.zebra.prompt(Examples.of(self.expand(problem.tokens), 0))

    def answered(self, problem: Examples, text: str) -> Examples:
        """Return a puzzle with a table as its answer, as `Zebra.answered`."""
        puzzle = Examples.of(self.expand(problem.tokens), 0)
        expanded = self.zebra.answered(puzzle, text)
        filled = self._compact(expanded)
        # A value that no house has is no house, here the separator.
        table = answered_table(expanded.tokens[0], self.num_houses, self.num_attributes)
        lacking = [value not in row for row in table for value in self.answer_tokens]
        filled.tokens[0, self.max_clues + 1 :][lacking] = self.num_houses
        return filled

    def decode(self, tokens: TokensLike) -> str:
        """Return the clues in words and the table, as `Zebra.decode`."""
        return self.zebra.decode(self.expand(one_sequence(tokens)[None])[0])

    def verify(self, tokens: TokensLike) -> list[str]:
        """Return the rows of the table that lack a value, and the clues that are not true."""
        return self.zebra.verify(self.expand(one_sequence(tokens)[None])[0])

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score samples, as `Zebra.score`: by tables, with the value of each house."""
        expanded = None if truth is None else Examples.of(self.expand(truth.tokens), 0)
        return self.zebra.score(self.expand(as_array(tokens)), expanded)
