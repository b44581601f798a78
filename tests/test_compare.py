"""The comparison of two models on the same problems, against scipy."""

import numpy as np
import pytest
from scipy.stats import binomtest, t, ttest_rel

import latent_tokens as lt
from helpers.refusals import refused, refused_command
from latent_tokens.cli import main
from latent_tokens.evaluation.compare import common_settings, mcnemar, outcomes_of, packed_outcomes
from latent_tokens.evaluation.rows import append_result


def row(right, method="mdm", seed=0, **changes):
    right = np.array(right, bool)
    return {
        "task": "sudoku-4", "method": method, "order": "top_prob", "latents": 0, "candidates": 8,
        "metric": "valid", "valid": 100 * right.mean(), "ci95": [0, 100], "num_samples": len(right),
        "seed": 0, "relative_cost": 1.0, "train_seed": seed, "outcomes": packed_outcomes(right), **changes,
    }  # fmt: skip


def draws(share, count=200, seed=0):
    return np.random.default_rng(seed).random(count) < share


def test_outcomes_are_stored_as_bits():
    right = draws(0.5, 13)
    assert outcomes_of(row(right)) == right.tolist()


@pytest.mark.parametrize(("one", "other"), [(0, 0), (3, 3), (0, 5), (12, 4), (40, 71)])
def test_the_p_value_is_that_of_the_exact_test(one, other):
    expected = binomtest(one, one + other).pvalue if one + other else 1.0
    assert mcnemar(one, other) == pytest.approx(expected)


def test_one_seed_pairs_the_problems():
    first, second = draws(0.7), draws(0.5, seed=1)
    found = lt.compare([row(first)], [row(second, "sidm")])
    differences = 100.0 * first - 100.0 * second
    half = 1.959964 * differences.std() / len(first) ** 0.5
    assert found.difference == pytest.approx(differences.mean())
    assert found.interval == pytest.approx((differences.mean() - half, differences.mean() + half))
    assert found.only_one == ((first & ~second).sum(), (second & ~first).sum())
    assert found.is_decided == (found.interval[0] > 0)


def test_several_seeds_are_compared_seed_by_seed():
    shares = [(0.7, 0.4), (0.8, 0.6), (0.5, 0.4)]
    first = [row(draws(a, seed=s), seed=s) for s, (a, _) in enumerate(shares)]
    second = [row(draws(b, seed=s + 9), "sidm", seed=s) for s, (_, b) in enumerate(shares)]
    found = lt.compare(first, [*second[::-1], row(draws(0.1), "sidm", seed=7)])
    values = [(a["valid"], b["valid"]) for a, b in zip(first, second, strict=True)]
    expected = ttest_rel(*zip(*values, strict=True)).confidence_interval()
    assert (found.seeds, found.p_value) == ((0, 1, 2), None)
    assert found.interval == pytest.approx((expected.low, expected.high), abs=0.02)
    assert t.ppf(0.975, 2) == pytest.approx(4.303, abs=1e-3)


def test_the_command_prints_a_line_per_setting_of_both(tmp_path, capsys):
    for name, share in (("one", 0.7), ("two", 0.5)):
        for latents in (0, 4, name):
            append_result(tmp_path / f"{name}.jsonl", row(draws(share), latents=latents))
    assert main(["results", "--compare", str(tmp_path / "one.jsonl"), str(tmp_path / "two.jsonl")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "n = 0" in lines[1]
    assert "n = 4" in lines[2]
    assert "+20" in lines[1] or "+19" in lines[1] or "+21" in lines[1]


def test_settings_are_those_of_decoding_whatever_the_name_of_a_method():
    plain, named = (
        [row(draws(share), latents=latents, method=method) for latents in (0, 4)]
        for share, method in ((0.7, "scdm"), (0.5, "scdm (flat, next)"))
    )
    assert len(common_settings(plain, named)) == 2


def test_evaluation_stores_which_samples_are_right(pico):
    pico.method = lt.METHODS["mdm"]
    (made,) = lt.evaluate(pico, lt.TASKS["sudoku-4"], num_samples=10)
    assert sum(outcomes_of(made)) == 10 * made["valid"] / 100


def test_perplexities_of_two_evaluators_are_not_compared():
    def rows(method, judge):
        values = {"task": "text", "metric": "perplexity", "judge": judge}
        return [row([True], method, seed, perplexity=30.0 + seed, **values) for seed in range(3)]

    assert lt.compare(rows("mdm", "smollm2"), rows("scdm", "smollm2")).difference == 0
    with refused("evaluator smollm2 and trigrams: only scores of one evaluator are compared"):
        lt.compare(rows("mdm", "smollm2"), rows("scdm", "trigrams"))


def test_refused(tmp_path, capsys):
    right = draws(0.5)
    for first, second, parts in [
        ([row(right)], [row(right, seed=1)], ("[0] and [1]", "no seed")),
        ([row(right), row(right)], [row(right)], ("two rows", "training seed 0")),
        ([row(right), row(right, run="b")], [row(right)], (", run None and b: two rows of training seed 0",)),
        ([row(right)], [row(right[:100])], ("num_samples", "same problems")),
        ([row(right)], [row(right, task="sudoku-6")], ("task", "same problems")),
        ([row(right)], [{k: v for k, v in row(right).items() if k != "outcomes"}], ("no outcome",)),
    ]:
        with refused(*parts):
            lt.compare(first, second)
    append_result(tmp_path / "a.jsonl", row(right))
    append_result(tmp_path / "a.jsonl", row(right, latents=4))
    append_result(tmp_path / "b.jsonl", row(right, latents=5))
    command = ["results", "--compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    refused_command(capsys, command, "no setting", "equal order")
    for option, typed in (("--csv", "all.csv"), ("--metric", "cells")):
        refused_command(capsys, [*command, option, typed], f"{option} {typed} with --compare", "Leave one")
