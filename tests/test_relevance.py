"""Influence equals that of an exact model. The policy places the most relevant position last."""

import math
from dataclasses import replace

import pytest
import torch

from helpers.oracle import Oracle
from latent_tokens import (
    METHODS,
    SIZES,
    TASKS,
    DataConfig,
    Decoding,
    EvalConfig,
    PolicyInput,
    Transformer,
    evaluate,
    generate,
    influence,
    make_data,
    nearest,
    relevant,
)  # fmt: skip
from latent_tokens.core.policies import rank_by
from latent_tokens.core.sampling import generate as reference

TASK = TASKS["sudoku-4"]
CHAIN = torch.tensor([[0.0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 3], [0, 0, 3, 0]])  # 0 - 1 = 2 ≡ 3


def twins():
    """Positions 0 and 1 hold the same one of three tokens, and so do 2 and 3. The pairs are independent."""
    same = torch.eye(3, dtype=torch.float64)
    return torch.einsum("ab,cd->abcd", same, same) + 1e-12


def influence_on(method, tokens, net=None, known=None, **settings):
    """Return the influence between positions, by default of twins of which no token is given."""
    known = torch.zeros_like(tokens, dtype=torch.bool) if known is None else known
    net = Oracle(twins()) if net is None else net
    return influence(net, method, tokens, known, torch.Generator().manual_seed(0), **settings)


@pytest.mark.parametrize("name", ["mdm", "sidm", "scdm", "ar-mtp"])
def test_the_influence_of_twins_is_all_that_there_is_to_know(name):
    """From left to right there is no influence on earlier positions."""
    tokens = torch.tensor([[0, 0, 1, 1], [2, 2, 2, 2], [1, 1, 0, 0]]).repeat(20, 1)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for j, i in ((1, 0), (3, 2)) if name == "ar-mtp" else ((0, 1), (1, 0), (2, 3), (3, 2)):
        expected[j, i] = math.log(3)
    assert torch.allclose(influence_on(METHODS[name], tokens), expected, atol=1e-5)


def test_given_and_padding_positions_have_no_influence():
    """One twin is given or past the length, so the other has none either."""
    tokens = torch.zeros(8, 4, dtype=torch.long)
    known = torch.tensor([[True, False, False, False]]).expand(8, 4)
    whole = influence_on(METHODS["mdm"], tokens, known=known)
    assert whole[2, 3].item() == whole[3, 2].item() == pytest.approx(math.log(3), abs=1e-5)
    assert (whole[0] == 0).all()
    assert (whole[:, 0] == 0).all()
    cut = influence_on(METHODS["mdm"], tokens, known=known, lengths=torch.full((8,), 3))
    assert (cut.abs() < 1e-5).all()
    assert (cut[:2] == 0).all()


def latents_of(policy, order, clean, candidates, latents, masked=None):
    """Return the latent tokens that a policy selects in one row, in their order."""
    numbers = (clean, len(order) - clean if masked is None else masked, candidates, latents)
    row = torch.tensor([order])
    found = policy(PolicyInput(row, *(torch.tensor([number]) for number in numbers), row))
    assert found[0, : clean + candidates].tolist() == order[: clean + candidates]
    return found[0, clean + candidates : clean + candidates + latents].tolist()


@pytest.mark.parametrize(
    ("order", "clean", "expected"),
    [
        # 3 is clean and 0 the candidate: 1 influences it, and 2, which is influenced most, does not.
        ([3, 0, 1, 2], 1, [2, 1]),
        # 0 is clean and 2 the candidate: 3 influences it more, but only 1 is influenced.
        ([0, 2, 1, 3], 1, [1]),
        ([2, 0, 1, 3], 0, [3]),  # no token is clean: the largest influence
    ],
)
def test_best_latent_has_the_most_influence_and_is_last(order, clean, expected):
    assert latents_of(relevant(CHAIN), order, clean, 1, len(expected)) == expected


def test_relevance_counts_from_the_end_and_skips_padding():
    """A row of five of eight positions has the latent tokens of a row of five."""
    relation = torch.rand(8, 8, generator=torch.Generator().manual_seed(0))
    short, cut = relevant(relation), relevant(relation[3:, 3:] / relation[3:, 3:].max() * relation.max())
    for n in (1, 2, 3):
        of_five = latents_of(cut, [2, 0, 4, 1, 3], 1, 1, n)
        assert latents_of(short, [2, 0, 4, 1, 3, 5, 6, 7], 1, 1, n, masked=4) == of_five


def test_padding_is_never_a_latent_however_relevant():
    policy = rank_by(lambda showing: torch.arange(8.0).expand(1, 8), "by place")
    assert latents_of(policy, [2, 0, 4, 1, 3, 5, 6, 7], 1, 1, 2, masked=4) == [3, 4]


def test_relevant_latents_are_equal_in_any_batch_and_path(nano):
    relation = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    decoding = Decoding(candidates=2, latents=3, latent_policy=relevant(relation))
    tokens, lengths = torch.zeros(5, 16, dtype=torch.long), torch.tensor([16, 12, 7, 16, 3])
    known = torch.rand(5, 16, generator=torch.Generator().manual_seed(1)) < 0.2
    method = METHODS["scdm"]
    whole = generate(nano, method, tokens, known, decoding, 3, lengths=lengths)
    plain = reference(nano, method, tokens, known, decoding, 3, lengths=lengths)
    assert torch.equal(whole.order, plain.order)
    assert torch.equal(whole.tokens, plain.tokens)
    for row in range(5):
        one = slice(row, row + 1)
        of_row = {"rows": torch.tensor([row]), "lengths": lengths[one]}
        alone = generate(nano, method, tokens[one], known[one], decoding, 3, **of_row)
        assert torch.equal(alone.order[0], whole.order[row])
    shown = []
    reference(nano, method, tokens, known, decoding, 3, lengths=lengths, on_step=shown.append)
    assert all(
        position < lengths[row]
        for step in shown
        for row, positions in zip(step.rows, step.latents, strict=True)
        for position in positions
    )
    other = generate(
        nano, method, tokens, known, replace(decoding, latent_policy=nearest), 3, lengths=lengths
    )
    assert torch.equal(other.processed, whole.processed)
    assert not torch.equal(other.tokens, whole.tokens)


@pytest.mark.parametrize(
    "relation",
    [torch.zeros(4, 4), torch.ones(4, 3), -torch.eye(4), torch.full((4, 4), float("nan")), torch.zeros(0, 0)],
)
def test_malformed_relation_is_refused(relation):
    with pytest.raises(ValueError, match="must be square, finite"):
        relevant(relation)


def test_a_relation_of_another_length_is_refused(nano):
    tokens = torch.zeros(1, 16, dtype=torch.long)
    decoding = Decoding(1, latents=2, latent_policy=relevant(CHAIN))
    with pytest.raises(ValueError, match="relation of 4 positions for sequences of 16"):
        generate(nano, METHODS["scdm"], tokens, tokens.bool(), decoding, 0)


def test_evaluate_measures_the_influence_itself(nano):
    nano.method = METHODS["scdm"]
    config = EvalConfig(latents=(0, 3), num_samples=8, latent_policy="relevant")
    rows, again = evaluate(nano, TASK, config), evaluate(nano, TASK, config)
    assert [row["latent_policy"] for row in rows] == ["relevant", "relevant"]
    assert [row["valid"] for row in rows] == [row["valid"] for row in again]


def test_influence_aligns_rows_of_several_lengths_at_their_ends():
    """Twins at the end of a short row and of a long one are the same twins."""
    tokens = torch.tensor([[0, 0, 1, 1], [2, 2, 0, 0]]).repeat(30, 1)
    found = influence_on(METHODS["mdm"], tokens, lengths=torch.tensor([4, 2]).repeat(30))
    wanted = torch.zeros(4, 4, dtype=torch.float64)
    for pair in ((0, 1), (1, 0), (2, 3), (3, 2)):
        wanted[pair] = math.log(3)
    assert torch.allclose(found, wanted, atol=1e-5)


def test_a_window_bounds_what_influence_is_measured_on():
    """The one masked position in the input was not in that of the step before."""
    found = influence_on(replace(METHODS["scdm"], window=1), torch.tensor([[0, 0, 1, 1]]).repeat(40, 1))
    assert (found == 0).all()


def test_a_shifted_readout_has_no_influence_to_measure():
    tokens = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="shifted readout"):
        influence_on(METHODS["arm"], tokens, Oracle(twins(), shifted=True))


def test_a_model_of_boards_infills_by_relevance(tmp_path):
    folder = make_data(
        DataConfig(
            "sudoku-6-puzzle", tmp_path / "puzzles", num_train=0, num_validation=8, num_test=4, processes=1
        )
    )
    boards = TASKS["sudoku-6"]
    net = Transformer(SIZES["nano"], boards.vocab_size, boards.length).eval()
    net.method = METHODS["scdm"]
    (row,) = evaluate(net, boards, EvalConfig(data=folder, latents=(2,), latent_policy="relevant"))
    assert (row["latent_policy"], row["num_samples"]) == ("relevant", 4)


@pytest.mark.parametrize("name", ["mdm", "sidm", "arm", "ar-mtp"])
def test_a_method_without_a_choice_of_latents_is_told_so(nano, name):
    nano.method = METHODS[name]
    with pytest.raises(ValueError, match=r"its latent tokens cannot be chosen. Use a scdm or esolm model"):
        evaluate(nano, TASK, EvalConfig(num_samples=1, latent_policy="relevant"))
