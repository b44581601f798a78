"""The depth of training: the rows it is drawn for, their attention, and the control of n."""

import json
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
    log_likelihood,
    loss,
    random,
    save_pretrained,
)
from latent_tokens.checkpoints.stored_methods import method_from, method_to
from latent_tokens.configs import SamplingConfig
from latent_tokens.core import sampling as reference
from latent_tokens.core.attention import bidirectional, causal, dense_mask, semi_causal
from latent_tokens.core.cost import tokens_processed
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import draw_rows, name_of, read_depth
from latent_tokens.core.objective import corrupt
from latent_tokens.evaluation.settings import check_policy

LENGTH = 16
METHODS_WITH_DEPTH = ("mdm-depth", "scdm-depth")


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


@pytest.mark.parametrize(("share", "batch"), [(0.5, 8), (0.5, 7), (0.25, 10), (1.0, 5), (0.01, 4)])
def test_a_share_of_the_rows_is_drawn_each_as_often(share, batch):
    source = generator()

    def uniform(size):
        return torch.rand(size, generator=source, dtype=torch.float64)

    draws = torch.stack([draw_rows(share, batch, uniform) for _ in range(4_000)])
    counts = draws.sum(1)
    assert counts.min() >= int(share * batch)
    assert counts.max() <= -(-share * batch // 1)
    assert (draws.double().mean(0) - share).abs().max() < 0.04


def test_depth_of_all_draws_no_more_than_order_and_clean_counts():
    source, by_hand = generator(), generator()
    known = torch.zeros(8, LENGTH, dtype=torch.bool)
    METHODS["scdm"].draw(known, torch.full((8,), LENGTH), source)
    for size in ((8, LENGTH), (1,)):
        torch.rand(size, generator=by_hand, dtype=torch.float64)
    assert torch.equal(source.get_state(), by_hand.get_state())


@pytest.mark.parametrize("name", METHODS_WITH_DEPTH)
def test_depth_changes_neither_order_nor_clean_counts(name):
    plain = drawn(METHODS[name.removesuffix("-depth")])
    layout = drawn(METHODS[name])
    assert torch.equal(layout.num_clean, plain.num_clean)
    shared = layout.shown & plain.shown
    assert torch.equal(layout.positions[shared], plain.positions[shared])


def test_half_of_the_rows_of_scdm_depth_are_independent():
    layout = drawn(METHODS["scdm-depth"], batch=64)
    assert layout.is_independent.sum() == 32
    assert (layout.num_shown == LENGTH).all()
    assert drawn(METHODS["scdm"]).is_independent is None


def test_half_of_the_rows_of_mdm_depth_show_a_uniform_number_all_scored():
    known = torch.arange(LENGTH).expand(8_000, -1) < 11
    tokens = torch.zeros(8_000, LENGTH, dtype=torch.long)
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


@pytest.mark.parametrize(
    ("depth", "word", "share"), [("all", "all", 0), ("none:0.25", "none", 0.25), ("uniform:1", "uniform", 1)]
)
def test_words_of_a_depth(depth, word, share):
    assert read_depth(depth) == (word, share)


REFUSED = [  # the method, its fields, and what the error names
    *(
        ("scdm", {"depth": depth}, "must be all, none:SHARE or uniform:SHARE")
        for depth in ("some", "none", "uniform:", "none:0", "none:1.5", "uniform:nan", "all:0.5")
    ),
    ("sidm", {"depth": "none:0.5"}, "attends to no other one"),
    ("arm", {"depth": "uniform:0.5"}, "attends to no other one"),
    ("scdm", {"depth": "uniform:0.5", "targets": "next"}, "Use targets=all"),
    ("ar-ntp-4", {"depth": "none:0.5"}, "with targets=next"),
]


@pytest.mark.parametrize(("name", "fields", "part"), REFUSED)
def test_impossible_depth_is_refused_with_what_is_allowed(name, fields, part):
    with refused(part):
        replace(METHODS[name], **fields)


def test_depth_sets_how_n_is_controlled():
    controls = {"mdm": "fixed", "mdm-depth": "free", "scdm": "free", "scdm-depth": "free"}
    controls["ar-mtp-window-4"] = "fixed"
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
    ],
)
def test_name_of_a_method_with_a_depth(base, change, name):
    assert name_of(replace(METHODS[base], **change)) == name


def test_depth_is_written_only_if_it_is_set(nano, tmp_path):
    for entry in METHODS.values():
        written = method_to(entry)
        assert ("depth" in written) == (entry.depth != "all")
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


@pytest.mark.parametrize(("k", "n"), [(1, 0), (1, 3), (4, 0), (4, 3), (4, "all")])
def test_mdm_depth_decodes_with_any_n_at_its_cost(net, k, n):
    known = torch.zeros(3, LENGTH, dtype=torch.bool)
    decoding = Decoding(candidates=k, latents=n)
    fast, slow = (
        function(net, METHODS["mdm-depth"], known.long(), known, decoding, 5)
        for function in (generate, reference.generate)
    )
    assert torch.equal(fast.tokens, slow.tokens)
    latents = LENGTH if n == "all" else n
    assert fast.processed.tolist() == [tokens_processed(LENGTH, 0, k, latents)] * 3


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
    check_policy(METHODS["mdm-depth"], SamplingConfig(latent_policy="relevant"))


def test_likelihood_of_mdm_depth_depends_on_n(net):
    tokens = torch.randint(0, 7, (4, LENGTH), generator=generator())
    order = torch.stack([torch.randperm(LENGTH, generator=generator(row)) for row in range(4)])
    ends = torch.full((4,), LENGTH)

    def nats(name, n):
        return log_likelihood(net, METHODS[name], tokens, order, torch.zeros_like(ends), ends, n)

    assert torch.equal(nats("mdm-depth", "all"), nats("mdm", None))
    assert torch.equal(nats("mdm-depth", None), nats("mdm", None))
    assert not torch.allclose(nats("mdm-depth", 2), nats("mdm", None), atol=1e-3)
    assert torch.equal(nats("mdm-depth", 2)[:, -3:], nats("mdm", None)[:, -3:])  # no more than two are left
