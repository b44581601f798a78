"""Zebra puzzles as sets of houses that clues narrow: propagation, search and generation; numba kernels.

A clue is int8[4]: its kind, which is the id of its token, and three references. Reference 6 a + v is the house whose attribute a
has value v, 36 + h is house h, NOWHERE fills what a kind does not use. Domains are int64[43]: the houses a reference can be, as bits.
"""

from __future__ import annotations

import numba
import numpy as np

from latent_tokens.tasks.rng import below, count_bits, mixed, shuffled, start_stream

MOST = 6  # houses, attributes
HOUSE, NOWHERE = 36, 42
NOT_EQUAL, EQUAL, ENDS, IMMEDIATE_LEFT, IN_BETWEEN, LEFT_OF, NEXT_TO = 10, 11, 17, 18, 19, 20, 22
BOS, SEP, DIGIT, CLUE_END, LHS, RHS, ATTRIBUTE, POSITION = 1, 3, 4, 13, 14, 15, 16, 21
KINDS = np.array([EQUAL, NOT_EQUAL, IMMEDIATE_LEFT, NEXT_TO, LEFT_OF, ENDS, IN_BETWEEN])
SHARES = np.array(
    [20, 35, 50, 65, 80, 88, 94]
)  # running sums of how often each kind is drawn; of IN_BETWEEN 1.3 a puzzle stay; 1.4 in Shah et al.'s
HOUSE_SHARE = 15  # in a hundred clues, how many name a house by its number
MOST_CLUES = 200


@numba.njit(cache=True)
def single(houses):  # type: ignore[no-untyped-def]
    """Whether the set holds exactly one house."""
    return houses != 0 and houses & (houses - 1) == 0


@numba.njit(cache=True)
def left_of(a, b):  # type: ignore[no-untyped-def]
    """What is left of a and b where some house of a stands left of some house of b."""
    b &= ~((a & -a) * 2 - 1)
    below_highest = b | b >> 1
    below_highest |= below_highest >> 2
    below_highest |= below_highest >> 4
    return a & below_highest >> 1, b


@numba.njit(cache=True)
def narrowed(kind, a, b, c, full):  # type: ignore[no-untyped-def]
    """What a clue leaves of the houses that its references can be."""
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
    a, b = left_of(a, b)
    if kind == IN_BETWEEN:
        b, c = left_of(b, c)
    return a, b, c


@numba.njit(cache=True)
def apply(clue, domains, full):  # type: ignore[no-untyped-def]
    """Narrows the domains by one clue; whether that changed one of them."""
    x, y, z = clue[1], clue[2], clue[3]
    before = domains[x], domains[y], domains[z]
    domains[x], domains[y], domains[z] = narrowed(clue[0], before[0], before[1], before[2], full)
    return domains[x] != before[0] or domains[y] != before[1] or domains[z] != before[2]


@numba.njit(cache=True)
def spread(domains, attribute, full):  # type: ignore[no-untyped-def]
    """Narrows the domains of one attribute, whose values stand in different houses: (whether one changed, whether all still can)."""
    start, houses = MOST * attribute, 0
    while full >> houses:
        houses += 1
    changed, once, twice = False, 0, 0
    for value in range(start, start + houses):
        if single(domains[value]):
            for other in range(start, start + houses):
                if other != value and domains[other] & domains[value]:
                    domains[other] &= ~domains[value]
                    changed = True
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
    """Narrows the domains until nothing changes; False where the clues contradict each other."""
    full, changed = (1 << houses) - 1, True
    while changed:
        changed = False
        for i in range(len(clues)):
            changed |= apply(clues[i], domains, full)
        for attribute in range(attributes):
            moved, possible = spread(domains, attribute, full)
            if not possible:
                return False
            changed |= moved
    return np.all(domains[HOUSE : HOUSE + houses] != 0)


@numba.njit(cache=True)
def open_domains(houses):  # type: ignore[no-untyped-def]
    """Domains before any clue: every house for every value, house h for its own number."""
    domains = np.full(NOWHERE + 1, (1 << houses) - 1)
    for house in range(MOST):
        domains[HOUSE + house] = 1 << house
    return domains


@numba.njit(cache=True)
def narrowest(domains, houses, attributes):  # type: ignore[no-untyped-def]
    """The reference with the fewest houses of those that can still be several, or -1 where all are settled."""
    found, fewest = -1, houses + 1
    for attribute in range(attributes):
        for reference in range(MOST * attribute, MOST * attribute + houses):
            count = count_bits(np.uint64(domains[reference]))
            if 1 < count < fewest:
                found, fewest = reference, count
    return found


@numba.njit(cache=True)
def count_solutions(clues, domains, houses, attributes, most, nodes):  # type: ignore[no-untyped-def]
    """How many tables, at most `most`, agree with the clues: propagation, then every house of an open reference in turn.

    nodes: int64[1], how many more nodes the search may take; it gives up at 0.
    """
    nodes[0] -= 1
    if nodes[0] <= 0 or not propagate(clues, domains, houses, attributes):
        return 0
    reference = narrowest(domains, houses, attributes)
    if reference < 0:
        return 1
    found = 0
    for house in range(houses):
        if domains[reference] >> house & 1 and found < most:
            fixed = domains.copy()
            fixed[reference] = 1 << house
            found += count_solutions(clues, fixed, houses, attributes, most - found, nodes)
    return found


@numba.njit(cache=True)
def solves(clues, houses, attributes):  # type: ignore[no-untyped-def]
    """Whether propagation alone settles every value: then the solution is the only one."""
    domains = open_domains(houses)
    return propagate(clues, domains, houses, attributes) and narrowest(domains, houses, attributes) < 0


@numba.njit(cache=True)
def holds(kind, x, y, z, houses):  # type: ignore[no-untyped-def]
    """Whether a clue is true where its references are the houses x, y, z."""
    a, b, c = narrowed(kind, 1 << x, 1 << y, 1 << z, (1 << houses) - 1)
    return a != 0 and b != 0 and c != 0


@numba.njit(cache=True)
def draw_clue(clue, place, houses, attributes, state):  # type: ignore[no-untyped-def]
    """Writes a random clue that is true of the table, place[reference] being its house."""
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
    """The number of clues written for the table `place`: random true ones, each telling something new, until propagation solves it; then none
    that it can do without.

    0 where MOST_CLUES do not solve it.
    """
    domains, full, count = open_domains(houses), (1 << houses) - 1, 0
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
    left = clues[:count][needed]
    clues[: len(left)] = left
    return len(left)


@numba.njit(cache=True)
def write_prompt(row, clues, houses):  # type: ignore[no-untyped-def]
    """Writes [BOS] clues, houses [SEP] as tokens and gives their number; writes nothing past the row's end."""
    tokens, at = np.zeros(16 * len(clues) + 16, np.uint8), 1
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
    """Fills each line with a puzzle and its answer: tokens, how many of them are given, and how many there are.

    sizes: int64[S, 2], the (houses, attributes) to choose from. A puzzle that is longer than its line has length 0.
    """
    state = np.zeros(1, np.uint64)
    clues, place = np.empty((MOST_CLUES, 4), np.int8), np.zeros(NOWHERE + 1, np.int64)
    place[HOUSE : HOUSE + MOST] = np.arange(MOST)
    for line in range(len(tokens)):
        start_stream(state, seed, first + line)
        houses, attributes = sizes[below(len(sizes), state)]
        count = 0
        while count == 0:
            for attribute in range(attributes):
                place[MOST * attribute : MOST * attribute + houses] = shuffled(houses, state)
            count = draw_puzzle(clues, place, houses, attributes, state)
        row = tokens[line]
        given[line] = write_prompt(row, clues[:count], houses)
        end = given[line] + houses * attributes
        lengths[line] = end if end <= len(row) else 0
        if lengths[line]:
            for attribute in range(attributes):
                for value in range(houses):
                    house = place[MOST * attribute + value]
                    row[given[line] + attribute * houses + house] = DIGIT + value


@numba.njit(cache=True)
def clue_keys(tokens):  # type: ignore[no-untyped-def]
    """A number for each row of tokens, the same for the same clues in another order and the same houses."""
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
