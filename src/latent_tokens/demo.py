"""The demo: train on 6x6 Sudoku and plot accuracy against n, by decoding order. Also the recipes of the
bundled models.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, cast

import torch

from latent_tokens.checkpoints.files import BUNDLED, network_fingerprint
from latent_tokens.checks import check_out
from latent_tokens.configs import ConfidenceName, DemoConfig, EvalConfig, SamplingConfig
from latent_tokens.core.decoding import DEFAULT_CANDIDATES
from latent_tokens.devices import fastest_device, resolve_precision
from latent_tokens.evaluation.evaluate import evaluate, evaluate_in_parallel
from latent_tokens.evaluation.report import draw_results
from latent_tokens.evaluation.rows import Row, append_result, read_results
from latent_tokens.hf.directory import from_pretrained, save_pretrained
from latent_tokens.hf.model_card import write_card
from latent_tokens.page.document import page_with
from latent_tokens.progress import progress
from latent_tokens.storage import Json, json_bytes, read_description, write_atomic
from latent_tokens.tasks import TASKS, Sudoku
from latent_tokens.trace.examples import chosen, compared, puzzles, solved
from latent_tokens.trace.record import DecodeRequest, LoadedModel, TraceRecord, trace
from latent_tokens.training.config import TrainConfig
from latent_tokens.training.loop import fit

Latents = tuple[int | Literal["all"], ...]


class Curve(NamedTuple):
    """A setting of the other models, and of an scdm over n."""

    order: str
    candidates: int
    latents: Latents
    confidence: ConfidenceName | None = None

    @property
    def order_of_rows(self) -> str:
        """The order as its rows name it."""
        return self.order if self.confidence is None else f"{self.order} {self.confidence}"


TASK = "sudoku-6"
LATENTS: Latents = (0, 1, 2, 4, 8, "all")
FEW: Latents = (0, 4, "all")
BOTH_ENDS: Latents = (0, "all")
CANDIDATES = 4  # of 36 cells, as the paper's 8 are of 81
GIVENS, PUZZLES = 14, 100  # of the puzzles from which the one to watch is chosen
WATCHED_SEED = 0  # of these puzzles and of their decodes
MOST_PROCESSES = 8  # that measure rows at the same time: each holds torch in memory
LEFT_TO_RIGHT = Curve("left_to_right", 1, LATENTS)
CURVES = (
    LEFT_TO_RIGHT,
    Curve("blockwise:6", CANDIDATES, FEW, "entropy"),  # row by row
    Curve("top_prob", CANDIDATES, BOTH_ENDS),
    Curve("uniform", 1, BOTH_ENDS),
)
OF_RELEASE: Latents = (0, 1, 2, 4, 8, 16, "all")
RELEASED = (
    Curve("left_to_right", 1, OF_RELEASE),
    Curve("top_prob", CANDIDATES, OF_RELEASE),
    Curve("uniform", 1, OF_RELEASE),
    Curve("top_prob", DEFAULT_CANDIDATES, OF_RELEASE),
    Curve("entropy", CANDIDATES, OF_RELEASE),
    Curve("blockwise:6", CANDIDATES, OF_RELEASE, "entropy"),
)
"""The settings of the rows of bundled models."""
REFERENCES = ("mdm", "sidm", "arm", "ar-mtp")
ROW_KEYS = (
    "method", "order", "latents", "candidates", "valid", "ci95", "num_samples", "relative_cost", "seconds",
)  # fmt: skip


def demo(config: DemoConfig) -> tuple[list[Row], list[Row]]:
    """Return the rows of the scdm and the rows of the reference models.

    Write summary.json, latents.png, latents.svg and trace.html. With `every_method`, train and
    measure the references too, and write the bundled models to OUT/bundled.

    Raise ValueError if the directory exists and is not empty.
    """
    # Train and measure the model.
    check_out(config.out)
    begun = time.perf_counter()
    run = fit(training(config))
    seconds = time.perf_counter() - begun
    rows = measure("scdm", run, CURVES, config, run / "results.jsonl")

    # Add the reference models.
    if config.every_method:
        ship([run, *(fit(training(config, method)) for method in REFERENCES)], config)
    references = reference_rows(config.out / "bundled" if config.every_method else BUNDLED)

    # Write the summary, the figure and the page.
    recipe = training(config)
    summary: dict[str, Json] = {
        "task": TASK,
        "steps": recipe.steps,
        "train_seconds": round(seconds, 1),
        "rows": [*brief(rows)],
        "references": [*brief(references)],
    }
    write_atomic({config.out / "summary.json": json_bytes(summary)})
    description = (
        f"{TASK}, {recipe.size} (0.8M parameters), "
        f"{recipe.steps:,} steps of {recipe.batch_size} boards"
    )
    draw_figure(rows, references, description, config.out / "latents.png")
    num_puzzles = PUZZLES if config.scale == "full" else 10
    model = LoadedModel(f"{TASK}-scdm", from_pretrained(run), TASKS[TASK])
    page = page_with(*watched(model, num_puzzles), [model])
    write_atomic({config.out / "trace.html": page.encode()})
    return rows, references


def brief(rows: list[Row]) -> list[dict[str, Json]]:
    """Return the entries of rows that the summary has."""
    entries = cast(list[dict[str, Json]], rows)
    return [{key: row[key] for key in ROW_KEYS if key in row} for row in entries]


def watched(model: LoadedModel, count: int) -> tuple[list[TraceRecord], str]:
    """Return the traces of one puzzle with no latent tokens and with all, and a caption.

    The puzzle is chosen from `count` generated ones, as the caption explains.
    """
    problems = puzzles(cast(Sudoku, model.task), count, GIVENS, WATCHED_SEED)
    numbers: Latents = (0, "all")
    settings = [SamplingConfig(n, CANDIDATES, seed=WATCHED_SEED) for n in numbers]
    count = len(problems)
    with progress(f"comparing n = 0 and n = all on {count} puzzles", 2 * count) as advance:
        without, with_all = (solved(model, problems, setting, advance) for setting in settings)
    gained = with_all & ~without
    if gained.any():
        counts = {
            "puzzles": count,
            "givens": GIVENS,
            "candidates": CANDIDATES,
            "seed": WATCHED_SEED,
        }
        caption = chosen("gained", counts | compared(without, with_all))
    else:
        caption = (
            f"First of {count} generated puzzles ({GIVENS} givens, k = {CANDIDATES}, top-prob decoding, "
            f"seed {WATCHED_SEED}). No puzzle is solved with all latent tokens and wrong with none. "
            f"Solved with all: {int(with_all.sum())}. Solved with none: {int(without.sum())}."
        )
    index = int(gained.argmax())
    problem = problems.take(slice(index, index + 1))
    return [trace(DecodeRequest(model, problem, setting)) for setting in settings], caption


def training(config: DemoConfig, method: str = "scdm") -> TrainConfig:
    """Return the recipe of one model of the demo."""
    recipe = TrainConfig(
        TASK,
        method,
        out=config.out / method,
        seed=config.seed,
        precision=config.precision,
        threads=config.threads,
    )
    if config.scale == "full":
        return recipe
    return replace(recipe, steps=20, num_train=2_000, num_validation=64)


def measure(
    method: str, folder: Path, settings: Sequence[Curve], config: DemoConfig, results: Path
) -> list[Row]:
    """Return the method's rows in each setting. Append each to `results` when it is measured.

    On a CPU each thread measures rows of its own.
    """
    device = fastest_device()
    evaluations = [
        EvalConfig(
            latents=setting.latents if method == "scdm" else None,
            candidates=(setting.candidates,),
            order=setting.order,
            confidence=setting.confidence,
            num_samples=1_000 if config.scale == "full" else 20,
            seed=config.seed,
            precision=resolve_precision(config.precision, device),
            threads=config.threads,
        )
        for setting in settings
    ]

    def keep(row: Row) -> None:
        append_result(results, row)

    num_processes = min(config.threads or torch.get_num_threads(), MOST_PROCESSES)
    if device.type == "cpu" and num_processes > 1 and config.scale == "full":
        return evaluate_in_parallel(
            from_pretrained(folder), TASK, evaluations, num_processes, on_row=keep
        )
    net = from_pretrained(folder).to(device)
    return [row for each in evaluations for row in evaluate(net, TASKS[TASK], each, on_row=keep)]


def ship(runs: list[Path], config: DemoConfig) -> None:
    """Write OUT/bundled: the weights of each run in bf16, and results.jsonl, measured on these weights."""
    bundled = config.out / "bundled"
    for run in runs:
        folder = bundled / f"{TASK}-{run.name}"
        net = from_pretrained(run).bfloat16().float()
        description = {
            **read_description(run, "config.json", "run"),
            "fingerprint": network_fingerprint(net),
        }
        save_pretrained(net, folder, dtype=torch.bfloat16, about=description)
        settings = (LEFT_TO_RIGHT,) if run.name in ("arm", "ar-mtp") else RELEASED
        write_card(
            folder,
            measure(run.name, folder, settings, config, bundled / "results.jsonl"),
            license="apache-2.0",
            name=folder.name,
        )


def reference_rows(bundled: Path) -> list[Row]:
    """Return the results of the reference models at the demo's k, and in uniform or left-to-right order.

    Speeds are left out, because they were measured on other hardware.
    """
    kept = [
        row
        for row in read_results(bundled / "results.jsonl")
        if row["task"] == TASK
        and row["method"] in REFERENCES
        and row["candidates"] in (1, CANDIDATES)
    ]
    for row in kept:
        row.pop("seconds", None)
        row.pop("samples_per_second", None)
    return kept


def draw_figure(rows: list[Row], references: list[Row], training: str, stem: Path) -> list[Path]:
    """Draw STEM.png and STEM.svg: scdm against n in each order, with mdm in the same ones."""
    drawn = [(curve.order_of_rows, curve.candidates) for curve in CURVES]
    curves = [
        [row for row in rows if (row["order"], row["candidates"]) == setting] for setting in drawn
    ]
    points = [
        row
        for row in references
        if row["method"] == "mdm" and (row["order"], row["candidates"]) in drawn
    ]
    shares = [[row["valid"] for row in curve] for curve in curves]
    first, by_rows = (f"{min(of):.0f} to {max(of):.0f}%" for of in shares[:2])
    title = f"One SCDM: {first} valid boards from left to right, {by_rows} row by row"
    samples = f"{rows[0]['num_samples']:,} samples per point, one training seed, 95% intervals"
    caption = f"{training}\nk = {CANDIDATES} in blocks (rows) and in top-prob order, {samples}"
    return draw_results(curves, points, title, caption, stem)


def draw_bundled_figure(stem: Path) -> list[Path]:
    """Draw the same figure from the bundled models' own results."""
    rows = [
        row
        for row in read_results(BUNDLED / "results.jsonl")
        if row["task"] == TASK and row["method"] == "scdm"
    ]
    recipe = read_description(BUNDLED / f"{TASK}-scdm", "config.json", "model")["training"]
    steps = f"{recipe['steps']:,} steps of {recipe['batch_size']} boards"
    description = f"bundled models, {TASK}, {recipe['size']} (0.8M parameters), {steps}"
    return draw_figure(rows, reference_rows(BUNDLED), description, stem)
