"""Claims: what the paper says is more than what, and what our rows say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from latent_tokens.configs import OrderName, ScaleName
from latent_tokens.intervals import half_interval
from latent_tokens.paper.experiments import MODELS, ORDERS, WITH_LATENTS, Cell, boards
from latent_tokens.paper.recipes import of_cells
from latent_tokens.paper.scales import Latents
from latent_tokens.paper.tables import Line, lines, stand_in
from latent_tokens.report import ORDER_NAMES, as_markdown

Row = dict[str, Any]

ENOUGH = 3  # training seeds


@dataclass(frozen=True)
class Claim:
    """That one cell has more right than another; `ours` where it is not the paper's but what an ablation asks."""

    text: str
    more: Cell
    less: Cell
    ours: bool = False


def claims() -> list[Claim]:
    """The paper's, task by task, then our own."""
    made = []
    tasks = ("sudoku-gen", "sudoku-puzzle", "zebra", "countdown")
    for task, order in product(tasks, ORDERS):
        made.append(Claim(f"mdm > sidm, {ORDER_NAMES[order]}", Cell(task, "mdm", order), Cell(task, "sidm", order)))
    for task in tasks:
        made.append(Claim("mdm top-prob > mdm uniform", Cell(task, "mdm", "top_prob"), Cell(task, "mdm", "uniform")))
    for task, problems in (*((task, None) for task in tasks), ("sudoku-gen", "sudoku-puzzle")):
        none, every = (Cell(task, "scdm", "top_prob", n, problems) for n in (0, "all"))
        mdm, sidm = (Cell(task, method, "top_prob", problems=problems) for method in ("mdm", "sidm"))
        made += [Claim("scdm n=all > n=0", every, none), Claim("scdm n=all > sidm", every, sidm), Claim("mdm > scdm n=all", mdm, every)]
    for task in tasks:
        arm, ar_mtp = (Cell(task, method, "left_to_right") for method in ("arm", "ar-mtp"))
        made += [Claim("ar-mtp > arm", ar_mtp, arm), Claim("ar-mtp > mdm uniform", ar_mtp, Cell(task, "mdm", "uniform"))]
        made.append(Claim("mdm top-prob > ar-mtp", Cell(task, "mdm", "top_prob"), ar_mtp))
    window = {name: Cell("sudoku-gen", name, "left_to_right") for name in ("ar-mtp-window-1", "ar-mtp-window-16", "ar-ntp-4", "ar-ntp-16")}
    made.append(Claim("ar-mtp-window-16 > window-1", window["ar-mtp-window-16"], window["ar-mtp-window-1"]))
    made.append(Claim("ar-ntp-4 > ar-ntp-16", window["ar-ntp-4"], window["ar-ntp-16"]))
    return made + questions()


def questions() -> list[Claim]:
    """What the ablations ask, answered with yes where the first has more right."""
    made = [question("schedule reshuffled > as printed", "scdm", "top_prob", 4, "plain", "as printed")]
    made.append(question("loss flat > elbo", "ar-mtp", "left_to_right", None, "plain", "elbo"))
    made += [question("k=growing > k=8", method, "top_prob", n, "k=growing", "k=8") for method, n in MODELS]
    for method, n in WITH_LATENTS:
        for more, less in (("k=8", "k=1"), ("k=8", "k=all")):
            made.append(question(f"{more} > {less}", method, "top_prob", n, more, less))
        made.append(question("all targets > target only", method, "top_prob", n, "plain", "target only"))
    for method, n in WITH_LATENTS:
        every, four = (Cell("sudoku-gen", method, "top_prob", n, "sudoku-puzzle", name) for name in ("k=all", "k=4"))
        made.append(Claim(f"{method}{'' if n is None else f' n={n}'}, top-prob: k=all > k=4", every, four, ours=True))
    for order in ORDERS:
        made.append(question("as many latents in all, late > throughout", "scdm", order, None, "late", "constant"))
    for order, name in product(ORDERS, ("random", "constrained of a unit", "relevant")):
        made.append(question(f"{name} latents > nearest", "scdm", order, 4, name, "plain"))
    return made


def question(text: str, method: str, order: OrderName, n: Latents, more: str, less: str) -> Claim:
    """One between two variants of boards."""
    about = ", ".join([method, *([] if n is None else [f"n={n}"]), ORDER_NAMES[order]])
    return Claim(f"{about}: {text}", boards(method, order, n, more), boards(method, order, n, less), ours=True)


def claims_table(scale: ScaleName, root: Path, found: Mapping[str, Row], seeds: int | None = None) -> str:
    """A line a claim: both figures, their difference seed by seed with its 95 % interval, and the verdict. Runs nothing."""
    table: list[tuple[str, ...]] = [("task", "claim", "whose", "more", "less", "difference over seeds", "ours")]
    for claim in claims():
        more, less = lines(of_cells((claim.more, claim.less), scale, root, seeds), found)
        shown = (f"{line.mean:.1f}" if line.rows else "not run" for line in (more, less))
        table.append((stand_in(more), claim.text, "a question" if claim.ours else "the paper", *shown, *verdict(more, less)))
    return as_markdown(table)


def verdict(more: Line, less: Line) -> tuple[str, str]:
    """(the difference, what it means): yes or no where three seeds or more agree and the intervals of all samples do not overlap."""
    first, second = more.by_seed, less.by_seed
    apart = [first[seed] - second[seed] for seed in first if seed in second]
    if not apart:
        return "", "not run"
    if len(apart) < ENOUGH or more.interval is None or less.interval is None:
        return f"{fmean(apart):+.1f}", f"no claim: {len(apart)} seed{'s' * (len(apart) > 1)}"
    low, high = (fmean(apart) + sign * half_interval(apart) for sign in (-1, 1))
    above, below = low > 0 and more.interval[0] > less.interval[1], high < 0 and more.interval[1] < less.interval[0]
    return f"{fmean(apart):+.1f} ({low:+.1f} to {high:+.1f})", "yes" if above else "no, the reverse" if below else "undecided"
