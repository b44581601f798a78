"""With exact conditionals as denoiser, sampling draws the joint and the loss is its entropy."""

import itertools
from dataclasses import replace

import pytest
import torch

import latent_tokens as lt
from helpers.oracle import Oracle, frequencies, small_joint, total_variation

MANY = 20_000  # With this many draws, an empirical distribution is within 0.02 of the true one.
# With this many draws it is within 0.042. The joint is 0.116 or more from any product of its parts,
# and 0.269 from itself at temperature 0.5.
DRAWS = 4_000
NEAR, FAR = 0.05, 0.1
JOINT = small_joint()
MARGINAL = [JOINT.sum(tuple({0, 1, 2} - {place})) / JOINT.sum() for place in range(3)]

DECODINGS = {
    "uniform": lt.Decoding(1),
    "top-prob of ever more": lt.Decoding(candidates=lt.growing),
    "margin of all": lt.Decoding(candidates="all", confidence=lt.margin),
    "entropy of 2, as printed": lt.Decoding(candidates=2, confidence=lt.entropy, refresh=False),
    "left to right": lt.Decoding(1, order=lt.left_to_right),
    **{f"n={n}": lt.Decoding(candidates=2, latents=n) for n in (0, 1, "all")},
    "n=half": lt.Decoding(candidates=2, latents=lambda masked: masked // 2),
    "a given schedule, random latents": lt.Decoding(1, order=lt.given([2, 0, 1]), latent_policy=lt.random),
    "any order": lt.Decoding(1, order=lt.any_order, refresh=False),
    "blocks of 2": lt.Decoding(order=lt.blockwise(2), candidates=2),
}


def oracle_for(method, joint=JOINT):
    return Oracle(joint, shifted=method.readout == "shifted")


def draw(method, decoding, joint=JOINT, known=None, draws=DRAWS):
    known = torch.zeros(draws, joint.dim(), dtype=torch.bool) if known is None else known
    return lt.generate(oracle_for(method, joint), method, 0 * known.long(), known, decoding, seed=0).tokens


def distance(tokens, joint):
    """Return the total variation distance of the frequencies of samples from a distribution."""
    return total_variation(frequencies(tokens), joint / joint.sum())


def test_samples_of_every_method_have_the_joint_distribution(any_method):
    decoding = lt.Decoding(1 if any_method.is_left_to_right else 2)
    assert distance(draw(any_method, decoding), JOINT) < NEAR


@pytest.mark.parametrize("name", DECODINGS)
def test_samples_of_every_decoding_have_the_joint_distribution(name):
    assert distance(draw(lt.METHODS["scdm"], DECODINGS[name]), JOINT) < NEAR


def test_samples_have_no_distribution_near_the_joint():
    """At temperature 1.1 the distance would be 0.032."""
    assert distance(draw(lt.METHODS["scdm"], lt.Decoding(candidates=2, latents=1), draws=MANY), JOINT) < 0.02


def test_given_positions_condition_the_rest():
    known = torch.tensor([False, True, False]).expand(DRAWS, 3)
    tokens = draw(lt.METHODS["scdm"], lt.Decoding(candidates=2, latents=1), known=known)
    conditional = torch.zeros_like(JOINT)
    conditional[:, 0] = JOINT[:, 0] / JOINT[:, 0].sum()
    assert (tokens[:, 1] == 0).all()
    assert distance(tokens, conditional) < NEAR


def product(parts):
    """Return the distribution of decoding the position sets `parts` in order, independent within a set."""
    made = torch.zeros_like(JOINT)
    for outcome in itertools.product(range(3), repeat=3):
        probability, seen = 1.0, {}
        for part in parts:
            for place in part:
                index = tuple(seen.get(p, slice(None)) for p in range(3))
                target = tuple(outcome[p] if p == place else seen.get(p, slice(None)) for p in range(3))
                probability *= (JOINT[target].sum() / JOINT[index].sum()).item()
            seen |= {place: outcome[place] for place in part}
        made[outcome] = probability
    return made


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (
            dict(zip(("order", "tokens_per_step"), lt.given_partition([[1], [2, 0]]), strict=True)),
            [[1], [2, 0]],
        ),
        ({"tokens_per_step": 3}, [[0, 1, 2]]),
        ({"tokens_per_step": lt.equal_parts(1)}, [[0, 1, 2]]),
    ],
)
def test_tokens_of_a_step_are_independent_of_each_other(settings, parts):
    samples = draw(lt.METHODS["scdm"], lt.Decoding(1, **settings))
    assert distance(samples, product(parts)) < NEAR
    assert distance(samples, JOINT) > FAR


def test_reverse_process_unmasks_positions_at_uniform_steps():
    expected = torch.zeros_like(JOINT)
    for steps in itertools.product(range(2), repeat=3):
        parts = [[place for place in range(3) if steps[place] == step] for step in range(2)]
        expected += product(parts) / 8
    samples = draw(lt.METHODS["mdm"], lt.Decoding(1, tokens_per_step=lt.reverse_process(2)), draws=MANY)
    assert distance(samples, expected) < 0.025
    assert distance(samples, JOINT) > 0.035


def test_temperature_and_top_p_act_on_the_drawn_token_alone():
    joint = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    sharp = draw(lt.METHODS["mdm"], lt.Decoding(1, temperature=0.5), joint, draws=MANY)
    assert distance(sharp, joint**2) < 0.02
    nucleus = draw(lt.METHODS["mdm"], lt.Decoding(1, top_p=0.6), joint, draws=MANY)
    assert distance(nucleus, torch.tensor([0.625, 0.375, 0])) < 0.02
    assert (draw(lt.METHODS["mdm"], lt.Decoding(1, temperature=0), joint) == 0).all()


def test_a_temperature_falls_with_the_share_that_is_masked():
    """Two independent tokens from 2 towards 0: the first is drawn at 2, the second at 1."""
    part = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    joint = part[:, None] * part
    decoding = lt.Decoding(order=lt.left_to_right, t_max=2.0, t_min=0)
    first = part.sqrt() / part.sqrt().sum()
    for drafts in (0, 1):
        samples = draw(lt.METHODS["esolm"], replace(decoding, drafts=drafts), joint, draws=MANY)
        assert distance(samples, first[:, None] * part) < 0.02
    assert distance(samples, joint) > FAR


def conditional_entropy(given_places, place):
    """H(x[place] | x[given_places]) of the joint, in nats."""
    joint = JOINT / JOINT.sum()
    total = 0.0
    for outcome in itertools.product(range(3), repeat=3):
        given_index = tuple(outcome[p] if p in given_places else slice(None) for p in range(3))
        both = tuple(outcome[p] if p in (*given_places, place) else slice(None) for p in range(3))
        total -= (joint[outcome] * (joint[both].sum() / joint[given_index].sum()).log()).item()
    return total


H = torch.special.entr(JOINT / JOINT.sum()).sum().item()
SUFFIXES = [[conditional_entropy(range(clean), place) for place in range(clean, 3)] for clean in range(3)]
LOSSES = {
    **dict.fromkeys(("mdm", "sidm", "esolm", "arm", "mdm-depth", "scdm-depth", "block-mdm-2"), H / 3),
    "ar-mtp": sum(map(sum, SUFFIXES)) / 9,
    "ar-mtp-window-2": sum(sum(suffix[:2]) for suffix in SUFFIXES) / 9,
    "ar-ntp-2": H / 9,
    "ar-latents": sum(map(sum, SUFFIXES)) / 9,
}
VARIANTS = {  # of which the ELBO is the entropy per token
    "mdm, window of 1": replace(lt.METHODS["mdm"], window=1),
    "mdm, window of 2": replace(lt.METHODS["mdm"], window=2),
    "mdm, next targets": replace(lt.METHODS["mdm"], targets="next"),
    "ar-ntp-2, elbo": replace(lt.METHODS["ar-ntp-2"], weight="elbo"),
}


@pytest.mark.parametrize("name", [*LOSSES, *VARIANTS])
def test_loss_is_the_entropy_that_the_paper_means(name):
    method = VARIANTS[name] if name in VARIANTS else lt.METHODS[name]
    generator = torch.Generator().manual_seed(1)
    rows = torch.multinomial(JOINT.reshape(-1), 60_000, replacement=True, generator=generator)
    net = oracle_for(method)
    tokens = net.outcomes[rows]
    value = lt.loss(net, method, tokens, tokens < 0, torch.Generator().manual_seed(2)).item()
    assert value == pytest.approx(LOSSES.get(name, H / 3), abs=0.008)
