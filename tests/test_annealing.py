"""Attention in training that opens from the causal rule to that of the method."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from helpers.refusals import refused
from helpers.runs import checkpoints, stop_at, tiny_run
from latent_tokens import METHODS, fit
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.objective import corrupt
from latent_tokens.tasks import TASKS
from latent_tokens.training.step import VALIDATION, draw_examples

OPEN_LATER = ("mdm", "sidm", "scdm", "ar-mtp", "block-mdm-4", "mdm-depth")
LENGTH = 16


def batch_of(name, openness, rows=8):
    tokens = torch.randint(0, 4, (rows, LENGTH), generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(0)
    known = torch.zeros(rows, LENGTH, dtype=torch.bool)
    return corrupt(METHODS[name], tokens, known, generator, mask_id=4, openness=openness)


@pytest.mark.parametrize("name", OPEN_LATER)
def test_annealing_begins_causal_and_ends_as_the_method(pico, name):
    """The draws of orders and clean tokens do not depend on it."""
    method = METHODS[name]
    both = replace(method, attention=lambda q, k, c, *blocks: method.attention(q, k, c, *blocks) & (k <= q))
    if name == "block-mdm-4":
        both.attention.block = 4
    closed, opened = batch_of(name, 0.0), batch_of(name, 1.0)
    assert torch.equal(closed.layout.positions, opened.layout.positions)
    plain = replace(closed.layout, hidden=None)
    assert torch.equal(dense_mask(method.attention, closed.layout), dense_mask(both.attention, plain))
    own = method.logits(pico, closed.tokens, closed.layout)
    assert torch.equal(own, both.logits(pico, closed.tokens, plain))
    assert not torch.equal(own, method.logits(pico, closed.tokens, plain))
    assert opened.layout.hidden is None


def test_annealed_entries_open_with_their_probability():
    layout = batch_of("mdm", 0.25, rows=64).layout
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    drawn = ~layout.hidden[:, later]
    assert abs(drawn.float().mean().item() - 0.25) < 0.02
    assert not layout.hidden[:, ~later].any()
    assert not torch.equal(drawn[0], drawn[1])
    mask = dense_mask(METHODS["mdm"].attention, layout)
    rows = torch.tensor([3, 1])
    assert torch.equal(dense_mask(METHODS["mdm"].attention, layout.take(rows)), mask[rows])
    queries = torch.tensor([[2, 0]]).expand(64, -1)
    assert torch.equal(dense_mask(METHODS["mdm"].attention, layout, queries), mask[:, [2, 0]])


config_of = partial(tiny_run, method="mdm", steps=6, save_every=2, warmup=1, anneal=4)


def test_openness_follows_the_step_and_not_validation(pico, tmp_path):
    config = config_of(tmp_path)
    examples = TASKS["sudoku-4"].generate(8, seed=0)

    def num_hidden(step):
        hidden = draw_examples(examples, METHODS["mdm"], config, 4, step, 0).layout.hidden
        return 0 if hidden is None else int(hidden.sum())

    counts = [num_hidden(step) for step in (0, 1, 2, 3, 4, VALIDATION)]
    assert counts[0] > counts[1] > counts[2] > counts[3] > 0
    assert counts[4:] == [0, 0]


@pytest.mark.slow
def test_annealed_run_resumes_bit_equal(tmp_path):
    whole = fit(config_of(tmp_path / "whole"))
    cut = config_of(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        fit(cut, observe=stop_at(3))
    with refused("anneal=None: "):
        fit(replace(cut, resume="yes", anneal=None))
    resumed = fit(replace(cut, resume="yes"))
    assert checkpoints(resumed) == checkpoints(whole)
    plain = load_file(fit(config_of(tmp_path / "plain", anneal=None)) / "model.safetensors")
    assert any(
        not torch.equal(plain[name], tensor)
        for name, tensor in load_file(whole / "model.safetensors").items()
    )


@pytest.mark.parametrize("method", ["esolm", "arm"])
def test_annealing_of_a_causal_rule_is_refused(tmp_path, method):
    with refused("anneal=4: the rule causal hides all later slots already. Leave"):
        fit(config_of(tmp_path / "run", method=method))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_plan_names_attention_that_does_not_open_fully(tmp_path, capsys):
    fit(config_of(tmp_path / "short", steps=1, anneal=4))
    assert "anneal=4 is more than steps=1: the attention ends 25% open" in capsys.readouterr().err
    fit(config_of(tmp_path / "whole", steps=1, anneal=1))
    assert "open" not in capsys.readouterr().err
