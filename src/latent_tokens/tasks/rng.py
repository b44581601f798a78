"""Random draws and small sets inside numba kernels: one stream per example, sets as the bits of a uint64."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def mixed(number):  # type: ignore[no-untyped-def]
    """Return the 64 bits of `number` mixed one to one (the finalizer of splitmix64)."""
    z = number
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit(cache=True)
def next_random(state):  # type: ignore[no-untyped-def]
    """Return the next 64 bits of splitmix64 (Steele et al., 2014). Its state is one uint64 in an array."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return mixed(state[0])


@numba.njit(cache=True)
def start_stream(state, seed, number):  # type: ignore[no-untyped-def]
    """Put the state at the start of the stream of example `number` of the seed."""
    state[0] = np.uint64(seed)
    state[0] = next_random(state) ^ np.uint64(number)
    state[0] = next_random(state)


@numba.njit(cache=True)
def below(bound, state):  # type: ignore[no-untyped-def]
    """Return a random whole number from 0 to bound - 1."""
    return np.int64(next_random(state) % np.uint64(bound))


@numba.njit(cache=True)
def count_bits(mask):  # type: ignore[no-untyped-def]
    """Return the number of bits that are set in a uint64, by adding neighbors in parallel."""
    m = mask
    m = m - ((m >> np.uint64(1)) & np.uint64(0x5555555555555555))
    m = (m & np.uint64(0x3333333333333333)) + ((m >> np.uint64(2)) & np.uint64(0x3333333333333333))
    m = (m + (m >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((m * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True)
def pick_bit(mask, state):  # type: ignore[no-untyped-def]
    """Return a random bit of those that are set in the mask."""
    for _ in range(below(count_bits(mask), state)):
        mask &= mask - np.uint64(1)
    return mask & (~mask + np.uint64(1))


@numba.njit(cache=True)
def shuffled(count, state):  # type: ignore[no-untyped-def]
    """Return a random permutation of 0..count-1 (Fisher-Yates)."""
    order = np.arange(count)
    for i in range(count):
        j = below(i + 1, state)
        order[i] = order[j]
        order[j] = i
    return order
