"""A table or figure of the paper by one command: plan, run the missing recipes, write the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from latent_tokens.checks import did_you_mean
from latent_tokens.configs import ReproduceConfig, ScaleName
from latent_tokens.devices import fastest_device
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import Row, metric_of
from latent_tokens.evaluation.text import language_model
from latent_tokens.paper.claims import claims_table
from latent_tokens.paper.experiments import EXPERIMENTS
from latent_tokens.paper.figures import draw_experiment, draw_text
from latent_tokens.paper.plan import Work, plan, run_in_processes, say
from latent_tokens.paper.recipes import Recipe, recipes
from latent_tokens.paper.run import check_together, rows_by_recipe, run
from latent_tokens.paper.tables import lines, markdown, text_markdown
from latent_tokens.storage import create_directory, write_atomic

TIME_OF_SCALE = {
    "smoke": "seconds per model",
    "cpu": "minutes to hours per model",
    "paper": "for an accelerator",
}
ROWS = "rows.jsonl"  # of every experiment of a scale, in its folder of results


def reproduce(config: ReproduceConfig) -> str:
    """Return the table of an experiment, and write it with its figure to OUT/SCALE.

    With `status` it is a table of the models that are done and missing. With `model` one model is
    trained and measured, and its line of that table is returned. `all` is every experiment in turn.

    Raises:
        ValueError: the experiment is unknown, or rows cannot be in one table.
        KeyboardInterrupt: Ctrl-C stopped it, after a checkpoint was saved.
    """
    if config.experiment == "claims":
        return claims_text(config)
    folder = config.out / config.scale
    names = tuple(EXPERIMENTS) if config.experiment == "all" else (config.experiment,)
    requested = {
        name: recipes(name, config.scale, config.runs, config.seeds, config.evaluator)
        for name in names
    }
    every = list({recipe.hash: recipe for each in requested.values() for recipe in each}.values())
    if config.model is not None:
        every = of_model(every, config.model)
    works = plan(every, folder / ROWS)
    if config.status:
        return status(works)
    for evaluator in dict.fromkeys(recipe.evaluator for work in works for recipe in work.missing):
        if evaluator not in (None, "trigrams"):
            # Raise for a missing one before hours of training.
            language_model(evaluator, str(fastest_device()))
    if config.workers > 1:
        language_model.cache_clear()  # each process reads its own
    create_directory(folder)
    if config.model is not None:
        run(every, folder / ROWS, on_row=say_row)
        return status(plan(every, folder / ROWS))
    try:
        if config.workers > 1:
            run_in_processes(works, config)
        else:
            print_what_is_left(works, config.scale, folder / ROWS)
            run(every, folder / ROWS, on_row=say_row)
    finally:
        tables, problems = write_all(requested, config.scale, folder, flags_of(config))
    if problems:
        raise ValueError(" ".join(problems))
    return "\n".join(tables)


def claims_text(config: ReproduceConfig) -> str:
    """Return the table of the claims, and write it to OUT/SCALE.

    Raises:
        ValueError: there are no results to decide claims.
    """
    path = config.out / config.scale / ROWS
    stored = rows_by_recipe(path)
    if not stored:
        raise ValueError(f"out={config.out}: {path} has no results. Name the directory of results.")
    text = claims_table(config.scale, config.runs, stored, config.seeds, path, config.evaluator)
    text += f"\n`latent-tokens reproduce claims --scale {config.scale}{flags_of(config)}`\n"
    write_atomic({path.parent / "claims.md": text.encode()})
    return text


def flags_of(config: ReproduceConfig) -> str:
    """Return the flags that change a table, for the command under it."""
    seeds = "" if config.seeds is None else f" --seeds {config.seeds}"
    return seeds if config.evaluator is None else f"{seeds} --evaluator {config.evaluator}"


def of_model(listed: Sequence[Recipe], model: str) -> list[Recipe]:
    """Return the recipes of one model. Raise ValueError, with the closest name, if there is none."""
    of_it = [recipe for recipe in listed if recipe.model == model]
    if not of_it:
        hint = did_you_mean(model, dict.fromkeys(recipe.model for recipe in listed))
        raise ValueError(f"model={model}: is not one of the models that --status lists{hint}")
    return of_it


def say_row(row: Row) -> None:
    """Print one line on a new row."""
    say(f"{row['model']}, {row['order']}, n={row['latents']}: {row['metric']} {metric_of(row)}")


def write_all(
    requested: Mapping[str, list[Recipe]], scale: ScaleName, folder: Path, flags: str = ""
) -> tuple[list[str], list[str]]:
    """Write the table of each experiment that has rows for it. Return the tables, and what is wrong."""
    tables = []
    problems = []
    for name, its_recipes in requested.items():
        try:
            tables.append(write(its_recipes, name, scale, folder, flags))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return tables, problems


def write(
    requested: list[Recipe], experiment: str, scale: ScaleName, folder: Path, flags: str = ""
) -> str:
    """Write the table of an experiment from the results that exist, and its figure. Return the table.

    Both end with the command that makes them. An experiment that is a table in the paper has no
    figure.
    """
    rows = rows_by_recipe(folder / ROWS)
    shown = lines(requested, rows)
    check_together([row for line in shown for row in line.rows], folder / ROWS)
    command = f"latent-tokens reproduce {experiment} --scale {scale}{flags}"
    is_text = all(line.is_text for line in shown)
    table = text_markdown(shown, experiment) if is_text else markdown(shown, experiment)
    table += f"\n`{command}`\n"
    write_atomic({folder / f"{experiment}.md": table.encode()})
    if not experiment.startswith("table"):
        draw_figure = draw_text if is_text else draw_experiment
        draw_figure(shown, experiment, command, folder / experiment)
    return table


def print_what_is_left(works: list[Work], scale: ScaleName, results: Path) -> None:
    """Print the number of models and rows that are left, and how long they take."""
    num_models = sum(work.steps_left > 0 for work in works)
    num_steps = sum(work.steps_left for work in works)
    num_rows = sum(len(work.missing) for work in works)
    if num_rows:
        if not results.exists():
            say(f"{results} is missing. A clone of the repository has results/cpu/{ROWS}.")
        models = f"{num_models} of {len(works)} models to train ({num_steps:,} steps)"
        say(f"{models}, {num_rows} rows to measure: {TIME_OF_SCALE[scale]}.")
        say("Ctrl-C saves a checkpoint, and the same command resumes.")


def status(works: list[Work]) -> str:
    """Return a table with one line per model: its state, and its existing and missing rows."""
    table: list[tuple[str, ...]] = [("model", "state", "steps left", "rows", "rows to measure")]
    for work in works:
        counts = (len(work.recipes) - len(work.missing), len(work.missing))
        table.append((work.name, work.state, f"{work.steps_left:,}", *map(str, counts)))
    return as_markdown(table)
