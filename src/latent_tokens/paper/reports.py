"""Reports that run nothing: of the package, of the claims, of missing results and of training times."""

from __future__ import annotations

from latent_tokens.configs import ReproduceConfig
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.paper.running.runs import measured
from latent_tokens.paper.tables.catalogue import CATALOGUE
from latent_tokens.paper.tables.claims import claims_table
from latent_tokens.paper.tables.missing import missing_table
from latent_tokens.paper.tables.seed_variance import NOTE as VARIANCE_NOTE, seed_variance
from latent_tokens.paper.tables.training_times import NOTE as TIMES_NOTE, measuring_time, training_times
from latent_tokens.storage import write_atomic

ROWS = "rows.jsonl"  # of every experiment of a scale, in its folder of results


def report(config: ReproduceConfig) -> str:
    """Return a report. Those of the claims and of the training times are written to OUT/SCALE, too.

    Raises:
        ValueError: there are no results to report on.
    """
    if config.experiment in CATALOGUE:
        return as_markdown(CATALOGUE[config.experiment]())
    path = config.out / config.scale / ROWS
    stored = measured(path)
    arguments = config.scale, config.runs, stored
    if config.experiment == "missing":
        return as_markdown(missing_table(*arguments, config.seeds, config.judge))
    if not stored:
        raise ValueError(f"out={config.out}: {path} has no results. Name the directory of results.")
    if config.experiment == "claims":
        of_seeds = as_markdown(seed_variance(*arguments, config.seeds))
        text = f"{claims_table(*arguments, config.seeds, path, config.judge)}\n{VARIANCE_NOTE}\n\n{of_seeds}"
    else:
        text = f"{as_markdown(training_times(*arguments))}\n{TIMES_NOTE} {measuring_time(stored)}\n"
    text += f"\n`latent-tokens reproduce {config.experiment} --scale {config.scale}{flags_of(config)}`\n"
    write_atomic({path.parent / f"{config.experiment}.md": text.encode()})
    return text


def flags_of(config: ReproduceConfig) -> str:
    """Return the flags that change a table, for the command under it."""
    seeds = "" if config.seeds is None else f" --seeds {config.seeds}"
    return seeds if config.judge is None else f"{seeds} --judge {config.judge}"
