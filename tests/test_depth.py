"""Training inputs with fewer visible tokens in some rows (depth), or masked slots in random order."""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

from helpers.refusals import refused
from latent_tokens import (
    METHODS,
    Decoding,
    Size,
    Transformer,
    from_pretrained,
    generate,
    left_to_right,
    loss,
    random,
    save_pretrained,
)
from latent_tokens.checkpoints.stored_methods import method_from, method_to
from latent_tokens.core.attention import bidirectional, causal, dense_mask, semi_causal
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import draw_rows, name_of
from latent_tokens.core.objective import corrupt

LENGTH = 16


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def drawn(method, batch=8, seed=0, known=0):
    """Return a training layout of a batch whose first positions are known."""
    clean = torch.arange(LENGTH).expand(batch, -1) < known
    return method.draw(clean, torch.full((batch,), LENGTH), generator(seed))


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
    plain = drawn(METHODS[name.removesuffix("-depth")])
    layout = drawn(METHODS[name])
    assert torch.equal(layout.num_clean, plain.num_clean)
    if name == "scdm-depth":
        assert layout.is_independent.sum() == 4  # half of the rows
        assert (layout.num_shown == LENGTH).all()
    shared = layout.shown & plain.shown
    assert torch.equal(layout.positions[shared], plain.positions[shared])


def test_half_of_the_rows_of_mdm_depth_show_a_uniform_number_all_scored():
    tokens = torch.zeros(8_000, LENGTH, dtype=torch.long)
    known = torch.arange(LENGTH).expand_as(tokens) < 11
    batch = corrupt(METHODS["mdm-depth"], tokens, known, generator(), mask_id=9)
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
    known = tokens < 0
    every = replace(METHODS["scdm"], depth="none:1")
    methods = (every, METHODS["sidm"], METHODS["scdm-depth"], METHODS["scdm"])
    of_every, of_sidm, half, none = (
        loss(nano, method, tokens, known, generator(3)).item() for method in methods
    )
    assert of_every == pytest.approx(of_sidm, abs=1e-6)
    assert len({round(value, 5) for value in (of_every, half, none)}) == 3


def test_parts_of_a_batch_keep_their_independent_rows():
    tokens = torch.zeros(9, LENGTH, dtype=torch.long)
    batch = corrupt(METHODS["scdm-depth"], tokens, tokens > 0, generator(), mask_id=9)
    rows = torch.tensor([7, 2, 4])
    part = batch.take(rows).to(torch.device("cpu"))
    assert torch.equal(part.layout.is_independent, batch.layout.is_independent[rows])


def test_depth_sets_how_n_is_controlled():
    controls = {"mdm": "fixed", "mdm-depth": "free", "scdm": "free", "scdm-depth": "free"}
    controls |= {"ar-mtp-window-4": "fixed", "ar-latents": "free"}
    assert {name: METHODS[name].latent_control for name in controls} == controls
    assert replace(METHODS["mdm"], depth="none:0.5").latent_control == "fixed"
    assert replace(METHODS["ar-mtp-window-4"], depth="uniform:0.5").latent_control == "free"


@pytest.mark.parametrize(
    ("base", "change", "name"),
    [
        ("mdm", {"depth": "uniform:0.5"}, "mdm-depth"),
        ("mdm", {"depth": "uniform:0.25"}, "mdm (uniform:0.25)"),
        ("scdm-depth", {"weight": "flat"}, "scdm-depth (flat)"),
        ("ar-mtp-window-4", {"depth": "uniform:1"}, "ar-mtp-window-4 (uniform:1)"),
        ("esolm", {"depth": "none:0.5", "weight": "flat"}, "esolm (flat, none:0.5)"),
        ("scdm-depth", {"order": left_to_right}, "custom"),
        ("ar-latents", {"weight": "elbo"}, "ar-latents (elbo)"),
        ("ar-latents", {"masked_slots": "in_order"}, "custom"),
    ],
)
def test_name_of_a_changed_method(base, change, name):
    assert name_of(replace(METHODS[base], **change)) == name


def test_depth_and_masked_slots_are_written_only_if_set(nano, tmp_path):
    for entry in METHODS.values():
        written = method_to(entry)
        assert ("depth" in written) == (entry.depth != "all")
        assert ("masked_slots" in written) == (entry.masked_slots != "in_order")
        assert method_from(written) == entry
    nano.method = METHODS["mdm-depth"]
    save_pretrained(nano, tmp_path)
    path = tmp_path / "config.json"
    assert from_pretrained(tmp_path).method == METHODS["mdm-depth"]
    content = json.loads(path.read_text())
    for damaged in ("uniform:2", "half:0.5"):
        content["method"]["depth"] = damaged
        path.write_text(json.dumps(content))
        with refused(f"depth={damaged}"):
            from_pretrained(tmp_path)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(1)
    return Transformer(Size(32, 2, 2), 7, LENGTH).eval()


def test_all_latents_of_mdm_depth_are_those_of_mdm(net):
    """It is its own number, and decodes as mdm with the same weights. Fewer latents decode otherwise."""
    known = torch.zeros(5, LENGTH, dtype=torch.bool)

    def tokens(name, n, **more):
        return generate(net, METHODS[name], known.long(), known, Decoding(4, n, **more), 0).tokens

    expected = tokens("mdm", None)
    assert torch.equal(tokens("mdm-depth", None), expected)
    assert torch.equal(tokens("mdm-depth", "all"), expected)
    assert not torch.equal(tokens("mdm-depth", 2), expected)
    assert not torch.equal(tokens("mdm-depth", 2, latent_policy=random), tokens("mdm-depth", 2))


AR_LATENTS = METHODS["ar-latents"]
IN_ORDER = replace(AR_LATENTS, masked_slots="in_order")


def test_only_the_masked_slots_are_shuffled():
    shuffled, plain = (drawn(method, batch=64, known=2) for method in (AR_LATENTS, IN_ORDER))
    assert torch.equal(shuffled.num_clean, plain.num_clean)
    assert torch.equal(plain.positions, torch.arange(LENGTH).expand(64, -1))
    assert torch.equal(shuffled.positions.sort(dim=1).values, plain.positions)
    assert torch.equal(shuffled.positions[plain.clean], plain.positions[plain.clean])


def test_each_order_of_the_masked_slots_is_as_likely():
    layout = drawn(AR_LATENTS, batch=9_000, known=LENGTH - 3)
    rows = layout.positions[layout.num_clean == LENGTH - 3, LENGTH - 3 :].tolist()
    counts = Counter(map(tuple, rows))
    assert len(counts) == 6
    assert all(abs(count / len(rows) - 1 / 6) < 0.03 for count in counts.values())


def test_a_window_shuffles_the_tokens_inside_it():
    layout = drawn(replace(AR_LATENTS, window=3), batch=64)
    for positions, clean, shown in zip(layout.positions, layout.num_clean, layout.num_shown, strict=True):
        assert sorted(positions[clean:shown].tolist()) == list(range(clean, shown))
    assert (layout.num_shown - layout.num_clean).max() == 3


def test_padding_stays_behind_the_shuffled_slots():
    known = torch.zeros(32, LENGTH, dtype=torch.bool)
    layout = AR_LATENTS.draw(known, torch.full((32,), 4), generator())
    assert (layout.num_shown == 4).all()
    assert (layout.positions[:, :4] < 4).all()
