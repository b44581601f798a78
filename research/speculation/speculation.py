"""Passes, tokens and time of decoding with drafts.

python research/speculation/speculation.py                  # print table.md from the rows
python research/speculation/speculation.py --measure RUNS   # measure what rows.jsonl lacks

RUNS has the models: boards-SEED (esolm of 6x6 boards) and text-SEED (esolm of text, 128 tokens).
"""

import time
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import tyro

import latent_tokens as lt
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import append_result, read_results

HERE = Path(__file__).parent
SAMPLES = {"boards": 200, "text": 40}
LATENTS, DRAFTS, SEEDS = (0, 4), (0, 1, 2, 4, 8), (0, 1, 2)


def measure_missing(runs: Path, path: Path = HERE / "rows.jsonl") -> None:
    """Append the rows that a file lacks."""
    torch.set_num_threads(1)
    done = [row["setting"] for row in read_results(path)] if path.exists() else []
    for task, seed, latents, drafts in product(SAMPLES, SEEDS, LATENTS, DRAFTS):
        setting = {"task": task, "latents": latents, "drafts": drafts, "seed": seed}
        if setting in done or not (runs / f"{task}-{seed}").exists():
            continue
        model = lt.load(runs / f"{task}-{seed}")
        known = torch.zeros(SAMPLES[task], model.task.length, dtype=torch.bool)
        decoding = lt.Decoding(order="left_to_right", latents=latents, drafts=drafts)
        start = time.process_time()
        made = lt.generate(model.net, model.method, known.long(), known, decoding, seed)
        row: Any = {
            "setting": setting,
            "passes": made.passes.double().mean().item(),
            "processed": made.tokens_processed.double().mean().item(),
            "cpu_seconds": round(time.process_time() - start, 3),
        }
        if task == "boards":
            row["valid"] = 100 * float(model.task.score(made.tokens.numpy(), None)["valid"].mean())
        append_result(path, row)
        print(row, flush=True)


def table(rows: list[Any]) -> str:
    """Return the table of all settings, relative to no drafts."""
    lines = [("task", "n", "drafts", "passes", "fewer passes", "tokens", "CPU time", "valid %")]
    for task, latents, drafts in product(SAMPLES, LATENTS, DRAFTS):
        pairs = []
        for seed in SEEDS:
            of_seed = {
                row["setting"]["drafts"]: row
                for row in rows
                if (row["setting"]["task"], row["setting"]["latents"]) == (task, latents)
                and row["setting"]["seed"] == seed
            }
            if drafts in of_seed:
                pairs.append((of_seed[0], of_seed[drafts]))
        if not pairs:
            continue
        fewer = [plain["passes"] / drafted["passes"] for plain, drafted in pairs]
        tokens = [drafted["processed"] / plain["processed"] for plain, drafted in pairs]
        seconds = [drafted["cpu_seconds"] / plain["cpu_seconds"] for plain, drafted in pairs]
        valid = [drafted["valid"] for _, drafted in pairs if "valid" in drafted]
        passes = f"{fmean([drafted['passes'] for _, drafted in pairs]):.1f}"
        ratios = [f"{fmean(fewer):.2f}x{bounds(fewer)}", f"{fmean(tokens):.2f}x", f"{fmean(seconds):.2f}x"]
        lines.append(
            (task, str(latents), str(drafts), passes, *ratios, f"{fmean(valid):.1f}" if valid else "")
        )
    return as_markdown(lines)


def bounds(values: list[float]) -> str:
    """Return the 95% interval over seeds in words, empty if there is none."""
    if len(values) < len(SEEDS) or len(set(values)) == 1:
        return ""
    half = half_interval(values)
    return f" ({fmean(values) - half:.2f}-{fmean(values) + half:.2f})"


def main(measure: Path | None = None) -> None:
    """Print the table.

    Args:
        measure: directory of the models, to measure what rows.jsonl lacks first.
    """
    if measure is not None:
        measure_missing(measure)
    print(table(read_results(HERE / "rows.jsonl")), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
