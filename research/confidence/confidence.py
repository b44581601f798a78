"""Which candidate is decoded: that of the largest probability, the largest margin, or the lowest entropy.

python research/confidence/confidence.py                     # print table.md from the stored rows
python research/confidence/confidence.py --measure-missing   # measure what the rows of bundled models lack

rows.jsonl are three training seeds of 6x6 boards. The others are bundled models, of one seed each.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

import latent_tokens as lt
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.evaluation.rows import append_result, read_results

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent), str(HERE.parent / "dead-ends")]

from dead_ends import DeadEnds, certainty, lost  # noqa: E402
from diversity import num_intercalates, share_of_distinct  # noqa: E402
from tables import Cell, Claim, lines_of, report, rows_of, watched  # noqa: E402

SAMPLES = 500
NUMBERS = (8, "growing", "all")
MODELS = (("scdm", 0), ("scdm", "all"), ("sidm", None), ("mdm", None))
CONFIDENCES = (
    *(("top_prob", ""), ("margin", ""), ("entropy", "")),
    *(("top_prob", ", noise 1"), ("top_prob", ", noise 4.5")),  # 4.5 is MaskGIT's
)
NUM_REFERENCE = 1_000  # boards of the task, whose intercalates are the reference


class Diversity:
    """A watcher that adds the diversity of the valid boards to its row.

    `distinct_share` is the share of the valid boards that differ from all others. `intercalates` is their
    mean number of 2x2 Latin subsquares, and `reference_intercalates` that of boards that the task generates.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        self.valid: list[NDArray[np.uint8]] = []  # of each batch

    def begin(self, rows: int, length: int) -> None:
        """Prepare for a batch, which takes nothing."""

    def __call__(self, step: lt.Step) -> None:
        """Ignore a step: the samples are enough."""

    def end(self, tokens: NDArray[np.uint8], right: NDArray[np.bool_]) -> None:
        """Keep the valid boards of a batch."""
        self.valid.append(self.task.boards(tokens[right]))

    def measured(self) -> dict[str, Any]:
        """Return the entries that are added to the row."""
        reference = self.task.boards(self.task.generate(NUM_REFERENCE, 0).tokens)
        watched = {"reference_intercalates": self._mean_intercalates(reference)}
        boards = np.concatenate(self.valid)
        if len(boards):
            watched["distinct_share"] = round(100 * share_of_distinct(boards), 2)
            watched["intercalates"] = self._mean_intercalates(boards)
        return watched

    def _mean_intercalates(self, boards: NDArray[np.uint8]) -> float:
        return round(float(num_intercalates(boards, self.task.side).mean()), 4)


class Setting(NamedTuple):
    """A bundled model and how it decodes."""

    run: str
    order: str
    candidates: int | str
    latents: int | str


def settings() -> list[Setting]:
    """Return the settings of bundled models. With k = all, scdm has no latent tokens."""
    listed = []
    for side, order in product((6, 9), ("top_prob", "entropy")):
        listed += [Setting(f"sudoku-{side}-mdm", order, k, "all") for k in NUMBERS]
    for side, order in product((6, 9), ("top_prob", "entropy")):
        with_latents = ((8, 0), (8, "all"), ("all", 0))
        listed += [Setting(f"sudoku-{side}-scdm", order, k, n) for k, n in with_latents]
    return [*listed, *(Setting("sudoku-6-mdm", "margin", k, "all") for k in NUMBERS)]


def setting_of(row: Any) -> Setting:
    """Return the setting of a row."""
    return Setting(*(row[name] for name in Setting._fields))


def measure(path: Path, wanted: list[Setting], watcher: Any, num_samples: int = SAMPLES) -> None:
    """Measure every setting without a row. Each row is stored when it has been measured."""
    for setting in wanted:
        if setting in map(setting_of, read_results(path)):
            continue
        model = lt.load(setting.run)
        latents = (setting.latents,) if model.method.latent_control == "free" else None
        row = watched(
            model.net, model.task, watcher(model.task), order=setting.order, candidates=setting.candidates,
            latents=latents, num_samples=num_samples,
        )  # fmt: skip
        append_result(path, row)


def bundled_table(rows: list[Any]) -> str:
    """Return a row per bundled model and confidence, with a column per number of candidates."""
    headings = ("model", "n", "confidence", *(f"k = {k}" for k in NUMBERS), "intercalates at k = all")
    table: list[tuple[str, ...]] = [headings]
    by_setting = {setting_of(row): row for row in rows}
    for run, n, order in dict.fromkeys((each.run, each.latents, each.order) for each in settings()):
        found = [by_setting.get(Setting(run, order, k, n)) for k in NUMBERS]
        found[-1] = found[-1] or by_setting[Setting(run, order, "all", 0)]
        cells = ("not run" if row is None else with_interval(row) for row in found)
        last = found[-1]
        intercalates = f"{last['intercalates']:.2f} ({last['reference_intercalates']:.2f})"
        table.append((f"`{run}`", str(n), ORDER_NAMES[order], *cells, intercalates))
    return as_markdown(table)


def with_interval(row: Any) -> str:
    """Return the percent of valid boards with its interval."""
    low, high = row["ci95"]
    return f"{row['valid']:.1f} ({low:.1f}-{high:.1f})"


def dead_ends_table(rows: list[Any]) -> str:
    """Return a row per bundled model and confidence: when boards lose their last solution, out of 100."""
    steps = ("steps 1 to 10", "11 to 20", "later", "largest probability, steps 1 to 10")
    table: list[tuple[str, ...]] = [("model", "confidence", "valid %", *steps)]
    for row in rows:
        names = f"`{row['run']}`", ORDER_NAMES[row["order"]], f"{row['valid']:.1f}"
        table.append((*names, *lost([row]), certainty([row])))
    return as_markdown(table)


def boards(method: str, order: str, n: Any, k: Any, noise: str = "") -> Cell:
    """Return the setting of a model of boards. k = all leaves no latent tokens."""
    return Cell(method, order, "all" if (n, k) == (0, "all") else n, f"k={k}{noise}, diversity")


def claims() -> list[Claim]:
    """Return the claims on adaptive candidates against other confidences, and on n with entropy."""
    listed = []
    for (method, n), (order, noise), k in product(MODELS, CONFIDENCES[1:], (8, "all")):
        name = method if n is None else f"{method} n={n}"
        text = f"{name}: {ORDER_NAMES[order]}, k={k}{noise} > top-prob, k=growing"
        listed.append(
            Claim(text, boards(method, order, n, k, noise), boards(method, "top_prob", n, "growing"))
        )
    every, eight = (boards("mdm", "entropy", None, k) for k in ("all", 8))
    listed.append(Claim("mdm, entropy: k=all > k=8", every, eight))
    for k in NUMBERS:
        none, every, sidm, mdm = (boards(method, "entropy", n, k) for method, n in MODELS)
        pairs = {"scdm n=all > sidm": (every, sidm), "mdm > scdm n=all": (mdm, every)}
        if k != "all":
            pairs |= {"scdm n=all > n=0": (every, none), "sidm > scdm n=0": (sidm, none)}
        listed += [Claim(f"entropy, k={k}: {text}", *pair) for text, pair in pairs.items()]
    return listed


def main(measure_missing: bool = False) -> None:
    """Print the tables.

    Args:
        measure_missing: measure what the rows of the bundled models lack, first.
    """
    of_bundled, of_dead_ends = HERE / "bundled.jsonl", HERE / "dead-ends.jsonl"
    if measure_missing:
        with_all = [each for each in settings() if each.candidates == "all" and each.order != "margin"]
        measure(of_bundled, settings(), Diversity)
        measure(of_dead_ends, with_all, DeadEnds)
    cells = [
        boards(method, order, n, k, noise)
        for order, noise in CONFIDENCES
        for method, n in MODELS
        for k in NUMBERS
    ]
    results = rows_of("confidence")
    print(report(results, cells, claims()))
    rows: list[Any] = [row for line in lines_of(results, cells) for row in line.rows]
    least = min(row["distinct_share"] for row in rows)
    print(f"At least {least:.1f}% of the valid boards of each seed differ from all others.\n")
    print(f"{bundled_table(read_results(of_bundled))}\n{dead_ends_table(read_results(of_dead_ends))}", end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
