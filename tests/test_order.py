"""Orders are permutations with known positions first. Decoding moves decoded positions behind these."""

import pytest
import torch
from hypothesis import given as for_all, strategies as st

from helpers.oracle import Oracle, small_joint
from latent_tokens import METHODS, Decoding, any_order, generate, given, left_to_right
from latent_tokens.core.order import first_order, is_left_to_right, is_random, promote, shuffle
from latent_tokens.core.selection import equal_parts, given_partition, reverse_process, sizes_of_steps

masks = st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4).map(torch.tensor)
RULES = {"any_order": any_order, "left_to_right": left_to_right, "given": given([3, 1, 5, 0, 2, 4])}


def noise_for(known, seed=0):
    return torch.rand(known.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", RULES)
@for_all(known=masks, data=st.data())
def test_order_is_a_permutation_given_first_padding_last(name, known, data):
    lengths = torch.tensor([data.draw(st.integers(0, 6)) for _ in known])
    inside = torch.arange(6) < lengths[:, None]
    known = known & inside
    order = first_order(RULES[name], known, lengths, lambda: noise_for(known))
    assert (order.sort(1).values == torch.arange(6)).all()
    for row, places, length in zip(known, order.tolist(), lengths.tolist(), strict=True):
        count = int(row.sum())
        assert row[places[:count]].all()
        assert not row[places[count:length]].any()
        assert set(places[length:]) == set(range(length, 6))


def test_any_order_is_uniform_over_what_is_unknown():
    known = torch.tensor([False, True, False, False]).expand(24_000, 4)
    order = any_order(known, noise_for(known))
    _, counts = order[:, 1:].unique(dim=0, return_counts=True)
    assert len(counts) == 6
    assert (counts.double() / 24_000 - 1 / 6).abs().max() < 0.01


@for_all(data=st.data())
def test_promote_moves_the_chosen_up_and_keeps_the_rest_in_order(data):
    order = torch.tensor([data.draw(st.permutations(range(7)))])
    clean = data.draw(st.integers(0, 6))
    chosen = data.draw(st.lists(st.integers(clean, 6), min_size=1, max_size=7, unique=True))
    count = data.draw(st.integers(1, len(chosen)))
    found = promote(order, torch.tensor([clean]), torch.tensor([chosen]), torch.tensor([count]))[0].tolist()
    before = order[0].tolist()
    moved = [before[i] for i in chosen[:count]]
    assert found == before[:clean] + moved + [place for place in before[clean:] if place not in moved]


def test_shuffle_moves_nothing_outside_its_range():
    order = torch.arange(6)[None]
    noise = torch.tensor([[0.9, 0.1, 0.5, 1.0]], dtype=torch.float64)
    assert shuffle(order, torch.tensor([1]), noise).tolist() == [[0, 2, 3, 1, 4, 5]]


@for_all(known=masks, steps=st.integers(1, 9))
def test_partitions_decode_everything_and_leave_no_step_empty(known, steps):
    open_positions = ~known
    fixed = given_partition([[5, 0], [1, 2, 3], [4]])[1]
    for partition in (steps, equal_parts(steps), reverse_process(steps), fixed):
        sizes = sizes_of_steps(partition, open_positions, lambda: noise_for(known))
        assert (sizes.sum(1) >= open_positions.sum(1)).all()
        for row in sizes.tolist():
            assert 0 not in row[: len([size for size in row if size])]


def last_first_or_second(known, draw):
    """A random order of a user: the last position comes first or second, the others from left to right."""
    noise = draw()[:, :1] < 0.5
    key = torch.arange(known.shape[1]).repeat(len(known), 1).double()
    key[:, -1] = torch.where(noise[:, 0], -0.5, 0.5)
    return key.masked_fill(known, -1).argsort(dim=1, stable=True)


def test_a_users_random_order_is_drawn_per_row():
    known = torch.zeros(40, 3, dtype=torch.bool)
    inputs = (Oracle(small_joint()), METHODS["scdm"], known.long(), known)
    decoding = Decoding(1, order=last_first_or_second)
    both = (torch.arange(40), torch.arange(40).flip(0))
    orders = [generate(*inputs, decoding, seed=0, rows=rows).order for rows in both]
    assert torch.equal(orders[0], orders[1].flip(0))
    assert {tuple(row) for row in orders[0].tolist()} == {(2, 0, 1), (0, 2, 1)}
    assert is_random(last_first_or_second)
    assert not is_left_to_right(last_first_or_second)


def test_left_to_right_is_known_by_what_an_order_does():
    assert is_left_to_right(left_to_right)
    assert is_left_to_right(lambda known: (~known).long().argsort(dim=1, stable=True))
    assert not is_left_to_right(given([2, 1, 0]))
    assert not is_left_to_right(given([0, 1, 2, 3]))
    assert not is_left_to_right(any_order)


def test_left_to_right_is_not_an_order_whose_last_block_comes_first():
    def last_four_first(known):
        block = torch.arange(known.shape[1]) // 4
        return (100 * ~known - block).argsort(dim=1, stable=True)

    assert not is_left_to_right(last_four_first)
