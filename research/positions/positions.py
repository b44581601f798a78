"""Positions that know rows and columns, where training stays on a plateau: Zebra with four houses.

python research/positions/positions.py                   # print table.md from the rows
python research/positions/positions.py --measure RUNS    # train and measure what rows.jsonl lacks
"""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor, nn

import latent_tokens as lt
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import append_result, read_results
from latent_tokens.storage import read_lines

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "history")]

from histories import SETTINGS, History  # noqa: E402
from history import lines_of  # noqa: E402
from tables import Cell, Claim, Line, lines_in, report  # noqa: E402

SETTING = SETTINGS["zebra"]
TASK: Any = lt.TASKS[SETTING.task]
TRAINED = [("structured", 0), ("structured", 1), ("structured", 2), ("plain", 0)]
ORDERS = ("top_prob", "uniform")
STEPS = (1_000, 2_000, 4_000, 8_000, 14_000)  # of the table of losses


class Structured(lt.Transformer):
    """Adds to the embedding of each position those of its row and its column.

    Rows of a Zebra answer are attributes and columns their values. Positions of clues share one embedding
    of each.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.supports_slots = True
        self.row = nn.Embedding(TASK.num_attributes + 1, self.size.width)
        self.column = nn.Embedding(TASK.num_houses + 1, self.size.width)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        cell = positions - (TASK.length - TASK.num_cells)  # negative for clues
        row = torch.where(cell < 0, TASK.num_attributes, cell // TASK.num_houses)
        column = torch.where(cell < 0, TASK.num_houses, cell % TASK.num_houses)
        return super().embed(ids, positions) + self.row(row) + self.column(column)


def build(kind: str, seed: int) -> lt.Transformer:
    """Return a network untrained."""
    torch.manual_seed(seed)
    of_task: Any = {"parts": TASK.parts, "answer_tokens": TASK.answer_tokens}
    network = Structured if kind == "structured" else lt.Transformer
    return network("nano", TASK.vocab_size, TASK.length, positions="learned", gelu="exact", **of_task)


def trained(kind: str, seed: int, runs: Path) -> Path:
    """Train an mdm with the steps, batches and rates of research/history, and return its directory."""
    data = lt.DataConfig(SETTING.task, runs / "data" / SETTING.task, num_train=SETTING.num_train)
    if not data.folder.exists():
        lt.make_data(data)
    config = lt.TrainConfig(
        SETTING.task, "mdm", data=data.folder, out=runs / f"{kind}-{seed}", steps=SETTING.steps, seed=seed,
        precision="bf16", resume="auto", **SETTING.training,
    )  # fmt: skip
    return lt.fit(config, net=build(kind, seed))


def losses_of(folder: Path) -> list[tuple[int, float]]:
    """Return the validation losses of a training, by step."""
    rows = read_lines(folder / "metrics.jsonl")
    return [(row["step"], row["validation_loss"]) for row in rows if "validation_loss" in row]


def measure_missing(runs: Path, path: Path = HERE / "rows.jsonl") -> None:
    """Train and measure what a file lacks."""
    torch.set_num_threads(1)
    done = [(row["cell"], row["train_seed"]) for row in read_results(path)]
    for (kind, seed), order in product(TRAINED, ORDERS):
        cell = cell_of(order, kind)
        if (cell._asdict(), seed) not in done:
            folder = trained(kind, seed, runs)
            net = lt.from_pretrained(folder, net=build(kind, seed))
            k = SETTING.candidates if order == "top_prob" else None
            (row,) = lt.evaluate(net, TASK, order=order, candidates=k, num_samples=1_000, seed=seed)
            entries = {"cell": cell._asdict(), "train_seed": seed, "train_steps": SETTING.steps}
            append_result(path, {**row, **entries, "validation_losses": losses_of(folder)})


def cell_of(order: str, kind: str) -> Cell:
    """Return the setting of an order."""
    return Cell("mdm", order, None, kind, "zebra")


def from_history() -> dict[Cell, Line]:
    """Return the rows of the plain network of research/history, trained in fp32."""
    rows = sorted(read_results(HERE.parent / "history" / "rows.jsonl"), key=lambda row: row["train_seed"])
    values = {"top_prob": lines_of(rows), "uniform": lines_of(rows, "uniform")}
    found = {order: of[History("zebra", "mdm")][None].rows for order, of in values.items()}
    return {(cell := cell_of(order, "fp32 on a GPU")): Line(cell, rows) for order, rows in found.items()}


def losses_table(lines: dict[Cell, Line]) -> str:
    """Return the validation losses of each training, nats per token."""
    table = [("positions", "seed", *(f"step {step:,}" for step in STEPS))]
    for kind in ("structured", "plain"):
        for row in lines[cell_of("top_prob", kind)].rows:
            by_step = dict(row["validation_losses"])
            table.append((kind, str(row["train_seed"]), *(f"{by_step[step]:.3f}" for step in STEPS)))
    return as_markdown(table)


def main(measure: Path | None = None) -> None:
    """Print the tables.

    Args:
        measure: directory of data sets and models, to train and measure what rows.jsonl lacks first.
    """
    if measure is not None:
        measure_missing(measure)
    lines = from_history() | lines_in(HERE / "rows.jsonl")
    kinds = ("structured", "plain", "fp32 on a GPU")
    cells = [cell_of(order, kind) for order in ORDERS for kind in kinds]
    claims = [
        Claim(f"{order}: structured > plain, fp32", *(cell_of(order, kind) for kind in kinds[::2]))
        for order in ORDERS
    ]
    print("\n".join([losses_table(lines), report(lines, cells, claims)]), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
