"""Methods of a user: impossible ones are refused, and rows report the decoding."""

from dataclasses import replace

import pytest
import torch

from helpers.refusals import refused
from latent_tokens import (
    METHODS,
    SIZES,
    TASKS,
    Decoding,
    EvalConfig,
    Method,
    Transformer,
    any_order,
    evaluate,
    generate,
    left_to_right,
)
from latent_tokens.checkpoints.stored_methods import method_from, method_to
from latent_tokens.core import sampling as reference
from latent_tokens.core.attention import (
    attends_earlier,
    attends_later,
    bidirectional,
    causal,
    clean_attends_to_masked,
    independent,
    is_cacheable,
    semi_causal,
)
from latent_tokens.core.decoding import check_decoding
from latent_tokens.core.method import name_of
from latent_tokens.evaluation.settings import label, shown_candidates, shown_latents

WINDOWED = replace(METHODS["mdm"], window=4)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mdm", {"window": 3, "latents": 2}),
        ("mdm", {"window": 4, "latents": 2, "depth": "uniform:0.5"}),
        ("scdm", {"window": 4, "latents": 2}),
        ("scdm", {"attention": bidirectional}),
        ("mdm", {"attention": independent}),
    ],
)
def test_latents_that_decoding_can_use_are_accepted(name, change):
    replace(METHODS[name], **change)


@pytest.mark.parametrize(
    ("method", "default"),
    [
        (METHODS["mdm"], "all"),
        (Method(left_to_right, bidirectional), "all"),
        (replace(METHODS["mdm"], attention=independent), 0),
        (METHODS["arm"], 0),
        (METHODS["scdm"], 0),
        (replace(METHODS["scdm"], latents=None), "all"),
        (replace(METHODS["scdm"], latents=3), 3),
    ],
)
def test_default_latents_are_those_of_decoding(method, default, nano):
    assert method.default_latents == default
    assert shown_latents(method, Decoding(1)) == default


def dilated(q, k, c):
    """Attend to every second slot, before and after. Two slots next to each other do not show it."""
    return (q - k) % 2 == 0


def dilated_causal(q, k, c):
    return (k <= q) & dilated(q, k, c)


def end_of_clean(q, k, c):
    """Attend to the last 20 clean slots: what a clean slot attends to changes from the 21st on."""
    return (k <= q) & (k >= c - 20)


def test_rules_are_tested_on_distant_slots_too():
    assert attends_later(dilated)
    assert attends_earlier(dilated_causal)
    assert clean_attends_to_masked(dilated)
    assert not clean_attends_to_masked(dilated_causal)
    assert not is_cacheable(dilated, 12)
    assert is_cacheable(dilated_causal, 12)
    assert is_cacheable(end_of_clean, 20)
    assert not is_cacheable(end_of_clean, 36)
    assert Method(any_order, dilated).latent_control == "fixed"
    assert Method(any_order, dilated_causal).latent_control == "free"


def test_samples_of_a_rule_of_distance_equal_the_reference():
    torch.manual_seed(0)
    net = Transformer(SIZES["pico"], vocab_size=4, max_length=36).eval()
    method = Method(any_order, end_of_clean)
    known = torch.zeros(8, 36, dtype=torch.bool)
    decoding = Decoding(candidates=4)
    samples = generate(net, method, known.long(), known, decoding)
    expected = reference.generate(net, method, known.long(), known, decoding, 0)
    assert torch.equal(samples.tokens, expected.tokens)


def test_window_caps_the_reported_counts(nano):
    tokens = torch.zeros(1, nano.max_length, dtype=torch.long)
    for k, n in ((1, "all"), (3, "all"), (8, "all"), ("all", None)):
        decoding = Decoding(candidates=k, latents=n)
        steps = []
        generate(nano, WINDOWED, tokens, tokens.bool(), decoding, 0, on_step=steps.append)
        assert shown_candidates(WINDOWED, decoding) == len(steps[0].candidates[0])
        assert shown_latents(WINDOWED, decoding) == len(steps[0].latents[0])


def test_window_of_a_free_method_caps_its_reported_counts():
    method = replace(METHODS["scdm"], window=4)
    counts = [shown_latents(method, Decoding(candidates=2, latents=n)) for n in (8, 1)]
    assert counts == [2, 1]


NEAR = replace(METHODS["scdm"], window=4, name="near scdm")


def test_name_of_a_method_is_its_own_unless_it_is_an_entry():
    assert name_of(NEAR) == "near scdm"
    assert name_of(replace(NEAR, name=None)) == "custom"
    assert name_of(replace(METHODS["scdm"], name="mine")) == "scdm"
    assert name_of(replace(METHODS["scdm"], weight="flat", name="mine")) == "mine"
    assert replace(METHODS["scdm"], name="mine") == METHODS["scdm"]
    assert hash(NEAR) == hash(replace(NEAR, name="other"))


def test_name_of_a_method_is_stored_and_shown_only_if_it_is_set(nano):
    assert all("name" not in method_to(entry) for entry in METHODS.values())
    assert method_to(NEAR)["name"] == method_from(method_to(NEAR)).name == "near scdm"
    nano.method = NEAR
    (row,) = evaluate(nano, TASKS["sudoku-4"], EvalConfig(num_samples=2))
    assert row["method"] == "near scdm"
    assert "near scdm" in label(NEAR, Decoding(1))
    with refused("is not supported by near mdm", "latents=all"):
        check_decoding(replace(METHODS["mdm"], window=4, name="near mdm"), Decoding(1, latents=1))


def test_the_table_of_methods_is_the_papers():
    rules = {name: method.attention for name, method in METHODS.items()}
    of_the_paper = ["mdm", "sidm", "scdm", "esolm", "arm", "ar-mtp", "ar-mtp-window-16", "ar-ntp-16"]
    assert list(METHODS) == [*of_the_paper, "mdm-depth", "scdm-depth", "ar-latents"]
    assert all(METHODS[name].depth == "all" for name in of_the_paper)
    expected = {"mdm": bidirectional, "sidm": independent, "scdm": semi_causal, "esolm": causal}
    assert {name: rules[name] for name in expected} == expected
    assert METHODS["ar-mtp-window-128"].window == 128
    assert METHODS["ar-ntp-5"].targets == "next"
