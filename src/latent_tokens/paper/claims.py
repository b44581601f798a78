"""Claims: pairs of cells of which one is better, as the paper states or as an ablation asks, and the verdict of our results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

from latent_tokens.configs import OrderName, ScaleName
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.paper.experiments import MODELS, ORDERS, WITH_LATENTS, Cell, boards
from latent_tokens.paper.recipes import of_cells
from latent_tokens.paper.scales import SCALES, Latents
from latent_tokens.paper.tables import Line, lines, stand_in

Row = dict[str, Any]

ENOUGH = 3  # training seeds
OURS = "ours"
TASKS = ("sudoku-gen", "sudoku-puzzle", "zebra", "countdown")
WITH_SIDM = ("sudoku-puzzle", "zebra", "countdown")  # the tasks of Tables 1 and 4
MANY: tuple[int | str, ...] = (4, 8, 16, "all", "growing")
RULE = (
    "A claim holds (yes) if three or more training seeds decide it: the 95% interval of the seed-by-seed difference (Student's t) excludes 0, and "
    "the 95% intervals of all samples (Wilson) do not overlap. For a loss or a perplexity, lower is better and the first condition decides. "
    "An undecided claim is no evidence of equality. The paper's claims are of its own tasks, which the first column replaces by smaller ones. "
    "With k > 1 candidates, n = 0 still leaves up to k - 1 other masked tokens in the input."
)


@dataclass(frozen=True)
class Claim:
    """One cell is better than another. `source` is the place in the paper that prints it, with the words it prints, or OURS."""

    text: str
    better: Cell
    worse: Cell
    source: str = OURS


def claims(scale: ScaleName) -> list[Claim]:
    """The paper's claims, then our own."""
    return [
        *printed_in_tables(scale),
        *printed_of_latents(),
        *printed_of_large_boards(scale),
        *printed_of_text(scale),
        *questions(),
    ]


def printed_in_tables(scale: ScaleName) -> list[Claim]:
    """Inequalities between the numbers of Tables 1, 3 and 4, and of windows on boards."""
    found = [
        Claim(
            "mdm > sidm, top-prob", Cell(task, "mdm", "top_prob"), Cell(task, "sidm", "top_prob"), "Table 1"
        )
        for task in WITH_SIDM
    ]
    found += [
        Claim("mdm > sidm, uniform", Cell(task, "mdm", "uniform"), Cell(task, "sidm", "uniform"), "Table 4")
        for task in WITH_SIDM
    ]
    for task in TASKS:
        arm, ar_mtp = (Cell(task, method, "left_to_right") for method in ("arm", "ar-mtp"))
        uniform, top_prob = (Cell(task, "mdm", order) for order in ORDERS)
        found += [
            Claim("mdm top-prob > mdm uniform", top_prob, uniform, "Table 3"),
            Claim("ar-mtp > arm", ar_mtp, arm, "Table 3"),
        ]
        found.append(Claim("mdm top-prob > ar-mtp", top_prob, ar_mtp, "Table 3"))
        if task == "countdown":
            found.append(Claim("mdm uniform > ar-mtp", uniform, ar_mtp, "Table 3"))
        else:
            found.append(Claim("ar-mtp > mdm uniform", ar_mtp, uniform, "Table 3"))
    return found


def printed_of_latents() -> list[Claim]:
    """What the text and the captions state of the number of latent tokens. The figures print no numbers."""
    on_boards = 'Figure 1: "accuracy increases with the number of latent tokens across both paradigms"'
    between = 'Figure 1: "interpolates between a fast, independent-prediction model (SIDM) and an accurate, joint-prediction model (MDM)"'
    mostly = 'Section 4.3.2, of most tasks: "increasing the number of latent tokens yields consistent improvements"'
    gap = 'Section 4.3.2: "On most tasks, a gap persists"'
    like = 'Figure 4, of most settings: "interpolating between SIDM"'
    infilling = 'Section 4.3.2: "the model trained on unconditional generation does"'
    made = []
    for task, sources in (
        ("sudoku-gen", (on_boards, between, gap)),
        ("zebra", (mostly, like, gap)),
        ("countdown", (mostly, like, gap)),
    ):
        made += with_latents(task, None, sources)
    made += with_latents(
        "sudoku-puzzle", None, ('ours; Section 4.3.2: "does not exhibit a strong scaling trend"', OURS, gap)
    )
    made += with_latents("sudoku-gen", "sudoku-puzzle", (infilling, OURS, OURS))
    made.append(
        Claim(
            "mdm > sidm, top-prob",
            Cell("sudoku-gen", "mdm", "top_prob"),
            Cell("sudoku-gen", "sidm", "top_prob"),
            between,
        )
    )
    return made


def with_latents(task: str, problems: str | None, sources: tuple[str, str, str]) -> list[Claim]:
    """scdm at n = all against n = 0, against sidm and against mdm."""
    none, every = (Cell(task, "scdm", "top_prob", n, problems) for n in (0, "all"))
    mdm, sidm = (Cell(task, method, "top_prob", problems=problems) for method in ("mdm", "sidm"))
    pairs = (
        ("scdm n=all > n=0", every, none),
        ("scdm n=all > sidm", every, sidm),
        ("mdm > scdm n=all", mdm, every),
    )
    return [
        Claim(text, better, worse, source)
        for (text, better, worse), source in zip(pairs, sources, strict=True)
    ]


def printed_of_large_boards(scale: ScaleName) -> list[Claim]:
    """Section 5.3 on Sudoku-Large, in soft loss; and the same comparisons on boards, which the paper makes of windows only in Figure 1."""
    on_boards = 'Figure 1: "accuracy increases with the number of latent tokens across both paradigms"'
    improves = (
        'Section 5.3: "AR-MTP exhibits consistent improvement as the number of latent tokens increases"'
    )
    degrades = 'Section 5.3: "AR-NTP performance degrades as the window size increases"'
    windows, made = SCALES[scale].windows, []
    for task in ("sudoku-large", "sudoku-gen"):
        large, sign = task == "sudoku-large", "<" if task == "sudoku-large" else ">"
        cells = {
            name: {n: Cell(task, f"{name}-{n}", "left_to_right") for n in windows}
            for name in ("ar-mtp-window", "ar-ntp")
        }
        for few, many in pairwise(windows):
            text = f"ar-mtp-window-{many} {sign} window-{few}"
            made.append(
                Claim(
                    text,
                    cells["ar-mtp-window"][many],
                    cells["ar-mtp-window"][few],
                    improves if large else on_boards,
                )
            )
        for few, many in pairwise(windows[1:]):
            text = f"ar-ntp-{few} {sign} ar-ntp-{many}"
            made.append(Claim(text, cells["ar-ntp"][few], cells["ar-ntp"][many], degrades if large else OURS))
        if large:
            arm, mdm, window = (
                Cell(task, "arm", "left_to_right"),
                Cell(task, "mdm", "uniform"),
                cells["ar-mtp-window"],
            )
            source = 'Section 5.3: "standard ARM, which outperforms AR-MTP-Window-8"'
            made.append(Claim(f"arm < ar-mtp-window-{windows[1]}", arm, window[windows[1]], source))
            source = 'Section 5.3: "performance approaching that of MDM"'
            made.append(Claim(f"mdm uniform < ar-mtp-window-{windows[-1]}", mdm, window[windows[-1]], source))
    return made


def printed_of_text(scale: ScaleName) -> list[Claim]:
    """Generative perplexity."""
    most = SCALES[scale].texts.dial[-1]
    mdm, none, every = (
        Cell("text", "mdm", "uniform"),
        Cell("text", "esolm", "uniform", 0),
        Cell("text", "esolm", "uniform", most),
    )
    falls = (
        'Section 4.3.2: "generative perplexity decreases nearly monotonically with additional latent tokens"'
    )
    return [
        Claim("mdm < esolm n=0", mdm, none, "Table 2"),
        Claim(f"esolm n={most} < n=0", every, none, falls),
    ]


def questions() -> list[Claim]:
    """Our own claims: what the ablations ask. Yes means that the first cell is better."""
    made = [question("schedule reshuffled > as printed", "scdm", "top_prob", 4, "plain", "as printed")]
    made.append(question("loss flat > elbo", "ar-mtp", "left_to_right", None, "plain", "elbo"))
    made.append(
        Claim(
            "mdm > sidm, uniform", Cell("sudoku-gen", "mdm", "uniform"), Cell("sudoku-gen", "sidm", "uniform")
        )
    )
    made += sidm_and_scdm()
    made += [question("k=growing > k=8", method, "top_prob", n, "k=growing", "k=8") for method, n in MODELS]
    for method, n in WITH_LATENTS:
        for more, less in (("k=8", "k=1"), ("k=8", "k=all")):
            made.append(question(f"{more} > {less}", method, "top_prob", n, more, less))
        made.append(question("all targets > target only", method, "top_prob", n, "plain", "target only"))
    for method, n in WITH_LATENTS:
        every, four = (infilled(method, n, k) for k in ("all", 4))
        made.append(Claim(f"{method}{'' if n is None else f' n={n}'}, top-prob: k=all > k=4", every, four))
    for order in ORDERS:
        made.append(
            question("same total of latents, late > constant n", "scdm", order, None, "late", "constant")
        )
    made.append(
        Claim(
            "scdm, uniform: late latents > n=all",
            boards("scdm", "uniform", None, "late"),
            boards("scdm", "uniform", "all", "plain"),
        )
    )
    for order, (name, text) in product(
        ORDERS,
        {
            "random": "random",
            "constrained of a unit": "constrained shared-unit",
            "relevant": "relevant",
        }.items(),
    ):
        made.append(question(f"{text} latents > nearest", "scdm", order, 4, name, "plain"))
    for order in ORDERS:
        relevant, every = boards("scdm", order, 4, "relevant"), boards("scdm", order, "all", "plain")
        made.append(Claim(f"scdm, {ORDER_NAMES[order]}: 4 relevant latents > n=all", relevant, every))
    return made


def sidm_and_scdm() -> list[Claim]:
    """sidm against both ends of scdm, on boards and on puzzles to infill, at every number of candidates."""
    made = []
    for k in MANY:
        for n in (0, "all") if k != "all" else ("all",):
            name = "scdm at any n" if k == "all" else f"scdm n={n}"
            made.append(
                Claim(
                    f"top-prob, k={k}: sidm > {name}",
                    boards("sidm", "top_prob", None, f"k={k}"),
                    boards("scdm", "top_prob", n, f"k={k}"),
                )
            )
    for k in (8, "growing", "all"):
        name = "scdm at any n" if k == "all" else "scdm n=all"
        made.append(
            Claim(f"top-prob, k={k}: {name} > sidm", infilled("scdm", "all", k), infilled("sidm", None, k))
        )
    return made


def infilled(method: str, n: Latents, k: int | str) -> Cell:
    """A model of boards that infills puzzles with k candidates."""
    return Cell("sudoku-gen", method, "top_prob", n, "sudoku-puzzle", f"k={k}")


def question(text: str, method: str, order: OrderName, n: Latents, better: str, worse: str) -> Claim:
    """A claim of ours between two variants on boards."""
    about = ", ".join([method, *([] if n is None else [f"n={n}"]), ORDER_NAMES[order]])
    return Claim(f"{about}: {text}", boards(method, order, n, better), boards(method, order, n, worse))


def claims_table(scale: ScaleName, root: Path, found: Mapping[str, Row], seeds: int | None = None) -> str:
    """Return a line per claim: both values, their seed-by-seed difference with its 95% interval, and the verdict. Trains and measures nothing."""
    table: list[tuple[str, ...]] = [
        ("task", "claim", "source", "first", "second", "unit", "difference over seeds", "verdict")
    ]
    for claim in claims(scale):
        better, worse = lines(of_cells((claim.better, claim.worse), scale, root, seeds), found)
        values = (line.written(line.mean) if line.rows else "not run" for line in (better, worse))
        unit = next((line.unit for line in (better, worse) if line.rows or line.is_loss), "")
        table.append((stand_in(better), claim.text, claim.source, *values, unit, *verdict(better, worse)))
    return f"{as_markdown(table)}\n{RULE}\n"


def verdict(better: Line, worse: Line) -> tuple[str, str]:
    """(the difference of the values, the verdict). For a loss a negative difference supports the claim."""
    first, second = better.by_seed, worse.by_seed
    apart = [first[seed] - second[seed] for seed in first if seed in second]
    if not apart:
        return "", "not run"
    mean = fmean(apart)
    if len(apart) < ENOUGH:
        return better.signed(mean), f"no claim: {len(apart)} seed{'s' * (len(apart) > 1)}"
    low, high = mean - half_interval(apart), mean + half_interval(apart)
    if better.is_loss:
        holds, is_reversed = high < 0, low > 0
    else:
        holds = low > 0 and disjoint(worse, better)
        is_reversed = high < 0 and disjoint(better, worse)
    difference = f"{better.signed(mean)} ({better.signed(low)} to {better.signed(high)})"
    return difference, "yes" if holds else "no, the reverse" if is_reversed else "undecided"


def disjoint(lower: Line, higher: Line) -> bool:
    """Whether the interval of all samples of one line ends below that of another."""
    return (
        lower.interval is not None and higher.interval is not None and lower.interval[1] < higher.interval[0]
    )
