"""The clue language of Shah et al. (2024): prompts, clues and tables as tokens and in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.base import Tokens
from latent_tokens.tasks.zebra import clues as rules

# In the order of the release.
SPECIAL = ("<PAD>", "<BOS>", "<EOS>", "<SEP>")
DIGITS = ("0", "1", "2", "3", "4", "5")
MARKS = ("!=", "=", "ANSWER", "CLUE_END", "LHS", "RHS", "c")
RELATIONS = ("ends", "immediate-left", "inbetween", "left-of", "n", "nbr")
WORDS = (*SPECIAL, *DIGITS, *MARKS, *RELATIONS)
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

Puzzle = tuple[NDArray[np.int8], int, int]  # clues (C, 4) as in tasks.zebra.clues, houses, attributes


def read_prompt(tokens: Tokens) -> Puzzle:
    """Return the clues, houses and attributes of a prompt. Raise ValueError naming a wrong clue."""
    # Find the row of houses.
    end = tokens.tolist().index(SEP)
    words = [WORDS[token] for token in tokens[:end].tolist()]
    last = max((at for at in range(end) if words[at] == "CLUE_END"), default=0)
    houses = end - last - 1
    if not (last and houses) or words[last + 1 : end] != [str(house) for house in range(houses)]:
        raise ValueError("no row of houses: after the last CLUE_END must be the houses, like 0 1 2")

    # Read the clues.
    clues = []
    start = 1
    for at in range(1, last + 1):
        if words[at] == "CLUE_END":
            clues.append(read_clue(words[start:at], houses))
            start = at + 1
    puzzle = np.array(clues, np.int8)

    # Count the attributes, each of which a clue must name.
    named = puzzle[:, 1:][puzzle[:, 1:] < rules.HOUSE]
    attributes = int(named.max()) // rules.MOST + 1 if len(named) else 0
    unnamed = set(range(attributes)) - set((named // rules.MOST).tolist())
    if unnamed or not attributes:
        raise ValueError(
            f"no clue names attribute {min(unnamed, default=0)}: the puzzle cannot have one solution"
        )
    return puzzle, houses, attributes


def read_clue(words: list[str], houses: int) -> list[int]:
    """Return a clue from its words without CLUE_END. Raise ValueError if it is not one."""
    kind, *rest = words or [""]
    arity = ARITY.get(kind, 0)
    references = [rest[at : at + 3] for at in (1, 5, 8)[:arity]]
    framed = arity and len(rest) == 2 + 3 * arity and (rest[0], rest[4]) == ("LHS", "RHS")
    if not framed or not all(is_reference(reference, houses) for reference in references):
        raise ValueError(
            f"clue {' '.join(words)!r}: must be like '= LHS c 0 1 RHS c 2 0', "
            f"with values and houses below {houses}"
        )
    numbers = [
        (rules.HOUSE if sort == "n" else rules.MOST * int(row)) + int(value)
        for sort, row, value in references
    ]
    return [IDS[kind], *numbers, *[rules.NOWHERE] * (3 - len(numbers))]


def is_reference(words: list[str], houses: int) -> bool:
    """Return whether the words are `c ATTRIBUTE VALUE` or `n 0 HOUSE`."""
    sort, row, value = words if len(words) == 3 else ("", "", "")
    digits = row.isdigit() and value.isdigit()
    return digits and int(value) < houses and (sort == "c" or (sort == "n" and row == "0"))


def answer(tokens: Tokens, houses: int, attributes: int) -> NDArray[np.int64]:
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
        min(w) >= 0 and rules.holds(clue[0], w[0], w[1], w[2], houses)
        for clue, w in zip(puzzle.tolist(), where.tolist(), strict=True)
    ]
    return np.array(true, np.bool_)


def in_words(clue: NDArray[np.int8]) -> str:
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
