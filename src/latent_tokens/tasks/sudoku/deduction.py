"""Sudoku without guessing, by the human strategies of Shah et al. (2024, arXiv:2409.10502); numba kernels.

These are naked and hidden single, naked pair and triplet, locked candidate, XY-wing and unique
rectangle, for boxes of any shape and side at most 36. `candidates` is uint64[L]: the digits that a
cell may still have, as bits, and no bits if the cell has its digit.
"""

from __future__ import annotations

import numba
import numpy as np

from latent_tokens.tasks.rng import count_bits
from latent_tokens.tasks.sudoku.grid import in_units


@numba.njit(cache=True)
def deduce(cells, unit_of, cells_of, solution):  # type: ignore[no-untyped-def]
    """Return whether the strategies find every cell. Return False on a contradiction too.

    `solution` receives the digits, -1 for cells that were not found.

    The unique rectangle assumes that the puzzle has one solution, so True does not prove that it
    does.
    """
    side = unit_of[-1, 0] + 1
    candidates = np.full(len(cells), (np.uint64(1) << np.uint64(side)) - np.uint64(1))
    used = np.zeros(3 * side, np.uint64)
    solution[:] = -1
    for cell in range(len(cells)):
        if cells[cell] >= 0 and not place(
            cell, np.uint64(1) << np.uint64(cells[cell]), candidates, unit_of, used, solution
        ):
            return False
    removed = True
    while removed and place_singles(candidates, unit_of, used, solution) and solution.min() < 0:
        removed = (
            naked_pairs(candidates, cells_of)
            or locked_candidates(candidates, unit_of, cells_of)
            or naked_triplets(candidates, cells_of)
            or xy_wings(candidates, unit_of)
            or unique_rectangles(candidates, unit_of, cells_of)
        )
    return solution.min() >= 0


@numba.njit(cache=True)
def place(cell, bit, candidates, unit_of, used, solution):  # type: ignore[no-untyped-def]
    """Return whether the digit is in none of the cell's units. If so, write it there."""
    for u in unit_of[cell]:
        if used[u] & bit:
            return False
        used[u] |= bit
    candidates[cell] = 0
    solution[cell] = count_bits(bit - np.uint64(1))
    return True


@numba.njit(cache=True)
def place_singles(candidates, unit_of, used, solution):  # type: ignore[no-untyped-def]
    """Place naked and hidden singles until there are none. Return False on a contradiction."""
    placed = True
    while placed:
        placed = False
        for cell in range(len(candidates)):
            if solution[cell] >= 0:
                continue
            mask = candidates[cell] & ~in_units(cell, used, unit_of)
            candidates[cell] = mask
            if mask & (mask - np.uint64(1)) == 0:
                if mask == 0:
                    return False
                place(cell, mask, candidates, unit_of, used, solution)
                placed = True
        once = digits_with_one_place(candidates, unit_of, used)
        for cell in range(len(candidates)):
            hidden = candidates[cell] & in_units(cell, once, unit_of)
            if hidden:
                if hidden & (hidden - np.uint64(1)) or not place(
                    cell, hidden, candidates, unit_of, used, solution
                ):
                    return False
                placed = True
    return True


@numba.njit(cache=True)
def digits_with_one_place(candidates, unit_of, used):  # type: ignore[no-untyped-def]
    """Return the digits that each unit may still hold in one cell only, uint64[3N]."""
    once, twice = np.zeros_like(used), np.zeros_like(used)
    for cell in range(len(candidates)):
        for u in unit_of[cell]:
            twice[u] |= once[u] & candidates[cell]
            once[u] |= candidates[cell]
    # A cell passed over before a digit was placed in its unit still has that digit as a candidate.
    return once & ~(twice | used)


@numba.njit(cache=True)
def strike(cell, digits, candidates):  # type: ignore[no-untyped-def]
    """Remove digits from a cell's candidates, and return whether it had any of them."""
    had = candidates[cell] & digits
    candidates[cell] &= ~digits
    return had != 0


@numba.njit(cache=True)
def sees(a, b, unit_of):  # type: ignore[no-untyped-def]
    """Return whether two different cells share a unit."""
    return a != b and (
        unit_of[a, 0] == unit_of[b, 0]
        or unit_of[a, 1] == unit_of[b, 1]
        or unit_of[a, 2] == unit_of[b, 2]
    )


@numba.njit(cache=True)
def naked_pairs(candidates, cells_of):  # type: ignore[no-untyped-def]
    """Return whether two cells with the same two candidates removed one from other cells of their unit."""
    removed = False
    for unit in cells_of:
        for a in unit:
            pair = candidates[a]
            if count_bits(pair) != 2:
                continue
            for b in unit:
                if b > a and candidates[b] == pair:
                    for cell in unit:
                        if cell not in (a, b):
                            removed |= strike(cell, pair, candidates)
    return removed


@numba.njit(cache=True)
def naked_triplets(candidates, cells_of):  # type: ignore[no-untyped-def]
    """Return whether three cells with three candidates removed one from other cells of their unit."""
    removed = False
    for unit in cells_of:
        few = [cell for cell in unit if 1 <= count_bits(candidates[cell]) <= 3]
        for a in few:
            for b in few:
                both = candidates[a] | candidates[b]
                if b <= a or count_bits(both) > 3:
                    continue
                for c in few:
                    triplet = both | candidates[c]
                    if c > b and count_bits(triplet) == 3:
                        for cell in unit:
                            if cell not in (a, b, c):
                                removed |= strike(cell, triplet, candidates)
    return removed


@numba.njit(cache=True)
def locked_candidates(candidates, unit_of, cells_of):  # type: ignore[no-untyped-def]
    """Return whether a candidate was removed, by pointing (box to line) or claiming (line to box)."""
    removed = False
    side = cells_of.shape[1]
    inside = np.zeros(3 * side, np.uint64)
    for u in range(3 * side):
        kind = u // side
        for other_kind in range(3):
            if (kind == 2) == (other_kind == 2):
                continue
            seen, apart = np.uint64(0), np.uint64(0)
            for cell in cells_of[u]:
                v, mask = unit_of[cell, other_kind], candidates[cell]
                apart |= seen & ~inside[v] & mask
                seen |= mask
                inside[v] |= mask
            for cell in cells_of[u]:
                v = unit_of[cell, other_kind]
                locked = inside[v] & ~apart
                inside[v] = 0
                if locked:
                    for further in cells_of[v]:
                        if unit_of[further, kind] != u:
                            removed |= strike(further, locked, candidates)
    return removed


@numba.njit(cache=True)
def xy_wings(candidates, unit_of):  # type: ignore[no-untyped-def]
    """Return whether one wing removed a candidate.

    A cell {a, b} shares units with {a, c} and {b, c}: a cell that shares a unit with both of these
    loses c.
    """
    twos = [cell for cell in range(len(candidates)) if count_bits(candidates[cell]) == 2]
    removed = False
    for pivot in twos:
        for wing in twos:
            if not sees(pivot, wing, unit_of):
                continue
            third = candidates[pivot] ^ candidates[wing]
            digit = candidates[wing] & third
            for other in twos:
                if candidates[other] == third and sees(pivot, other, unit_of):
                    for cell in range(len(candidates)):
                        if sees(cell, wing, unit_of) and sees(cell, other, unit_of):
                            removed |= strike(cell, digit, candidates)
                    if removed:
                        return True
    return False


@numba.njit(cache=True)
def unique_rectangles(candidates, unit_of, cells_of):  # type: ignore[no-untyped-def]
    """Return whether one rectangle of type 1 removed a candidate.

    Two rows, columns and boxes have {a, b} in three corners, so the fourth has neither.

    Otherwise a and b could be exchanged, and the solution would not be unique. No corner is given:
    given cells have no candidates.
    """
    for corner in range(len(candidates)):
        row, column, box = unit_of[corner]
        pair = candidates[corner]
        if count_bits(pair) != 2:
            continue
        for across in cells_of[row]:
            for down in cells_of[column]:
                if (
                    corner in (across, down)
                    or candidates[across] != pair
                    or candidates[down] != pair
                ):
                    continue
                two_boxes = (unit_of[across, 2] == box) != (unit_of[down, 2] == box)
                if two_boxes and strike(across + down - corner, pair, candidates):
                    return True
    return False
