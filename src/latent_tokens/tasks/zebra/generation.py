"""Random zebra puzzles: tables with a minimal set of clues that propagation solves. Numba kernels."""

from __future__ import annotations

import numba
import numpy as np

from latent_tokens.tasks.rng import below, shuffled, start_stream
from latent_tokens.tasks.zebra.clues import (
    ATTRIBUTE,
    BOS,
    CLUE_END,
    DIGIT,
    ENDS,
    EQUAL,
    HOUSE,
    IMMEDIATE_LEFT,
    IN_BETWEEN,
    LEFT_OF,
    LHS,
    MOST,
    NEXT_TO,
    NOT_EQUAL,
    NOWHERE,
    POSITION,
    RHS,
    SEP,
    apply,
    holds,
    narrowest,
    open_domains,
    propagate,
    solves,
)

KINDS = np.array([EQUAL, NOT_EQUAL, IMMEDIATE_LEFT, NEXT_TO, LEFT_OF, ENDS, IN_BETWEEN])
# Running sums of how often each kind is drawn: 1.3 clues of IN_BETWEEN per puzzle remain.
# Shah et al.'s puzzles have 1.4.
SHARES = np.array([20, 35, 50, 65, 80, 88, 94])
HOUSE_SHARE = 15  # percent of clues that name a house by its number
MOST_CLUES = 200


@numba.njit(cache=True)
def draw_clue(clue, place, houses, attributes, state):  # type: ignore[no-untyped-def]
    """Write a random clue that is true of the table, in which place[reference] is its house."""
    kind = KINDS[np.searchsorted(SHARES, below(SHARES[-1], state), side="right")]
    named = below(100, state) < HOUSE_SHARE and kind != ENDS
    arity = 1 if kind == ENDS else 3 if kind == IN_BETWEEN else 2
    clue[0] = kind
    while True:
        clue[1:] = NOWHERE
        for i in range(arity):
            clue[1 + i] = MOST * below(attributes, state) + below(houses, state)
        if named:
            clue[1 + below(arity, state)] = HOUSE + below(houses, state)
        trivial = kind in (EQUAL, NOT_EQUAL) and clue[1] // MOST == clue[2] // MOST
        if not trivial and holds(kind, place[clue[1]], place[clue[2]], place[clue[3]], houses):
            return


@numba.njit(cache=True)
def draw_puzzle(clues, place, houses, attributes, state):  # type: ignore[no-untyped-def]
    """Write clues for a table, and return their number, or 0 if MOST_CLUES do not solve it.

    Random true clues that narrow a domain are added until propagation solves the table. Then clues that are
    not needed are removed.
    """
    domains = open_domains(houses)
    full = (1 << houses) - 1
    count = 0
    while narrowest(domains, houses, attributes) >= 0:
        if count == MOST_CLUES:
            return 0
        draw_clue(clues[count], place, houses, attributes, state)
        if apply(clues[count], domains, full):
            count += 1
            propagate(clues[:count], domains, houses, attributes)
    needed = np.ones(count, np.bool_)
    for i in shuffled(count, state):
        needed[i] = False
        needed[i] = not solves(clues[:count][needed], houses, attributes)
    minimal = clues[:count][needed]
    clues[: len(minimal)] = minimal
    return len(minimal)


@numba.njit(cache=True)
def write_prompt(row, clues, houses):  # type: ignore[no-untyped-def]
    """Write [BOS] clues, houses [SEP] as tokens up to the row's end, and return their number."""
    tokens = np.zeros(16 * len(clues) + 16, np.uint8)
    at = 1
    tokens[0] = BOS
    for i in range(len(clues)):
        tokens[at], tokens[at + 1] = clues[i, 0], LHS
        at += 2
        for j in range(1, 4):
            reference = clues[i, j]
            if reference != NOWHERE:
                tokens[at] = POSITION if reference >= HOUSE else ATTRIBUTE
                tokens[at + 1] = DIGIT if reference >= HOUSE else DIGIT + reference // MOST
                tokens[at + 2] = DIGIT + reference % MOST
                at += 3
            if j == 1:
                tokens[at] = RHS
                at += 1
        tokens[at] = CLUE_END
        at += 1
    for house in range(houses):
        tokens[at + house] = DIGIT + house
    at += houses
    tokens[at] = SEP
    row[: at + 1] = tokens[: min(len(row), at + 1)]
    return at + 1


@numba.njit(cache=True)
def draw_puzzles(tokens, given, lengths, sizes, seed, first):  # type: ignore[no-untyped-def]
    """Fill each row with a puzzle and its answer.

    Args:
        tokens: uint8[N, L], the sequences.
        given: int64[N], the number of given tokens.
        lengths: int64[N], the number of tokens, or 0 for a puzzle that is longer than L.
        sizes: int64[S, 2], the (houses, attributes) to choose from.
        seed: The seed.
        first: The number of the first puzzle of the seed.
    """
    state = np.zeros(1, np.uint64)
    clues = np.empty((MOST_CLUES, 4), np.int8)
    place = np.zeros(NOWHERE + 1, np.int64)
    place[HOUSE : HOUSE + MOST] = np.arange(MOST)
    for line in range(len(tokens)):
        # Draw a table and clues that solve it.
        start_stream(state, seed, first + line)
        houses, attributes = sizes[below(len(sizes), state)]
        count = 0
        while count == 0:
            for attribute in range(attributes):
                place[MOST * attribute : MOST * attribute + houses] = shuffled(houses, state)
            count = draw_puzzle(clues, place, houses, attributes, state)

        # Write the prompt and the answer.
        row = tokens[line]
        given[line] = write_prompt(row, clues[:count], houses)
        end = given[line] + houses * attributes
        lengths[line] = end if end <= len(row) else 0
        if lengths[line]:
            for attribute in range(attributes):
                for value in range(houses):
                    house = place[MOST * attribute + value]
                    row[given[line] + attribute * houses + house] = DIGIT + value
