"""Accuracy over passes of remasking, against one token per step and the better of two samples.

python research/remasking/remasking.py                  # print table.md from the rows
python research/remasking/remasking.py --measure RUNS   # measure what rows.jsonl lacks

RUNS has the models, 6x6 boards: mdm-SEED and scdm-SEED.
"""

import sys
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import latent_tokens as lt
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import append_result, read_results

HERE = Path(__file__).parent
SAMPLES, SEEDS = 100, (0, 1, 2)
PLAIN, BEST = "one token per step", "better of two"
RULES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    BEST: {},
    "below 0.2": {"remask_below": 0.2},
    "every second step": {"remask_every": 2},
}
ORDERS = ("top_prob", "entropy")


def measure(runs: Path, path: Path = HERE / "rows.jsonl") -> None:
    """Append the rows that a file lacks."""
    torch.set_num_threads(1)
    done = [row["setting"] for row in read_results(path)] if path.exists() else []
    for order, method, rule, seed in product(ORDERS, ("mdm", "scdm"), RULES, SEEDS):
        setting = {"method": method, "order": order, "rule": rule, "seed": seed}
        if setting in done:
            continue
        model = lt.load(runs / f"{method}-{seed}")
        settings = {"latents": "all", "candidates": 4, **RULES[rule]}
        decoding = lt.Decoding(order=order, **settings)
        tries = [draw(model, decoding, seed + 10 * number) for number in range(1 + (rule == BEST))]
        nats = torch.stack([sample_nats for _, sample_nats in tries])  # (tries, B)
        made = torch.stack([sample.tokens for sample, _ in tries])
        tokens = made[nats.argmin(0), torch.arange(SAMPLES)]
        row: Any = {
            "setting": setting,
            "valid": 100 * float(model.task.score(tokens.numpy(), None)["valid"].mean()),
            "passes": sum(sample.passes.double().mean().item() for sample, _ in tries),
            "processed": sum(sample.tokens_processed.double().mean().item() for sample, _ in tries),
        }
        append_result(path, row)
        print(row, flush=True)


def draw(model: lt.Model, decoding: lt.Decoding, seed: int) -> tuple[lt.Generated, torch.Tensor]:
    """Return samples, and the nats of each: those of its tokens when they were decoded."""
    known = torch.zeros(SAMPLES, model.task.length, dtype=torch.bool)
    nats = torch.zeros(SAMPLES, dtype=torch.float64)

    def add(step: lt.Step) -> None:
        slot = (step.layout.positions == step.chosen[:, :1]).int().argmax(1)
        row = torch.arange(len(slot))
        nats[step.rows] -= step.probabilities[row, slot, step.tokens[:, 0]].double().log()

    needs_nats = decoding.remask is None
    arguments = (model.net, model.method, known.long(), known, decoding, seed)
    made = lt.generate(*arguments, on_step=add if needs_nats else None)
    return made, nats


def table(rows: list[Any]) -> str:
    """Return the table of the settings that every seed has, with intervals over seeds."""
    heads = ("method", "order", "rule", "passes", "tokens", "valid %", "95% interval")
    lines = [(*heads, f"minus {PLAIN}", f"minus {BEST}")]
    for order, method, rule in product(ORDERS, ("mdm", "scdm"), RULES):
        found, plain, best = (
            [row for seed in SEEDS if (row := row_of(rows, method, order, each, seed))]
            for each in (rule, PLAIN, BEST)
        )
        if min(map(len, (found, plain, best))) < len(SEEDS):
            continue
        valid = [row["valid"] for row in found]
        passes, tokens = (fmean([row[name] for row in found]) for name in ("passes", "processed"))
        gains = []
        for others, name in ((plain, PLAIN), (best, BEST)):
            differences = [row["valid"] - other["valid"] for row, other in zip(found, others, strict=True)]
            is_shown = rule not in (PLAIN, name)
            gains.append(f"{fmean(differences):+.1f} ({bounds(differences)})" if is_shown else "")
        cost = (f"{passes:.1f}", f"{tokens:.0f}")
        lines.append((method, order, rule, *cost, f"{fmean(valid):.1f}", bounds(valid), *gains))
    return as_markdown(lines)


def row_of(rows: list[Any], method: str, order: str, rule: str, seed: int) -> Any:
    """Return the row of a setting, or None."""
    setting = {"method": method, "order": order, "rule": rule, "seed": seed}
    return next((row for row in rows if row["setting"] == setting), None)


def bounds(values: list[float]) -> str:
    """Return the 95% interval of shares or differences over seeds, at most 100."""
    half = half_interval(values)
    return f"{fmean(values) - half:.1f} to {min(fmean(values) + half, 100):.1f}"


def main() -> None:
    """Print the table, or measure."""
    if "--measure" in sys.argv:
        measure(Path(sys.argv[-1]))
    else:
        print(table(read_results(HERE / "rows.jsonl")), end="")


if __name__ == "__main__":
    main()
