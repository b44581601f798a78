"""The list of claims: pairs of cells of which one is better, as the paper prints or as an ablation asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from latent_tokens.configs import OrderName, ScaleName
from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.paper.experiments import MODELS, ORDERS, WITH_LATENTS, Cell, boards
from latent_tokens.paper.scales import BOARDS_9, SCALES, Latents, Scale

OURS = "ours"
TASKS = ("sudoku-gen", "sudoku-puzzle", "zebra", "countdown")
WITH_SIDM = ("sudoku-puzzle", "zebra", "countdown")  # the tasks of Tables 1 and 4
CANDIDATES: tuple[int | str, ...] = (4, 8, 16, "all", "growing")

# Quotations of the paper.
ON_BOARDS = 'Figure 1: "accuracy increases with the number of latent tokens across both paradigms"'
BETWEEN = (
    'Figure 1: "interpolates between a fast, independent-prediction model (SIDM) and an accurate,'
    ' joint-prediction model (MDM)"'
)
MOST_TASKS = (
    'Section 4.3.2, of most tasks: "increasing the number of latent tokens yields consistent improvements"'
)
GAP = 'Section 4.3.2: "On most tasks, a gap persists"'
LIKE_FIGURE_1 = 'Figure 4, of most settings: "interpolating between SIDM"'
NO_TREND = 'ours; Section 4.3.2: "does not exhibit a strong scaling trend"'
INFILLING = 'Section 4.3.2: "the model trained on unconditional generation does"'
WINDOWS_IMPROVE = (
    'Section 5.3: "AR-MTP exhibits consistent improvement as the number of latent tokens increases"'
)
WINDOWS_DEGRADE = 'Section 5.3: "AR-NTP performance degrades as the window size increases"'
ARM_AHEAD = 'Section 5.3: "standard ARM, which outperforms AR-MTP-Window-8"'
NEAR_MDM = 'Section 5.3: "performance approaching that of MDM"'
PERPLEXITY_FALLS = (
    'Section 4.3.2: "generative perplexity decreases nearly monotonically with additional latent tokens"'
)


@dataclass(frozen=True)
class Claim:
    """A claim that one cell is better than another.

    `source` is the place in the paper that prints it, with its words, or OURS.
    """

    text: str
    better: Cell
    worse: Cell
    source: str = OURS


def claims(scale: ScaleName) -> list[Claim]:
    """Return the paper's claims, then our own."""
    has_boards_9 = BOARDS_9 in SCALES[scale].budgets
    return [
        *printed_in_tables((BOARDS_9, *TASKS) if has_boards_9 else TASKS),
        *printed_of_latents(has_boards_9),
        *printed_of_windows(SCALES[scale]),
        *printed_of_text(SCALES[scale]),
        *questions(),
        *(questions_of_9() if has_boards_9 else ()),
    ]


def printed_in_tables(tasks: Sequence[str]) -> list[Claim]:
    """Return the inequalities between the numbers of Tables 1, 3 and 4."""
    listed = [mdm_and_sidm(task, "top_prob", "Table 1") for task in WITH_SIDM]
    listed += [mdm_and_sidm(task, "uniform", "Table 4") for task in WITH_SIDM]
    for task in tasks:
        arm = Cell(task, "arm", "left_to_right")
        ar_mtp = Cell(task, "ar-mtp", "left_to_right")
        uniform = Cell(task, "mdm", "uniform")
        top_prob = Cell(task, "mdm", "top_prob")
        listed += [
            Claim("mdm top-prob > mdm uniform", top_prob, uniform, "Table 3"),
            Claim("ar-mtp > arm", ar_mtp, arm, "Table 3"),
            Claim("mdm top-prob > ar-mtp", top_prob, ar_mtp, "Table 3"),
        ]
        if task == "countdown":
            listed.append(Claim("mdm uniform > ar-mtp", uniform, ar_mtp, "Table 3"))
        else:
            listed.append(Claim("ar-mtp > mdm uniform", ar_mtp, uniform, "Table 3"))
    return listed


def mdm_and_sidm(task: str, order: OrderName, source: str = OURS) -> Claim:
    """Return the claim that mdm is better than sidm in an order."""
    return Claim(
        f"mdm > sidm, {ORDER_NAMES[order]}", Cell(task, "mdm", order), Cell(task, "sidm", order), source
    )


def printed_of_latents(has_boards_9: bool) -> list[Claim]:
    """Return the statements on the number of latent tokens. The paper's figures print no numbers."""
    sizes = (BOARDS_9, "sudoku-gen") if has_boards_9 else ("sudoku-gen",)
    return [
        *(claim for task in sizes for claim in with_latents(task, None, (ON_BOARDS, BETWEEN, GAP))),
        *with_latents("zebra", None, (MOST_TASKS, LIKE_FIGURE_1, GAP)),
        *with_latents("countdown", None, (MOST_TASKS, LIKE_FIGURE_1, GAP)),
        *with_latents("sudoku-puzzle", None, (NO_TREND, OURS, GAP)),
        *with_latents("sudoku-gen", "sudoku-puzzle", (INFILLING, OURS, OURS)),
        *(mdm_and_sidm(task, "top_prob", BETWEEN) for task in sizes),
    ]


def with_latents(task: str, problems: str | None, sources: tuple[str, str, str]) -> list[Claim]:
    """Return the claims on scdm at n = all against n = 0, against sidm and against mdm."""
    none = Cell(task, "scdm", "top_prob", 0, problems)
    every = Cell(task, "scdm", "top_prob", "all", problems)
    mdm = Cell(task, "mdm", "top_prob", problems=problems)
    sidm = Cell(task, "sidm", "top_prob", problems=problems)
    return [
        Claim("scdm n=all > n=0", every, none, sources[0]),
        Claim("scdm n=all > sidm", every, sidm, sources[1]),
        Claim("mdm > scdm n=all", mdm, every, sources[2]),
    ]


def printed_of_windows(scale: Scale) -> list[Claim]:
    """Return the claims of Section 5.3 on Sudoku-Large, in soft loss, and the same comparisons on boards.

    The paper compares windows on boards only in Figure 1.
    """
    windows = scale.windows_of("sudoku-large")
    large = windows_of("sudoku-large", windows, "<", WINDOWS_IMPROVE, WINDOWS_DEGRADE)
    on_boards = windows_of("sudoku-gen", scale.windows_of("sudoku-gen"), ">", ON_BOARDS, OURS)
    if BOARDS_9 in scale.budgets:
        few, many = scale.windows_of(BOARDS_9)
        better, worse = (window(BOARDS_9, "ar-mtp-window", size) for size in (many, few))
        on_boards.append(Claim(f"ar-mtp-window-{many} > window-{few}", better, worse, ON_BOARDS))
    few, many = windows[1], windows[-1]
    arm = Cell("sudoku-large", "arm", "left_to_right")
    mdm = Cell("sudoku-large", "mdm", "uniform")
    return [
        *large,
        Claim(f"arm < ar-mtp-window-{few}", arm, window("sudoku-large", "ar-mtp-window", few), ARM_AHEAD),
        Claim(
            f"mdm uniform < ar-mtp-window-{many}",
            mdm,
            window("sudoku-large", "ar-mtp-window", many),
            NEAR_MDM,
        ),
        *on_boards,
    ]


def windows_of(task: str, windows: tuple[int, ...], sign: str, improve: str, degrade: str) -> list[Claim]:
    """Return the claims that more latents help ar-mtp-window, and that a longer window harms ar-ntp."""
    listed = []
    for few, many in pairwise(windows):
        better = window(task, "ar-mtp-window", many)
        worse = window(task, "ar-mtp-window", few)
        listed.append(Claim(f"ar-mtp-window-{many} {sign} window-{few}", better, worse, improve))
    for few, many in pairwise(windows[1:]):
        better = window(task, "ar-ntp", few)
        worse = window(task, "ar-ntp", many)
        listed.append(Claim(f"ar-ntp-{few} {sign} ar-ntp-{many}", better, worse, degrade))
    return listed


def window(task: str, kind: str, size: int) -> Cell:
    """Return the cell of a model with a window."""
    return Cell(task, f"{kind}-{size}", "left_to_right")


def printed_of_text(scale: Scale) -> list[Claim]:
    """Return the claims on generative perplexity."""
    most = scale.texts.dial[-1]
    mdm = Cell("text", "mdm", "uniform")
    none = Cell("text", "esolm", "uniform", 0)
    every = Cell("text", "esolm", "uniform", most)
    return [
        Claim("mdm < esolm n=0", mdm, none, "Table 2"),
        Claim(f"esolm n={most} < n=0", every, none, PERPLEXITY_FALLS),
    ]


def questions() -> list[Claim]:
    """Return our own claims, which the ablations ask. Yes means that the first cell is better."""
    return [
        question("schedule reshuffled > as printed", "scdm", "top_prob", 4, "plain", "as printed"),
        question("loss flat > elbo", "ar-mtp", "left_to_right", None, "plain", "elbo"),
        mdm_and_sidm("sudoku-gen", "uniform"),
        *sidm_and_scdm(),
        *of_candidates(),
        *of_policies(),
    ]


def questions_of_9() -> list[Claim]:
    """Return our own claims that are asked of 9x9 boards as well."""
    listed = [mdm_and_sidm(BOARDS_9, "uniform")]
    for k, variant in ((8, None), ("growing", "k=growing")):
        sidm, none, every = (
            Cell(BOARDS_9, method, "top_prob", n, variant=variant)
            for method, n in (("sidm", None), ("scdm", 0), ("scdm", "all"))
        )
        listed += [
            Claim(f"top-prob, k={k}: sidm > scdm n=0", sidm, none),
            Claim(f"top-prob, k={k}: sidm > scdm n=all", sidm, every),
        ]
    return listed


def sidm_and_scdm() -> list[Claim]:
    """Return the claims on sidm and both ends of scdm, at every number of candidates."""
    listed = []
    for k in CANDIDATES:
        sidm = boards("sidm", "top_prob", None, f"k={k}")
        if k != "all":
            none = boards("scdm", "top_prob", 0, f"k={k}")
            listed.append(Claim(f"top-prob, k={k}: sidm > scdm n=0", sidm, none))
        name = "scdm at any n" if k == "all" else "scdm n=all"
        every = boards("scdm", "top_prob", "all", f"k={k}")
        listed.append(Claim(f"top-prob, k={k}: sidm > {name}", sidm, every))
    for k in (8, "growing", "all"):
        name = "scdm at any n" if k == "all" else "scdm n=all"
        every = infilled("scdm", "all", k)
        listed.append(Claim(f"top-prob, k={k}: {name} > sidm", every, infilled("sidm", None, k)))
    return listed


def of_candidates() -> list[Claim]:
    """Return the claims on the number of candidates, and on the targets of the training."""
    listed = [question("k=growing > k=8", method, "top_prob", n, "k=growing", "k=8") for method, n in MODELS]
    for method, n in WITH_LATENTS:
        listed += [
            question("k=8 > k=1", method, "top_prob", n, "k=8", "k=1"),
            question("k=8 > k=all", method, "top_prob", n, "k=8", "k=all"),
            question("all targets > target only", method, "top_prob", n, "plain", "target only"),
        ]
    for method, n in WITH_LATENTS:
        name = method if n is None else f"{method} n={n}"
        every = infilled(method, n, "all")
        listed.append(Claim(f"{name}, top-prob: k=all > k=4", every, infilled(method, n, 4)))
    return listed


def of_policies() -> list[Claim]:
    """Return the claims on when latents are in the input, and on which masked tokens they are."""
    late = "same total of latents, late > constant n"
    listed = [question(late, "scdm", order, None, "late", "constant") for order in ORDERS]
    late_cell = boards("scdm", "uniform", None, "late")
    every = boards("scdm", "uniform", "all", "plain")
    listed.append(Claim("scdm, uniform: late latents > n=all", late_cell, every))
    policies = {
        "random": "random",
        "constrained of a unit": "constrained shared-unit",
        "relevant": "relevant",
    }
    for order, (variant, name) in product(ORDERS, policies.items()):
        listed.append(question(f"{name} latents > nearest", "scdm", order, 4, variant, "plain"))
    for order in ORDERS:
        relevant = boards("scdm", order, 4, "relevant")
        every = boards("scdm", order, "all", "plain")
        listed.append(Claim(f"scdm, {ORDER_NAMES[order]}: 4 relevant latents > n=all", relevant, every))
    return listed


def infilled(method: str, n: Latents, k: int | str) -> Cell:
    """Return the cell of a model of boards that infills puzzles with k candidates."""
    return Cell("sudoku-gen", method, "top_prob", n, "sudoku-puzzle", f"k={k}")


def question(text: str, method: str, order: OrderName, n: Latents, better: str, worse: str) -> Claim:
    """Return a claim of ours between two variants on boards."""
    names = [method, ORDER_NAMES[order]] if n is None else [method, f"n={n}", ORDER_NAMES[order]]
    first = boards(method, order, n, better)
    return Claim(f"{', '.join(names)}: {text}", first, boards(method, order, n, worse))
