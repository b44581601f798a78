"""The page's engine equals the package: equal settings and seeds decode equal boards."""

import random
import re
from itertools import product

import pytest

from helpers.engine import (
    TIE,
    Case,
    bundled,
    closest_choice,
    engine_results,
    first_difference,
    methods_without_bundled_model,
    puzzle,
    untrained,
)
from latent_tokens import METHODS
from latent_tokens.configs import SamplingConfig
from latent_tokens.trace.record import trace

ADAPTIVE = ("top_prob", "margin", "entropy")


def assert_parity(cases):
    """Every decode is equal to the package's. At most 1 in 100 may differ where two choices are closest."""
    ties = 0
    for case, result in zip(cases, engine_results(cases), strict=True):
        number = first_difference(trace(case.request), result["trace"])
        if number is not None:
            gap = closest_choice(case, number)
            assert gap < TIE, f"{case.model.name} {case.setting}: step {number} differs by {gap}"
            ties += 1
    print(f"{len(cases)} decodes, of which {ties} differ at two choices closer than {TIE}")
    assert ties <= len(cases) // 100


def cases_of(model_and_folder, num_given, most):
    """Return decodes of a model: up to `most` pairs of n and order, every other one at temperature 1."""
    model, folder = model_and_folder
    method = model.net.method
    fixed = (None, "all") if method.window is None else (None, method.window - 1)
    latents = {"free": (0, 3, "all", None), "fixed": fixed, "none": (None, 0)}[method.latent_control]
    orders = ADAPTIVE if not method.is_left_to_right else ()
    orders += ("left_to_right",) if method.readout == "shifted" else ("uniform", "left_to_right")
    pairs = list(product(latents, orders))
    rng = random.Random(model.name)
    cases = []
    for seed, (n, order) in enumerate(rng.sample(pairs, min(most, len(pairs)))):
        k = rng.choice((1, 4, "all", "growing", None)) if order in ADAPTIVE else None
        if k == "all" and n not in (None, 0) and method.latent_control == "free":
            k = 4  # all masked tokens would be candidates
        temperature = 1.0 if seed % 2 else rng.choice((0.0, None, 0.7))
        top_p = rng.choice((None, 0.8))
        setting = SamplingConfig(n, k, order, temperature=temperature, top_p=top_p, seed=seed)
        cases.append(Case(model, folder, puzzle(model.task, num_given, seed), setting))
    return cases


def test_engine_decodes_the_same_boards():
    model, folder = bundled("sudoku-6-scdm")
    tokens = puzzle(model.task, 22, seed=1)
    configs = [
        SamplingConfig(),
        SamplingConfig(0, 4, "margin", temperature=1.0, seed=2**40),
        SamplingConfig("all", "growing", "entropy", temperature=1.0, top_p=0.8, seed=3),
        SamplingConfig(5, None, "uniform", temperature=1.0, seed=4),
        SamplingConfig(2, 3, temperature=1.0, seed=5, refresh=False),
    ]
    assert_parity([Case(model, folder, tokens, config) for config in configs])


def test_engine_errors_are_those_of_the_package(tmp_path):
    scdm = bundled("sudoku-6-scdm")
    arm = untrained(tmp_path, "arm", METHODS["arm"])
    window = untrained(tmp_path, "ar-mtp-window-4", METHODS["ar-mtp-window-4"])
    tokens = puzzle(scdm[0].task, 16, seed=1)
    full = puzzle(scdm[0].task, 36, seed=1)
    cases = [
        Case(*window, tokens, SamplingConfig(2)),
        Case(*window, tokens, SamplingConfig(order="top_prob")),
        Case(*arm, full[:9] + (None,) * 27, SamplingConfig(1)),
        Case(*arm, full[:9] + (None,) * 27, SamplingConfig(order="uniform")),
        Case(*arm, tokens, SamplingConfig()),
        Case(*scdm, full, SamplingConfig()),
    ]
    for case, result in zip(cases, engine_results(cases), strict=True):
        with pytest.raises(ValueError, match=f"^{re.escape(result['error'])}$"):
            case.request  # noqa: B018


@pytest.mark.slow
def test_engine_decodes_equal_boards_for_every_method(tmp_path):
    others = methods_without_bundled_model()
    models = [bundled(f"sudoku-6-{name}") for name in ("scdm", "mdm", "sidm", "ar-mtp")]
    models += [untrained(tmp_path, name, method) for name, method in others.items()]
    models += [untrained(tmp_path, "rotary", METHODS["scdm"], positions="rotary", gelu="exact")]
    models += [untrained(tmp_path, "both", METHODS["mdm"], positions="both")]
    cases = [case for model in models for case in cases_of(model, 18, 10)]
    cases += cases_of(bundled("sudoku-6-scdm"), 0, 4) + cases_of(bundled("sudoku-6-arm"), -12, 2)
    cases += cases_of(bundled("sudoku-9-scdm"), 40, 10) + cases_of(bundled("sudoku-9-mdm"), 40, 5)
    assert len(cases) >= 100
    assert sum(case.setting.temperature == 1 for case in cases) >= len(cases) // 2
    assert_parity(cases)
