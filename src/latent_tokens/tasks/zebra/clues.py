"""Clues of zebra puzzles, which narrow sets of houses by propagation and search. Numba kernels.

A clue is int8[4]: its kind, which is the id of its token, and three references. Reference 6 a + v
is the house whose attribute a has value v, 36 + h is house h, and NOWHERE fills the references that
a kind does not use. Domains are int64[43]: the houses that each reference can be, as bits.
"""

from __future__ import annotations

import numba
import numpy as np

from latent_tokens.tasks.base import BOS, SEP
from latent_tokens.tasks.rng import below, count_bits, mixed, shuffled, start_stream

MOST = 6  # houses, attributes
HOUSE, NOWHERE = 36, 42
NOT_EQUAL, EQUAL, ENDS, IMMEDIATE_LEFT, IN_BETWEEN, LEFT_OF, NEXT_TO = 10, 11, 17, 18, 19, 20, 22
DIGIT, CLUE_END, LHS, RHS, ATTRIBUTE, POSITION = 4, 13, 14, 15, 16, 21

KINDS = np.array([EQUAL, NOT_EQUAL, IMMEDIATE_LEFT, NEXT_TO, LEFT_OF, ENDS, IN_BETWEEN])
# Running sums of how often each kind is drawn: 1.3 clues of IN_BETWEEN per puzzle remain.
# Shah et al.'s puzzles have 1.4.
CLUE_SHARES = np.array([20, 35, 50, 65, 80, 88, 94])
HOUSE_SHARE = 15  # percent of clues that name a house by its number
MOST_CLUES = 200


@numba.njit(cache=True)
def single(houses):  # type: ignore[no-untyped-def]
    """Return whether the set has exactly one house."""
    return houses != 0 and houses & (houses - 1) == 0


@numba.njit(cache=True)
def narrow_left_of(a, b):  # type: ignore[no-untyped-def]
    """Return a and b without houses for which no house of a is left of a house of b."""
    b &= ~((a & -a) * 2 - 1)
    below_highest = b | b >> 1
    below_highest |= below_highest >> 2
    below_highest |= below_highest >> 4
    return a & below_highest >> 1, b


@numba.njit(cache=True)
def narrowed(kind, a, b, c, full):  # type: ignore[no-untyped-def]
    """Return the domains of a clue's references that agree with it."""
    if kind == EQUAL:
        return a & b, a & b, c
    if kind == NOT_EQUAL:
        return a & ~b if single(b) else a, b & ~a if single(a) else b, c
    if kind == IMMEDIATE_LEFT:
        return a & b >> 1, b & a << 1, c
    if kind == NEXT_TO:
        return a & (b << 1 | b >> 1), b & (a << 1 | a >> 1), c
    if kind == ENDS:
        return a & (1 | (full + 1) >> 1), b, c
    a, b = narrow_left_of(a, b)
    if kind == IN_BETWEEN:
        b, c = narrow_left_of(b, c)
    return a, b, c


@numba.njit(cache=True)
def apply(clue, domains, full):  # type: ignore[no-untyped-def]
    """Narrow the domains by one clue, and return whether one changed."""
    x, y, z = clue[1], clue[2], clue[3]
    before = domains[x], domains[y], domains[z]
    domains[x], domains[y], domains[z] = narrowed(clue[0], before[0], before[1], before[2], full)
    return domains[x] != before[0] or domains[y] != before[1] or domains[z] != before[2]


@numba.njit(cache=True)
def propagate_attribute(domains, attribute, full):  # type: ignore[no-untyped-def]
    """Narrow the domains of one attribute, whose values are in different houses.

    Returns:
        Whether a domain changed, and whether all values still have a house.
    """
    start = MOST * attribute
    houses = 0
    while full >> houses:
        houses += 1
    changed = False
    once = 0
    twice = 0

    # A value with one house takes it from the others.
    for value in range(start, start + houses):
        if single(domains[value]):
            for other in range(start, start + houses):
                if other != value and domains[other] & domains[value]:
                    domains[other] &= ~domains[value]
                    changed = True

    # A house that only one value can have goes to that value.
    for value in range(start, start + houses):
        twice |= once & domains[value]
        once |= domains[value]
    for value in range(start, start + houses):
        alone = domains[value] & ~twice
        if domains[value] == 0 or alone & (alone - 1):
            return changed, False
        if alone and domains[value] != alone:
            domains[value] = alone
            changed = True
    return changed, once == full


@numba.njit(cache=True)
def propagate(clues, domains, houses, attributes):  # type: ignore[no-untyped-def]
    """Narrow the domains until nothing changes. Return False if the clues contradict each other."""
    full = (1 << houses) - 1
    changed = True
    while changed:
        changed = False
        for i in range(len(clues)):
            changed |= apply(clues[i], domains, full)
        for attribute in range(attributes):
            moved, possible = propagate_attribute(domains, attribute, full)
            if not possible:
                return False
            changed |= moved
    return np.all(domains[HOUSE : HOUSE + houses] != 0)


@numba.njit(cache=True)
def open_domains(houses):  # type: ignore[no-untyped-def]
    """Return the domains before any clue: all houses for a value, house h for its number."""
    domains = np.full(NOWHERE + 1, (1 << houses) - 1)
    for house in range(MOST):
        domains[HOUSE + house] = 1 << house
    return domains


@numba.njit(cache=True)
def narrowest(domains, houses, attributes):  # type: ignore[no-untyped-def]
    """Return the reference with the fewest houses but more than one, or -1 if all have one."""
    best = -1
    fewest = houses + 1
    for attribute in range(attributes):
        for reference in range(MOST * attribute, MOST * attribute + houses):
            count = count_bits(np.uint64(domains[reference]))
            if 1 < count < fewest:
                best, fewest = reference, count
    return best


@numba.njit(cache=True)
def count_solutions(clues, domains, houses, attributes, most, nodes):  # type: ignore[no-untyped-def]
    """Return how many tables, at most `most`, agree with the clues, by propagation and depth-first search.

    The domains are narrowed in place. The search stops when `nodes[0]`, the nodes left, is 0.
    """
    nodes[0] -= 1
    if nodes[0] <= 0 or not propagate(clues, domains, houses, attributes):
        return 0
    reference = narrowest(domains, houses, attributes)
    if reference < 0:
        return 1
    count = 0
    for house in range(houses):
        if domains[reference] >> house & 1 and count < most:
            fixed = domains.copy()
            fixed[reference] = 1 << house
            count += count_solutions(clues, fixed, houses, attributes, most - count, nodes)
    return count


@numba.njit(cache=True)
def solves(clues, houses, attributes):  # type: ignore[no-untyped-def]
    """Return whether propagation alone finds every value, so that the solution is unique."""
    domains = open_domains(houses)
    return (
        propagate(clues, domains, houses, attributes) and narrowest(domains, houses, attributes) < 0
    )


@numba.njit(cache=True)
def clue_holds(kind, x, y, z, houses):  # type: ignore[no-untyped-def]
    """Return whether a clue is true if its references are the houses x, y, z."""
    a, b, c = narrowed(kind, 1 << x, 1 << y, 1 << z, (1 << houses) - 1)
    return a != 0 and b != 0 and c != 0


@numba.njit(cache=True)
def clue_keys(tokens):  # type: ignore[no-untyped-def]
    """Return a key for each row of tokens, which does not depend on the order of the clues."""
    keys = np.zeros(len(tokens), np.uint64)
    for line in range(len(tokens)):
        key = np.uint64(0)
        for token in tokens[line, 1:]:
            key = mixed(key + np.uint64(token) + np.uint64(1))
            if token in (CLUE_END, SEP):
                keys[line] += mixed(key)
                key = np.uint64(0)
            if token == SEP:
                break
        keys[line] = mixed(keys[line])
    return keys


@numba.njit(cache=True)
def draw_clue(clue, place, houses, attributes, state):  # type: ignore[no-untyped-def]
    """Write a random clue that is true of the table, in which place[reference] is its house."""
    kind = KINDS[np.searchsorted(CLUE_SHARES, below(CLUE_SHARES[-1], state), side="right")]
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
        if not trivial and clue_holds(kind, place[clue[1]], place[clue[2]], place[clue[3]], houses):
            return


@numba.njit(cache=True)
def draw_puzzle(clues, place, houses, attributes, state):  # type: ignore[no-untyped-def]
    """Write clues for a table, and return their number, or 0 if MOST_CLUES do not solve it.

    Random true clues that narrow a domain are added until propagation solves the table. Then clues
    that are not needed are removed.
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
    """Fill each row with a puzzle and its answer: its tokens and the numbers of given and of all tokens.

    A puzzle that is longer than a row has length 0. `sizes` are the (houses, attributes) to choose
    from, int64[S, 2].
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
