"""A table or figure of the paper by one command: plan, run what is missing, put ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper.catalogue import CATALOGUE
from latent_tokens.paper.figures import draw
from latent_tokens.paper.plan import Work, estimate, plan
from latent_tokens.paper.recipes import Recipe, recipes
from latent_tokens.paper.runs import check_together, measured, run
from latent_tokens.paper.tables import lines, markdown
from latent_tokens.progress import CONSOLE
from latent_tokens.report import as_markdown
from latent_tokens.storage import write_whole

Row = dict[str, Any]

TITLES = {
    "figure-1": "Latent tokens: what a dial at inference, and what training with a window, buys",
    "table-1": "With latents (MDM) and without (SIDM)",
    "table-1-uniform": "With latents (MDM) and without (SIDM), in a random and in an adaptive order",
    "table-ar-mtp": "Multi-token prediction gives autoregressive models latents",
    "figure-latents": "Latent token modulation: accuracy against the number of latents",
    "figure-sudoku-large": "Large boards: loss against the number of tokens predicted",
    "ablation-refresh": "Algorithm 5: schedule reshuffled after every step, or as printed",
    "ablation-weight": "AR-MTP: loss divided by all unknown positions, or by those predicted (elbo)",
    "ablation-candidates": "How many candidates the most confident is chosen from",
    "ablation-schedule": "The same number of latents in all, at different times",
    "ablation-targets": "Learning all masked tokens, or the target alone",
    "ablation-latents": "Which masked tokens serve as latents",
    "ablation-relevant": "The most relevant four latents, on other tasks",
    "figure-predictions": "What latents predict: likeliest token = the one decoded later",
    "figure-compute": "Accuracy against training",
}
ROWS = "rows.jsonl"  # of every experiment of a scale, in its folder of results


def reproduce(config: ReproduceConfig) -> str:
    """The experiment as a Markdown table, also written to OUT/SCALE with its figure; with `status` a table of what is done and what is not.

    Raises ValueError for a name that is not there, and where rows cannot stand in one table; KeyboardInterrupt where it was stopped, after saving.
    """
    if config.experiment in CATALOGUE:
        return as_markdown(CATALOGUE[config.experiment]())
    asked, folder = recipes(config.experiment, config.scale, config.runs), config.out / config.scale
    works = plan(asked, folder / ROWS)
    if config.status:
        return status(works)
    folder.mkdir(parents=True, exist_ok=True)
    announce(works)
    try:
        run(asked, folder / ROWS, on_row=say)
    finally:
        table = write(asked, config, folder)
    return table


def say(row: Row) -> None:
    """A line on what was measured."""
    CONSOLE.print(f"{row['model']}, {row['order']}, n={row['latents']}: {row['metric']} {row[row['metric']]} %", highlight=False, soft_wrap=True)


def write(asked: list[Recipe], config: ReproduceConfig, folder: Path) -> str:
    """Writes the table and the figure as far as rows are there; gives the table."""
    found = measured(folder / ROWS)
    check_together([found[recipe.hash] for recipe in asked if recipe.hash in found], folder / ROWS)
    shown = lines(asked, found)
    table = markdown(shown, config.experiment, config.scale, estimate(plan(asked, folder / ROWS)) / 60)
    write_whole({folder / f"{config.experiment}.md": table.encode()})
    caption = f"95 % intervals of all samples together; latent-tokens reproduce {config.experiment} --scale {config.scale}"
    draw(shown, TITLES[config.experiment], caption, folder / config.experiment)
    return table


def announce(works: list[Work]) -> None:
    """Says what will be run, and how long it should take."""
    training, missing = [work for work in works if work.steps_left], [recipe for work in works for recipe in work.missing]
    if missing:
        CONSOLE.print(f"{len(training)} of {len(works)} models to train, {len(missing)} rows to measure; timing a few steps ...", highlight=False)
        CONSOLE.print(f"about {estimate(works) / 60:.0f} minutes on this machine; Ctrl-C saves, the same command goes on", highlight=False)


def status(works: list[Work]) -> str:
    """A line a model: done, trained, begun or missing, and the rows that it has and lacks."""
    found = [("model", "state", "steps left", "rows", "rows to measure")]
    for work in works:
        rows = len(work.recipes) - len(work.missing)
        found.append((work.name, work.state, f"{work.steps_left:,}", str(rows), str(len(work.missing))))
    return as_markdown(found)
