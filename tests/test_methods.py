"""Methods, of METHODS and of a user: names, files, numbers of latent tokens, and what training shows.

Some have fewer visible tokens in some rows (depth), or masked slots in random order.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch

import latent_tokens as lt
from helpers.refusals import refused
from latent_tokens.checkpoints.stored_methods import method_from, method_to
from latent_tokens.core import sampling as reference
from latent_tokens.core.attention import (
    attends_earlier,
    attends_later,
    bidirectional,
    causal,
    clean_attends_to_masked,
    dense_mask,
    independent,
    is_cacheable,
    semi_causal,
)
from latent_tokens.core.decoding import check_decoding
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import draw_rows, name_of
from latent_tokens.core.objective import corrupt
from latent_tokens.evaluation.settings import label, shown_candidates, shown_latents
from latent_tokens.storage import read_description

LENGTH = 16
NEAR = replace(lt.METHODS["scdm"], window=4, name="near scdm")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(method, batch=8, known=0, length=LENGTH):
    """Return a training layout of a batch whose first positions are known."""
    clean = torch.arange(LENGTH).expand(batch, -1) < known
    return method.draw(clean, torch.full((batch,), length), generator())


def test_the_table_of_methods_is_the_papers():
    of_the_paper = ["mdm", "sidm", "scdm", "esolm", "arm", "ar-mtp", "ar-mtp-window-16", "ar-ntp-16"]
    assert list(lt.METHODS) == [*of_the_paper, "mdm-depth", "scdm-depth", "ar-latents"]
    assert all(lt.METHODS[name].depth == "all" for name in of_the_paper)
    expected = {"mdm": bidirectional, "sidm": independent, "scdm": semi_causal, "esolm": causal}
    assert {name: lt.METHODS[name].attention for name in expected} == expected
    assert lt.METHODS["ar-mtp-window-128"].window == 128
    assert lt.METHODS["ar-ntp-5"].targets == "next"


@pytest.mark.parametrize(
    ("base", "change", "name"),
    [
        ("mdm", {"depth": ("uniform", 0.5)}, "mdm-depth"),
        ("mdm", {"depth": ("uniform", 0.25)}, "mdm (uniform:0.25)"),
        ("scdm-depth", {"weight": "flat"}, "scdm-depth (flat)"),
        ("ar-mtp-window-4", {"depth": ("uniform", 1)}, "ar-mtp-window-4 (uniform:1)"),
        ("esolm", {"depth": ("none", 0.5), "weight": "flat"}, "esolm (flat, none:0.5)"),
        ("scdm-depth", {"order": lt.left_to_right}, "custom"),
        ("ar-latents", {"weight": "elbo"}, "ar-latents (elbo)"),
        ("ar-latents", {"masked_slots": "in_order"}, "custom"),
        ("scdm", {"window": 4, "name": "near scdm"}, "near scdm"),
        ("scdm", {"name": "mine"}, "scdm"),  # an entry keeps its name
        ("scdm", {"weight": "flat", "name": "mine"}, "mine"),
    ],
)
def test_name_of_a_changed_method(base, change, name):
    assert name_of(replace(lt.METHODS[base], **change)) == name


def test_own_name_is_stored_and_shown_and_no_part_of_the_method(nano):
    assert replace(NEAR, name="other") == NEAR
    assert hash(NEAR) == hash(replace(NEAR, name="other"))
    assert method_to(NEAR)["name"] == method_from(method_to(NEAR)).name == "near scdm"
    nano.method = NEAR
    (row,) = lt.evaluate(nano, lt.TASKS["sudoku-4"], lt.EvalConfig(num_samples=2))
    assert row["method"] == "near scdm"
    assert "near scdm" in label(NEAR, lt.Decoding(1))
    with refused("is not supported by near mdm", "latents=all"):
        check_decoding(replace(lt.METHODS["mdm"], window=4, name="near mdm"), lt.Decoding(1, latents=1))


def test_a_method_names_the_run_instead_of_the_config(tmp_path):
    config = lt.TrainConfig("sudoku-4", "scdm", out=tmp_path / "run", size="pico", steps=1, num_train=8)
    run = lt.fit(config, lt.METHODS["mdm"], num_validation=2, precision="fp32", threads=1)
    assert read_description(run, "config.json", "run")["name"] == "mdm"


def test_fields_of_a_method_are_written_only_if_set():
    for entry in lt.METHODS.values():
        written = method_to(entry)
        assert "name" not in written
        assert ("depth" in written) == (entry.depth != "all")
        assert ("masked_slots" in written) == (entry.masked_slots != "in_order")
        assert method_from(written) == entry
        for field in ("window", "latents"):  # as in the files of earlier versions
            assert (written[field] is None) == (getattr(entry, field) == "all")


# Attention rules, and the latent tokens that they allow.


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


def test_samples_of_a_rule_of_distance_equal_the_reference():
    torch.manual_seed(0)
    net = lt.Transformer("pico", vocab_size=4, max_length=36).eval()
    known = torch.zeros(8, 36, dtype=torch.bool)
    inputs = (net, lt.Method(lt.any_order, end_of_clean), known.long(), known, lt.Decoding(candidates=4), 0)
    assert torch.equal(lt.generate(*inputs).tokens, reference.generate(*inputs).tokens)


@pytest.mark.parametrize(
    ("method", "control"),
    [
        *((lt.METHODS[name], "fixed") for name in ("mdm", "ar-mtp-window-4", "block-mdm-4")),
        *((lt.METHODS[name], "free") for name in ("mdm-depth", "scdm", "scdm-depth", "ar-latents")),
        (replace(lt.METHODS["mdm"], depth=("none", 0.5)), "fixed"),
        (replace(lt.METHODS["ar-mtp-window-4"], depth=("uniform", 0.5)), "free"),
        (lt.Method(lt.any_order, dilated), "fixed"),
        (lt.Method(lt.any_order, dilated_causal), "free"),
    ],
)
def test_rule_and_depth_set_how_n_is_controlled(method, control):
    assert method.latent_control == control


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mdm", {"window": 3, "latents": 2}),
        ("mdm", {"window": 4, "latents": 2, "depth": ("uniform", 0.5)}),
        ("scdm", {"window": 4, "latents": 2}),
        ("scdm", {"attention": bidirectional}),
        ("mdm", {"attention": independent}),
    ],
)
def test_latents_that_decoding_can_use_are_accepted(name, change):
    replace(lt.METHODS[name], **change)


@pytest.mark.parametrize(
    ("method", "default"),
    [
        (lt.METHODS["mdm"], "all"),
        (lt.Method(lt.left_to_right, bidirectional), "all"),
        (replace(lt.METHODS["mdm"], attention=independent), 0),
        (lt.METHODS["arm"], 0),
        (lt.METHODS["scdm"], 0),
        (replace(lt.METHODS["scdm"], latents="all"), "all"),
        (replace(lt.METHODS["scdm"], latents=3), 3),
    ],
)
def test_default_latents_are_those_of_decoding(method, default):
    assert method.default_latents == default
    assert shown_latents(method, lt.Decoding(1)) == default


def test_window_caps_the_reported_counts(nano):
    method = replace(lt.METHODS["mdm"], window=4)
    tokens = torch.zeros(1, nano.max_length, dtype=torch.long)
    for k, n in ((1, "all"), (3, "all"), (8, "all"), ("all", None)):
        decoding = lt.Decoding(candidates=k, latents=n)
        steps = []
        lt.generate(nano, method, tokens, tokens.bool(), decoding, 0, on_step=steps.append)
        assert shown_candidates(method, decoding) == len(steps[0].candidates[0])
        assert shown_latents(method, decoding) == len(steps[0].latents[0])
    assert [shown_latents(NEAR, lt.Decoding(candidates=2, latents=n)) for n in (8, 1)] == [2, 1]


# Depth: rows of independent slots, or with fewer visible ones.


@pytest.mark.parametrize(
    ("rule", "attends"),
    [
        (semi_causal, lambda i, j, c: j < c),
        (bidirectional, lambda i, j, c: j < c),
        (causal, lambda i, j, c: j < c and j <= i),  # clean slots keep the rule, so that they can be cached
    ],
)
def test_independent_rows_attend_to_clean_slots_and_themselves(rule, attends):
    """The mask is compared slot by slot, with a row under the rule and padding."""
    clean, shown, slots = 3, 6, 8
    counts = torch.tensor([clean] * 2), torch.tensor([shown] * 2)
    layout = Layout(torch.zeros(2, slots).long(), *counts, torch.tensor([True, False]))
    for mask, attend in zip(dense_mask(rule, layout), (attends, rule), strict=True):
        for i in range(slots):
            for j in range(slots):
                inside = i < shown and j < shown
                assert bool(mask[i, j]) == ((inside and bool(attend(i, j, clean))) or i == j), (i, j)


@pytest.mark.parametrize(("share", "batch"), [(0.5, 7), (0.25, 10), (1.0, 5), (0.01, 4)])
def test_a_share_of_the_rows_is_drawn_each_as_often(share, batch):
    source = generator()

    def uniform(size):
        return torch.rand(size, generator=source, dtype=torch.float64)

    draws = torch.stack([draw_rows(share, batch, uniform) for _ in range(2_000)])
    counts = draws.sum(1)
    assert counts.min() >= int(share * batch)
    assert counts.max() <= -(-share * batch // 1)
    assert (draws.double().mean(0) - share).abs().max() < 0.04


@pytest.mark.parametrize("name", ["mdm-depth", "scdm-depth"])
def test_depth_changes_neither_order_nor_clean_counts(name):
    plain = drawn(lt.METHODS[name.removesuffix("-depth")])
    layout = drawn(lt.METHODS[name])
    assert torch.equal(layout.num_clean, plain.num_clean)
    if name == "scdm-depth":
        assert layout.is_independent.sum() == 4  # half of the rows
        assert (layout.num_shown == LENGTH).all()
    shared = layout.shown & plain.shown
    assert torch.equal(layout.positions[shared], plain.positions[shared])


def test_half_of_the_rows_of_mdm_depth_show_a_uniform_number_all_scored():
    tokens = torch.zeros(8_000, LENGTH, dtype=torch.long)
    known = torch.arange(LENGTH).expand_as(tokens) < 11
    batch = corrupt(lt.METHODS["mdm-depth"], tokens, known, generator(), mask_id=9)
    visible = batch.layout.num_shown - batch.layout.num_clean
    assert batch.layout.is_independent is None
    assert torch.equal(batch.scored.sum(1), visible)
    torch.testing.assert_close(batch.weight, 1 / visible / 8_000)
    at_first = visible[batch.layout.num_clean == 11]
    shares = torch.bincount(at_first, minlength=6)[1:] / len(at_first)
    expected = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.6])  # all five in half of the rows, else 1 to 5
    assert (shares - expected).abs().max() < 0.03


def test_depth_of_none_in_every_row_trains_sidm(nano):
    tokens = torch.randint(0, 4, (6, LENGTH), generator=generator())
    every = replace(lt.METHODS["scdm"], depth=("none", 1))
    methods = (every, lt.METHODS["sidm"], lt.METHODS["scdm-depth"], lt.METHODS["scdm"])
    of_every, of_sidm, half, none = (
        lt.loss(nano, method, tokens, tokens < 0, generator(3)).item() for method in methods
    )
    assert of_every == pytest.approx(of_sidm, abs=1e-6)
    assert len({round(value, 5) for value in (of_every, half, none)}) == 3


def test_all_latents_of_mdm_depth_are_those_of_mdm(nano):
    """It is its own number, and decodes as mdm with the same weights. Fewer latents decode otherwise."""
    known = torch.zeros(5, LENGTH, dtype=torch.bool)

    def tokens(name, n, **more):
        return lt.generate(nano, lt.METHODS[name], known.long(), known, lt.Decoding(4, n, **more), 0).tokens

    expected = tokens("mdm", None)
    assert torch.equal(tokens("mdm-depth", None), expected)
    assert torch.equal(tokens("mdm-depth", "all"), expected)
    assert not torch.equal(tokens("mdm-depth", 2), expected)
    assert not torch.equal(tokens("mdm-depth", 2, latent_policy=lt.random), tokens("mdm-depth", 2))


# Masked slots in random order.


@pytest.mark.parametrize(("window", "length"), [("all", LENGTH), ("all", 4), (3, LENGTH)])
def test_only_masked_slots_of_the_window_are_shuffled(window, length):
    """And no padding: the positions of the clean slots and of those behind are in order."""
    method = replace(lt.METHODS["ar-latents"], window=window)
    plain = drawn(replace(method, masked_slots="in_order"), 64, known=2, length=length)
    layout = drawn(method, 64, known=2, length=length)
    assert torch.equal(layout.num_clean, plain.num_clean)
    assert torch.equal(layout.num_shown, plain.num_shown)
    assert (layout.num_shown - layout.num_clean).max() == (length - 2 if window == "all" else window)
    for positions, clean, shown in zip(layout.positions, layout.num_clean, layout.num_shown, strict=True):
        assert positions[:clean].tolist() == list(range(clean))
        assert sorted(positions[clean:shown].tolist()) == list(range(clean, shown))
    assert not torch.equal(layout.positions, plain.positions)


def test_each_order_of_the_masked_slots_is_as_likely():
    layout = drawn(lt.METHODS["ar-latents"], batch=9_000, known=LENGTH - 3)
    rows = layout.positions[layout.num_clean == LENGTH - 3, LENGTH - 3 :].tolist()
    counts = Counter(map(tuple, rows))
    assert len(counts) == 6
    assert all(abs(count / len(rows) - 1 / 6) < 0.03 for count in counts.values())
