"""The claims of the paper in its tables, captions and text, and the verdict of the results on each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean

from latent_tokens.configs import OrderName, ScaleName
from latent_tokens.evaluation.intervals import wilson_difference
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.evaluation.rows import Row
from latent_tokens.paper.experiments import EXPERIMENTS, Cell, Claim
from latent_tokens.paper.recipes import Recipe, of_cells
from latent_tokens.paper.run import check_together
from latent_tokens.paper.scales import BOARDS_9, SCALES, Scale
from latent_tokens.paper.tables import ENOUGH, Line, interval_over_seeds, lines, local_task

WITH_SIDM = ("sudoku-puzzle", "zebra", "countdown")  # the tasks of Tables 1 and 4

# Quotations of the paper.
ON_BOARDS = 'Figure 1: "accuracy increases with the number of latent tokens across both paradigms"'
BETWEEN = (
    'Figure 1: "interpolates between a fast, independent-prediction model (SIDM) and an accurate,'
    ' joint-prediction model (MDM)"'
)
MOST_SETTINGS = (
    'Section 4.3.2, of most settings: "increasing the number of latent tokens '
    'yields consistent improvements"'
)
IMPLIED = f"implied by {BETWEEN}"
GAP = 'implied by Section 4.3.2, of most tasks: "a gap persists"'
SMOOTH = 'Abstract: "a smooth tradeoff between inference speed and sample quality"'
LIKE_FIGURE_1 = 'implied by Figure 4: "interpolating between SIDM"'
INFILLING = 'Section 4.3.2: "the model trained on unconditional generation does"'
WINDOWS_IMPROVE = (
    'Section 5.3: "AR-MTP exhibits consistent improvement as the number of latent tokens increases"'
)
APPROACHES_MDM = 'implied by Section 5.3: "performance approaching that of MDM"'
WINDOWS_DEGRADE = 'Section 5.3: "AR-NTP performance degrades as the window size increases"'
TARGETS_COUNT = f"implied by {WINDOWS_DEGRADE}"
ARM_AHEAD = 'Section 5.3, of a window of 8: "standard ARM, which outperforms AR-MTP-Window-8"'
PERPLEXITY_FALLS = (
    'Section 4.3.2: "generative perplexity decreases nearly monotonically '
    'with additional latent tokens"'
)


def claims(scale: ScaleName) -> list[Claim]:
    """Return the claims of a scale, which has some of the tasks only."""
    of_scale = SCALES[scale]
    boards = tuple(task for task in (BOARDS_9, "sudoku-gen") if task in of_scale.budgets)
    return [
        *in_tables((*boards, *WITH_SIDM)),
        *on_latents(of_scale, boards),
        *on_windows(of_scale),
        *on_text(of_scale),
    ]


def in_tables(tasks: Sequence[str]) -> list[Claim]:
    """Return the inequalities between the numbers of Tables 1, 3 and 4."""
    listed = [mdm_and_sidm(task, "top_prob", "Table 1") for task in WITH_SIDM]
    listed += [mdm_and_sidm(task, "uniform", "Table 4") for task in WITH_SIDM]
    for task in WITH_SIDM:
        top_prob = Cell(task, "sidm", "top_prob")
        uniform = Cell(task, "sidm", "uniform")
        listed.append(Claim("sidm top-prob > sidm uniform", top_prob, uniform, "Table 4"))
    for task in tasks:
        cells = {
            "arm": Cell(task, "arm", "left_to_right"),
            "ar-mtp": Cell(task, "ar-mtp", "left_to_right"),
            "mdm uniform": Cell(task, "mdm", "uniform"),
            "mdm top-prob": Cell(task, "mdm", "top_prob"),
        }
        middle = ("mdm uniform", "ar-mtp") if task == "countdown" else ("ar-mtp", "mdm uniform")
        last = ("arm", "mdm uniform") if task == "zebra" else ("mdm uniform", "arm")
        best = "mdm top-prob"
        above = ((best, "mdm uniform"), ("ar-mtp", "arm"), (best, "ar-mtp"), (best, "arm"))
        for first, second in (*above, middle, last):
            text = f"{first} > {second}"
            listed.append(Claim(text, cells[first], cells[second], "Table 3"))
    return listed


def on_latents(scale: Scale, boards: Sequence[str]) -> list[Claim]:
    """Return the statements on the number of latent tokens. The paper's figures print no numbers."""
    of_boards = [with_latents(scale, task, None, (ON_BOARDS, IMPLIED, GAP, GAP)) for task in boards]
    return [
        *chain(*of_boards),
        *with_latents(scale, "zebra", None, (MOST_SETTINGS, LIKE_FIGURE_1, GAP, GAP)),
        *with_latents(scale, "countdown", None, (MOST_SETTINGS, LIKE_FIGURE_1, GAP, GAP)),
        *with_latents(scale, "sudoku-puzzle", None, (None, None, GAP, GAP)),
        *with_latents(scale, "sudoku-gen", "sudoku-puzzle", (INFILLING, None, None, None)),
        *(mdm_and_sidm(task, "top_prob", BETWEEN) for task in boards),
        *chain(*(neighbors(scale, task) for task in (*boards, "zebra", "countdown"))),
    ]


def neighbors(scale: Scale, task: str) -> list[Claim]:
    """Return the claims that scdm is better with each larger number of latent tokens: a smooth tradeoff."""
    k = scale.budgets[task].curve_candidates
    listed = []
    counts = scale.latent_counts_of(task)
    for fewer, more in pairwise(counts) if len(counts) > 2 else ():
        better = Cell(task, "scdm", "top_prob", more, k=k)
        worse = Cell(task, "scdm", "top_prob", fewer, k=k)
        listed.append(Claim(f"scdm n={more} > n={fewer}", better, worse, SMOOTH))
    return listed


def mdm_and_sidm(task: str, order: OrderName, source: str) -> Claim:
    """Return the claim that mdm is better than sidm in an order."""
    text = f"mdm > sidm, {ORDER_NAMES[order]}"
    return Claim(text, Cell(task, "mdm", order), Cell(task, "sidm", order), source)


def with_latents(
    scale: Scale,
    task: str,
    problems: str | None,
    sources: tuple[str | None, str | None, str | None, str | None],
) -> list[Claim]:
    """Return the claims on scdm at n = all against n = 0, sidm and mdm, and on sidm against n = 0.

    `sources` are those of the four. A claim without one is not of the paper, and left out.
    """
    k = scale.budgets[task].curve_candidates
    none = Cell(task, "scdm", "top_prob", 0, problems, k)
    every = Cell(task, "scdm", "top_prob", "all", problems, k)
    mdm = Cell(task, "mdm", "top_prob", None, problems, k)
    sidm = Cell(task, "sidm", "top_prob", None, problems, k)
    texts = ("scdm n=all > n=0", "scdm n=all > sidm", "mdm > scdm n=all", "sidm > scdm n=0")
    pairs = ((every, none), (every, sidm), (mdm, every), (sidm, none))
    listed = zip(texts, pairs, sources, strict=True)
    return [Claim(text, *pair, source) for text, pair, source in listed if source is not None]


def on_windows(scale: Scale) -> list[Claim]:
    """Return the claims of Section 5.3 on Sudoku-Large, in soft loss, and the same comparisons on boards.

    More latent tokens help ar-mtp-window, and harm ar-ntp. The paper compares windows on boards
    only in Figure 1.
    """
    sizes = scale.windows_of("sudoku-large")
    few = sizes[1]
    listed = [
        on_window("sudoku-large", few, many, "<", WINDOWS_IMPROVE) for few, many in pairwise(sizes)
    ]
    for size, larger in pairwise(sizes[1:]):
        better, worse = (window("sudoku-large", "ar-ntp", each) for each in (size, larger))
        listed.append(Claim(f"ar-ntp-{size} < ar-ntp-{larger}", better, worse, WINDOWS_DEGRADE))
    arm = Cell("sudoku-large", "arm", "left_to_right")
    ahead = window("sudoku-large", "ar-mtp-window", few)
    listed.append(Claim(f"arm < ar-mtp-window-{few}", arm, ahead, ARM_AHEAD))
    largest = window("sudoku-large", "ar-mtp-window", sizes[-1])
    mdm = Cell("sudoku-large", "mdm", "uniform")
    listed.append(Claim(f"mdm < ar-mtp-window-{sizes[-1]}", mdm, largest, APPROACHES_MDM))
    for task, sign in (("sudoku-large", "<"), ("sudoku-gen", ">")):
        for size in scale.windows_of(task)[1:]:
            every = window(task, "ar-mtp-window", size)
            next_only = window(task, "ar-ntp", size)
            text = f"ar-mtp-window-{size} {sign} ar-ntp-{size}"
            listed.append(Claim(text, every, next_only, TARGETS_COUNT))
    for task in ("sudoku-gen", BOARDS_9):
        if task in scale.budgets:
            listed += [
                on_window(task, *pair, ">", ON_BOARDS) for pair in pairwise(scale.windows_of(task))
            ]
    return listed


def on_window(task: str, few: int, many: int, sign: str, source: str) -> Claim:
    """Return the claim that a window with more latent tokens is better."""
    better, worse = (window(task, "ar-mtp-window", size) for size in (many, few))
    return Claim(f"ar-mtp-window-{many} {sign} window-{few}", better, worse, source)


def window(task: str, kind: str, size: int) -> Cell:
    """Return the cell of a model with a window."""
    return Cell(task, f"{kind}-{size}", "left_to_right")


def on_text(scale: Scale) -> list[Claim]:
    """Return the claims on generative perplexity."""
    most = scale.texts.latent_counts[-1]
    mdm = Cell("text", "mdm", "uniform")
    none = Cell("text", "esolm", "uniform", 0)
    every = Cell("text", "esolm", "uniform", most)
    return [
        Claim("mdm < esolm n=0", mdm, none, "Table 2"),
        Claim(f"esolm n={most} < n=0", every, none, PERPLEXITY_FALLS),
    ]


HEADINGS = (
    *("task", "claim", "source", "first", "second", "unit"),
    *("difference (95% interval)", "kind", "verdict", "missing models (seeds): command"),
)
RULE = (
    "A claim holds (yes) if three or more training seeds decide it: the 95% interval of the difference"
    " excludes 0. With three seeds or more, it is Student's t over the seed-by-seed differences (t)."
    " It is never narrower than the sampling noise, which is the interval of a difference of two shares from"
    " Wilson's intervals (Newcombe's method 10). If the noise sets a bound, the kind is t and Wilson."
    " With fewer seeds the interval is the sampling noise (Wilson), which leaves out the variation between"
    " seeds and decides no claim. Seeds that solve the same puzzles count each puzzle once. For a loss or a"
    " perplexity, lower is better and the sampling noise is not known. An undecided claim is no evidence of"
    " equality. The paper's claims are of its"
    " own tasks, which the first column replaces by smaller ones. Both numbers are of the training seeds that"
    " both sides have. No interval is corrected for the number of claims."
    " With k > 1 candidates, n = 0 still leaves up to k - 1 other masked tokens in the input."
)


@dataclass(frozen=True)
class Decided:
    """A claim with the two lines it compares, over the seeds that both have, and its verdict.

    `missing` are the recipes without a result, of the training seeds that a claim needs.
    """

    claim: Claim
    better: Line
    worse: Line
    difference: str
    interval: str
    verdict: str
    missing: tuple[Recipe, ...]

    @property
    def task(self) -> str:
        """The task that replaces the claim's at this scale."""
        return local_task(self.better)

    @property
    def is_open(self) -> bool:
        """Whether training seeds are missing for a verdict."""
        return self.verdict.startswith(("no claim", "not run"))


def claims_table(
    scale: ScaleName,
    root: Path,
    results: Mapping[str, Row],
    seeds: int | None = None,
    path: Path = Path("rows.jsonl"),
    evaluator: str | None = None,
) -> str:
    """Return a table with one row per claim and task, from the results that exist, after their overview.

    Args:
        scale: the scale of the results.
        root: directory of data sets and models, which are part of no hash.
        results: rows by the hash of their recipe.
        seeds: training seeds of each model. None: as many as the scale has.
        path: the file of the results, for messages.
        evaluator: the evaluator model of generated text. None: the scale's.

    Raises:
        ValueError: the two sides of a claim have rows of one model with different weights, or of
            one task with different data or problems.
    """
    listed = decided(scale, root, results, seeds, path, evaluator)
    first_with: dict[Cell, str] = {}
    for name, experiment in EXPERIMENTS.items():
        for cell in experiment.cells(SCALES[scale]):
            first_with.setdefault(cell, name)
    table: list[tuple[str, ...]] = [HEADINGS]
    for each in listed:
        sides = each.better, each.worse
        values = [line.written(line.mean) if line.rows else "not run" for line in sides]
        unit = next((line.unit for line in sides if line.rows or line.is_loss), "")
        decision = (each.difference, each.interval, each.verdict)
        needed = to_run(each, scale, first_with) if each.missing and each.is_open else ""
        claim = each.claim
        table.append((each.task, claim.text, claim.source, *values, unit, *decision, needed))
    return f"{as_markdown(overview(listed))}\n{as_markdown(table)}\n{RULE}\n"


def decided(
    scale: ScaleName,
    root: Path,
    results: Mapping[str, Row],
    seeds: int | None,
    path: Path,
    evaluator: str | None = None,
) -> list[Decided]:
    """Return every claim with its verdict, as `claims_table` describes it."""
    listed = []
    for claim in claims(scale):
        cells = claim.better, claim.worse
        sides = lines(of_cells(cells, scale, root, seeds, evaluator), results)
        check_together([row for line in sides for row in line.rows], path)
        better, worse = on_shared_seeds(*sides)
        needed = of_cells(cells, scale, root, max(ENOUGH, seeds or 0), evaluator)
        missing = tuple(recipe for recipe in needed if recipe.hash not in results)
        listed.append(Decided(claim, better, worse, *verdict(better, worse), missing))
    return listed


def to_run(each: Decided, scale: ScaleName, first_with: Mapping[Cell, str]) -> str:
    """Return what a claim without a verdict needs: models with their seeds, and the commands.

    `first_with` is the first experiment with each cell.
    """
    names = dict.fromkeys(first_with[recipe.cell] for recipe in each.missing)
    task = each.claim.better.task
    more = f" --seeds {ENOUGH}" if SCALES[scale].budgets[task].seeds < ENOUGH else ""
    commands = (f"`latent-tokens reproduce {name} --scale {scale}{more}`" for name in names)
    return f"{models_of(each.missing)}: {', '.join(commands)}"


def models_of(missing: Iterable[Recipe]) -> str:
    """Return the models of some recipes in words: "mdm, sidm (1, 2); arm (2)"."""
    seeds: dict[str, set[int]] = {}
    for recipe in missing:
        seeds.setdefault(recipe.cell.method, set()).add(recipe.training.seed)
    methods: dict[str, list[str]] = {}
    for method, of_method in seeds.items():
        methods.setdefault(", ".join(map(str, sorted(of_method))), []).append(method)
    return "; ".join(f"{', '.join(names)} ({numbers})" for numbers, names in methods.items())


def overview(listed: Sequence[Decided]) -> list[tuple[str, ...]]:
    """Return a table with a row per claim: the tasks on which each is reproduced, and those not.

    "(implied)" is a comparison that follows from a statement of the paper, which does not print it.
    """
    columns = ("yes", "no, the reverse", "undecided", "no claim", "not run")
    shown = ("reproduced", "the reverse", "undecided", "fewer than three seeds", "not run")
    table: list[tuple[str, ...]] = [("claim of the paper", *shown)]
    for text in dict.fromkeys(each.claim.text for each in listed):
        of_text = [each for each in listed if each.claim.text == text]
        cells: dict[str, list[str]] = {column: [] for column in columns}
        for each in of_text:
            column = next(column for column in columns if each.verdict.startswith(column))
            cells[column].append(f"{each.task} {each.difference}".strip())
        is_implied = all(each.claim.source.startswith("implied") for each in of_text)
        name = f"{text} (implied)" if is_implied else text
        table.append((name, *("; ".join(cells[column]) for column in columns)))
    return table


def verdict(better: Line, worse: Line) -> tuple[str, str, str]:
    """Return the difference with its interval, the kind of interval, and the verdict on better > worse.

    It is over the training seeds that both have, as `on_shared_seeds` returns them. For a loss a
    negative difference supports the claim.
    """
    first, second = better.by_seed, worse.by_seed
    differences = [value - second[seed] for seed, value in first.items() if seed in second]
    if not differences:
        return "", "", "no claim: no seed in common" if better.rows and worse.rows else "not run"
    interval = interval_over_seeds(differences, sampling_noise(better, worse))
    text = better.written(fmean(differences), "+")
    if interval is not None:
        text += f" ({better.written(interval.low, '+')} to {better.written(interval.high, '+')})"
    kind = interval.kind if interval else ""
    num_seeds = len(differences)
    if num_seeds < ENOUGH or interval is None:
        return text, kind, f"no claim: {num_seeds} seed{'s' * (num_seeds > 1)}"
    low, high = (-interval.high, -interval.low) if better.is_loss else (interval.low, interval.high)
    if low > 0:
        return text, kind, "yes"
    return text, kind, "undecided" if high >= 0 else "no, the reverse"


def on_shared_seeds(first: Line, second: Line) -> tuple[Line, Line]:
    """Return two lines with the seeds that both have only, or as they are if they share none."""
    shared = [seed for seed in first.by_seed if seed in second.by_seed]
    return (first.of_seeds(shared), second.of_seeds(shared)) if shared else (first, second)


def sampling_noise(first: Line, second: Line) -> tuple[float, float] | None:
    """Return the interval of a difference from the number of samples, in percent, or None for a loss.

    It treats samples as independent, also those of the same puzzles, which is conservative.
    """
    if first.is_loss:
        return None
    low, high = wilson_difference(
        first.mean / 100, first.num_independent, second.mean / 100, second.num_independent
    )
    return 100 * low, 100 * high
