"""The list of claims that the paper states in its tables, captions and text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from latent_tokens.configs import OrderName, ScaleName
from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.paper.design.cells import Cell, Claim
from latent_tokens.paper.design.scales import BOARDS_9, SCALES, Scale

TASKS = ("sudoku-gen", "sudoku-puzzle", "zebra", "countdown")
WITH_SIDM = ("sudoku-puzzle", "zebra", "countdown")  # the tasks of Tables 1 and 4

# Quotations of the paper.
ON_BOARDS = 'Figure 1: "accuracy increases with the number of latent tokens across both paradigms"'
BETWEEN = (
    'Figure 1: "interpolates between a fast, independent-prediction model (SIDM) and an accurate,'
    ' joint-prediction model (MDM)"'
)
MOST_SETTINGS = (
    'Section 4.3.2, of most settings: "increasing the number of latent tokens yields consistent improvements"'
)
IMPLIED = f"implied by {BETWEEN}"
GAP = 'Section 4.3.2, of most tasks: "a gap persists"'
LIKE_FIGURE_1 = 'implied by Figure 4: "interpolating between SIDM"'
INFILLING = 'Section 4.3.2: "the model trained on unconditional generation does"'
WINDOWS_IMPROVE = (
    'Section 5.3: "AR-MTP exhibits consistent improvement as the number of latent tokens increases"'
)
WINDOWS_DEGRADE = 'Section 5.3: "AR-NTP performance degrades as the window size increases"'
ARM_AHEAD = 'Section 5.3, of a window of 8: "standard ARM, which outperforms AR-MTP-Window-8"'
PERPLEXITY_FALLS = (
    'Section 4.3.2: "generative perplexity decreases nearly monotonically with additional latent tokens"'
)


def claims(scale: ScaleName) -> list[Claim]:
    """Return the claims of a scale, which has some of the tasks only."""
    has_boards_9 = BOARDS_9 in SCALES[scale].budgets
    return [
        *printed_in_tables((BOARDS_9, *TASKS) if has_boards_9 else TASKS),
        *printed_of_latents(SCALES[scale], has_boards_9),
        *printed_of_windows(SCALES[scale]),
        *printed_of_text(SCALES[scale]),
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


def printed_of_latents(scale: Scale, has_boards_9: bool) -> list[Claim]:
    """Return the statements on the number of latent tokens. The paper's figures print no numbers."""
    sizes = (BOARDS_9, "sudoku-gen") if has_boards_9 else ("sudoku-gen",)
    return [
        *(claim for task in sizes for claim in with_latents(scale, task, None, (ON_BOARDS, IMPLIED, GAP))),
        *with_latents(scale, "zebra", None, (MOST_SETTINGS, LIKE_FIGURE_1, GAP)),
        *with_latents(scale, "countdown", None, (MOST_SETTINGS, LIKE_FIGURE_1, GAP)),
        *with_latents(scale, "sudoku-puzzle", None, (None, None, GAP)),
        *with_latents(scale, "sudoku-gen", "sudoku-puzzle", (INFILLING, None, None)),
        *(mdm_and_sidm(task, "top_prob", BETWEEN) for task in sizes),
    ]


def mdm_and_sidm(task: str, order: OrderName, source: str) -> Claim:
    """Return the claim that mdm is better than sidm in an order."""
    text = f"mdm > sidm, {ORDER_NAMES[order]}"
    return Claim(text, Cell(task, "mdm", order), Cell(task, "sidm", order), source)


def with_latents(
    scale: Scale, task: str, problems: str | None, sources: tuple[str | None, str | None, str | None]
) -> list[Claim]:
    """Return the claims on scdm at n = all against n = 0, against sidm and against mdm.

    `sources` are those of the three. A claim without one is not of the paper, and left out.
    """
    k = scale.budgets[task].dial_candidates
    none = Cell(task, "scdm", "top_prob", 0, problems, k)
    every = Cell(task, "scdm", "top_prob", "all", problems, k)
    mdm = Cell(task, "mdm", "top_prob", None, problems, k)
    sidm = Cell(task, "sidm", "top_prob", None, problems, k)
    texts = ("scdm n=all > n=0", "scdm n=all > sidm", "mdm > scdm n=all")
    pairs = ((every, none), (every, sidm), (mdm, every))
    listed = zip(texts, pairs, sources, strict=True)
    return [Claim(text, *pair, source) for text, pair, source in listed if source is not None]


def printed_of_windows(scale: Scale) -> list[Claim]:
    """Return the claims of Section 5.3 on Sudoku-Large, in soft loss, and the same comparisons on boards.

    The paper compares windows on boards only in Figure 1.
    """
    windows = scale.windows_of("sudoku-large")
    large = windows_of("sudoku-large", windows, "<", WINDOWS_IMPROVE, WINDOWS_DEGRADE)
    on_boards = windows_of("sudoku-gen", scale.windows_of("sudoku-gen"), ">", ON_BOARDS, None)
    if BOARDS_9 in scale.budgets:
        few, many = scale.windows_of(BOARDS_9)
        better, worse = (window(BOARDS_9, "ar-mtp-window", size) for size in (many, few))
        on_boards.append(Claim(f"ar-mtp-window-{many} > window-{few}", better, worse, ON_BOARDS))
    few = windows[1]
    arm = Cell("sudoku-large", "arm", "left_to_right")
    ahead = Claim(f"arm < ar-mtp-window-{few}", arm, window("sudoku-large", "ar-mtp-window", few), ARM_AHEAD)
    return [*large, ahead, *on_boards]


def windows_of(
    task: str, windows: tuple[int, ...], sign: str, improve: str, degrade: str | None
) -> list[Claim]:
    """Return the claims that more latents help ar-mtp-window, and, if stated, that they harm ar-ntp."""
    listed = []
    for few, many in pairwise(windows):
        better = window(task, "ar-mtp-window", many)
        worse = window(task, "ar-mtp-window", few)
        listed.append(Claim(f"ar-mtp-window-{many} {sign} window-{few}", better, worse, improve))
    for few, many in pairwise(windows[1:] if degrade else ()):
        better = window(task, "ar-ntp", few)
        worse = window(task, "ar-ntp", many)
        listed.append(Claim(f"ar-ntp-{few} {sign} ar-ntp-{many}", better, worse, str(degrade)))
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
