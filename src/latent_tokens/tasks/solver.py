"""Sudoku boards by search (depth first, fewest candidates first, with hidden singles) and by shuffled pattern: numba kernels.

A board is int16[N*N] of digits 0..N-1, or -1 where empty; a set of digits is the bits of a uint64.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


def units(box_rows: int, box_columns: int) -> NDArray[np.int64]:
    """The row, column and box of each cell as unit numbers in 0..3N-1: int64[N*N, 3]."""
    side = box_rows * box_columns
    row, column = np.divmod(np.arange(side * side), side)
    box = row // box_rows * box_rows + column // box_columns
    return np.stack([row, side + column, 2 * side + box], axis=1)


@numba.njit(cache=True)
def next_random(state):  # type: ignore[no-untyped-def]
    """The next 64 bits of splitmix64 (Steele et al., 2014), whose state is one uint64 in an array."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(cache=True)
def start_stream(state, seed, number):  # type: ignore[no-untyped-def]
    """Puts the state at the start of board `number` of the seed."""
    state[0] = np.uint64(seed)
    state[0] = next_random(state) ^ np.uint64(number)
    state[0] = next_random(state)


@numba.njit(cache=True)
def count_bits(mask):  # type: ignore[no-untyped-def]
    """How many bits of a uint64 are set, by adding neighbours in parallel."""
    m = mask
    m = m - ((m >> np.uint64(1)) & np.uint64(0x5555555555555555))
    m = (m & np.uint64(0x3333333333333333)) + ((m >> np.uint64(2)) & np.uint64(0x3333333333333333))
    m = (m + (m >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((m * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True)
def pick_bit(mask, state):  # type: ignore[no-untyped-def]
    """A random set bit of the mask."""
    skip = np.int64(next_random(state) % np.uint64(count_bits(mask)))
    for _ in range(skip):
        mask &= mask - np.uint64(1)
    return mask & (~mask + np.uint64(1))


@numba.njit(cache=True)
def choose_cell(empty, num_empty, unit_of, used, full, masks, once, twice):  # type: ignore[no-untyped-def]
    """(index into empty, its candidates): a naked single, else a hidden single, else the cell with fewest; no candidates where none fit."""
    for i in range(num_empty):
        cell = empty[i]
        mask = full & ~(used[unit_of[cell, 0]] | used[unit_of[cell, 1]] | used[unit_of[cell, 2]])
        if mask & (mask - np.uint64(1)) == 0:
            return i, mask
        masks[i] = mask
    once[:] = 0
    twice[:] = 0
    for i in range(num_empty):
        cell, mask = empty[i], masks[i]
        for j in range(3):
            u = unit_of[cell, j]
            twice[u] |= once[u] & mask
            once[u] |= mask
    for u in range(len(used)):
        if once[u] | used[u] != full:
            return 0, np.uint64(0)
        once[u] &= ~twice[u]
    best, fewest = 0, 65
    for i in range(num_empty):
        cell, mask = empty[i], masks[i]
        hidden = mask & (once[unit_of[cell, 0]] | once[unit_of[cell, 1]] | once[unit_of[cell, 2]])
        if hidden:
            return i, hidden & (~hidden + np.uint64(1))
        size = count_bits(mask)
        if size < fewest:
            best, fewest = i, size
    return best, masks[best]


@numba.njit(cache=True)
def search(cells, unit_of, most, max_nodes, state, solution):  # type: ignore[no-untyped-def]
    """(solutions found, at most `most`; whether the search was completed). `solution` receives the last found, digits tried at random."""
    side = unit_of[-1, 0] + 1
    full = (np.uint64(1) << np.uint64(side)) - np.uint64(1)
    used = np.zeros(3 * side, np.uint64)
    once, twice, masks = np.zeros(3 * side, np.uint64), np.zeros(3 * side, np.uint64), np.zeros(len(cells), np.uint64)
    empty = np.zeros(len(cells), np.int64)
    num_empty = 0
    solution[:] = cells
    for cell in range(len(cells)):
        if cells[cell] < 0:
            empty[num_empty] = cell
            num_empty += 1
        else:
            bit = np.uint64(1) << np.uint64(cells[cell])
            for u in unit_of[cell]:
                if used[u] & bit:
                    return 0, True
                used[u] |= bit
    stack_cell = np.zeros(num_empty + 1, np.int64)
    stack_left = np.zeros(num_empty + 1, np.uint64)
    total, depth, found, nodes = num_empty, 0, 0, 0
    descending = True
    while True:
        if descending:
            if depth == total:
                found += 1
                if found == most:
                    return found, True
                descending = False
                depth -= 1
                if depth < 0:
                    return found, True
                continue
            nodes += 1
            if nodes > max_nodes:
                return found, False
            i, mask = choose_cell(empty, total - depth, unit_of, used, full, masks, once, twice)
            last = total - depth - 1
            empty[i], empty[last] = empty[last], empty[i]
            stack_cell[depth], stack_left[depth] = empty[last], mask
        else:
            cell = stack_cell[depth]
            bit = np.uint64(1) << np.uint64(solution[cell])
            for u in unit_of[cell]:
                used[u] &= ~bit
        mask = stack_left[depth]
        if mask == 0:
            descending = False
            depth -= 1
            if depth < 0:
                return found, True
            continue
        cell = stack_cell[depth]
        bit = pick_bit(mask, state)
        stack_left[depth] = mask & ~bit
        digit = count_bits(bit - np.uint64(1))
        solution[cell] = digit
        for u in unit_of[cell]:
            used[u] |= bit
        depth += 1
        descending = True


@numba.njit(cache=True)
def fill_boards(boards, unit_of, seed, first, max_nodes):  # type: ignore[no-untyped-def]
    """Writes one random valid board into each line of `boards`; line i is board number first + i of the seed.

    Begins with a random first row; a search that runs long begins anew.
    """
    length = boards.shape[1]
    side = unit_of[-1, 0] + 1
    state = np.zeros(1, np.uint64)
    cells = np.empty(length, np.int16)
    solution = np.empty(length, np.int16)
    for line in range(len(boards)):
        start_stream(state, seed, first + line)
        while True:
            cells[:] = -1
            cells[:side] = shuffled(side, state)
            found, _ = search(cells, unit_of, 1, max_nodes, state, solution)
            if found:
                break
        boards[line] = solution


@numba.njit(cache=True)
def shuffled(count, state):  # type: ignore[no-untyped-def]
    """A random permutation of 0..count-1 (Fisher-Yates)."""
    order = np.arange(count)
    for i in range(count):
        j = np.int64(next_random(state) % np.uint64(i + 1))
        order[i] = order[j]
        order[j] = i
    return order


@numba.njit(cache=True)
def line_order(groups, size, alike, state):  # type: ignore[no-untyped-def]
    """A random order of groups * size lines that keeps groups together; `alike` uses one inner order for all groups."""
    outer, inner = shuffled(groups, state), shuffled(size, state)
    order = np.empty(groups * size, np.int64)
    for g in range(groups):
        if g > 0 and not alike:
            inner = shuffled(size, state)
        for i in range(size):
            order[g * size + i] = outer[g] * size + inner[i]
    return order


@numba.njit(cache=True)
def pattern_boards(boards, box_rows, box_columns, alike, seed, first):  # type: ignore[no-untyped-def]
    """Writes one shuffled cyclic pattern into each line of `boards`: digits, rows, bands, columns, stacks, and a transpose where boxes are square."""
    side = box_rows * box_columns
    state = np.zeros(1, np.uint64)
    for line in range(len(boards)):
        start_stream(state, seed, first + line)
        digits = shuffled(side, state)
        rows = line_order(box_columns, box_rows, alike, state)
        columns = line_order(box_rows, box_columns, alike, state)
        transpose = box_rows == box_columns and next_random(state) & np.uint64(1)
        for i in range(side):
            for j in range(side):
                r, c = rows[i], columns[j]
                cell = j * side + i if transpose else i * side + j
                boards[line, cell] = digits[(box_columns * (r % box_rows) + r // box_rows + c) % side]
