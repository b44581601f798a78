"""The table of experiments on text, a line per training seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import Row
from latent_tokens.paper.design.reference import TEXT, PrintedText
from latent_tokens.paper.running.held_out import held_out, nats_above
from latent_tokens.paper.tables.lines import Line

HEADINGS = (
    "method", "n", "paper: perplexity / s", "seed", "perplexity", "95% interval",
    "entropy", "95% interval", "distinct-2 %",
    "held-out nats per token", "difference to n = 0", "relative cost",
    "seconds", "speedup over mdm", "paper's speedup", "texts", "evaluator",
)  # fmt: skip
INTERVALS: tuple[tuple[Literal["ci95", "entropy_ci95"], int], ...] = (("ci95", 1), ("entropy_ci95", 2))
LEGEND = (
    "Perplexity of generated texts under the evaluator model, and entropy of a text's tokens in nats,"
    " both with 95% intervals over texts. Repetition "
    "lowers both. The paper's perplexity and seconds are of texts of 1,024 tokens. It does not name its"
    " evaluator model. Held-out nats are exact, along one random order per "
    "sequence, which is the same for every n. Their difference to n = 0 has a 95% interval"
    " over sequences, which are evenly spaced in the "
    "held-out documents. Each line is of one training seed, and no interval covers the variation"
    " between seeds. Relative cost is tokens processed, "
    "relative to all masked tokens in every step. Seconds are of decoding all texts once, and"
    " vary between runs. A speedup over mdm is on the same hardware."
)


def text_markdown(lines: Sequence[Line], experiment: str) -> str:
    """Return the table of an experiment, and its legend."""
    body = [
        cells for line in lines for cells in (cells_of_rows(line, lines) if line.rows else [not_run(line)])
    ]
    return f"{as_markdown([HEADINGS, *body])}\n{LEGEND}\n"


def printed_in(line: Line) -> PrintedText | None:
    """Return the paper's numbers of a line, or None."""
    return TEXT.get(line.cell.method) if line.cell.latents in (None, 0) else None


def cells_of_line(line: Line) -> tuple[str, ...]:
    """Return the cells that name a line of the table, and the paper's numbers there."""
    cell = line.cell
    printed = printed_in(line)
    return (
        cell.method,
        "" if cell.latents is None else str(cell.latents),
        "" if printed is None else f"{printed.perplexity} / {printed.seconds}",
    )


def speedup(row: Row, lines: Sequence[Line]) -> str:
    """Return how many times as fast as mdm a row was decoded. It is empty if mdm ran on other hardware."""
    seconds = {
        run_of(other): other["seconds"] for line in lines if line.cell.method == "mdm" for other in line.rows
    }
    return f"{seconds[run_of(row)] / row['seconds']:.1f}x" if run_of(row) in seconds else ""


def run_of(row: Row) -> tuple[object, ...]:
    """Return all that rows must share for their seconds to compare."""
    return row["train_seed"], row["num_samples"], row["device"], row["threads"], row["precision"]


def not_run(line: Line) -> tuple[str, ...]:
    """Return the cells of a line without rows."""
    return (*cells_of_line(line), "", "not run", *("" for _ in HEADINGS[5:]))


def without_latents(line: Line, lines: Sequence[Line]) -> dict[int, Row]:
    """Return the rows of the same model at n = 0 by their seed, none if the line is at n = 0."""
    same_models = (
        candidate
        for candidate in lines
        if candidate.cell.method == line.cell.method and candidate.cell.latents == 0 != line.cell.latents
    )
    return {row["train_seed"]: row for candidate in same_models for row in candidate.rows}


def cells_of_rows(line: Line, lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Return a line of the table for each training seed."""
    table = []
    first = without_latents(line, lines)
    printed = printed_in(line)
    for row in line.rows:
        nats = held_out(row)
        above = nats_above(row, first[row["train_seed"]]) if row["train_seed"] in first else None
        intervals = (
            "" if (bounds := row[name]) is None else f"{bounds[0]:.{digits}f} - {bounds[1]:.{digits}f}"
            for name, digits in INTERVALS
        )
        perplexities, entropies = intervals
        cells = (
            *cells_of_line(line),
            "" if line.recipes[0].imported else str(row["train_seed"]),
            f"{row['perplexity']:.1f}",
            perplexities,
            f"{row['entropy']:.2f}",
            entropies,
            f"{row['distinct_2']:.1f}",
            "" if nats is None else f"{nats:.3f}",
            "" if above is None else f"{above[0]:+.3f} ± {above[1]:.3f}",
            f"{row['relative_cost']:.2f}x",
            f"{row['seconds']:.3f}",
            speedup(row, lines),
            "" if printed is None else f"{TEXT['mdm'].seconds / printed.seconds:.1f}x",
            f"{row['num_samples']:,}",
            row["judge"],
        )
        table.append(cells)
    return table
