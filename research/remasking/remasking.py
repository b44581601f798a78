"""Accuracy over passes of remasking, against one token per step and the better of two samples.

python research/remasking/remasking.py                  # print table.md from the rows
python research/remasking/remasking.py --measure RUNS   # measure what rows.jsonl lacks

RUNS has the models, 6x6 boards: mdm-SEED and scdm-SEED.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

import latent_tokens as lt
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import append_result, read_results

HERE = Path(__file__).parent
SAMPLES, SEEDS = 200, (0, 1, 2)
RULES: dict[str, dict[str, Any]] = {
    "one token per step": {},
    "better of two": {},
    "below 0.05": {"remask_below": 0.05},
    "below 0.2": {"remask_below": 0.2},
    "below 0.5": {"remask_below": 0.5},
    "every second step": {"remask_every": 2},
}
ORDERS = ("top_prob", "entropy", "uniform")


def measure(runs: Path, path: Path = HERE / "rows.jsonl") -> None:
    """Append the rows that a file lacks."""
    torch.set_num_threads(1)
    done = [row["setting"] for row in read_results(path)] if path.exists() else []
    for seed, method, order, rule in product(SEEDS, ("mdm", "scdm"), ORDERS, RULES):
        setting = {"method": method, "order": order, "rule": rule, "seed": seed}
        if setting in done:
            continue
        model = lt.load(runs / f"{method}-{seed}")
        settings = {"latents": "all", "candidates": None if order == "uniform" else 4, **RULES[rule]}
        decoding = lt.Decoding(order=order, **settings)
        tries = [draw(model, decoding, seed + 10 * number) for number in range(1 + (rule == "better of two"))]
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
    """Return the table of all settings, with intervals over seeds."""
    lines = [("method", "order", "rule", "passes", "tokens", "valid %", "95% interval", "minus one token")]
    for method, order, rule in product(("mdm", "scdm"), ORDERS, RULES):
        found, plain = (
            [row_of(rows, method, order, each, seed) for seed in SEEDS]
            for each in (rule, "one token per step")
        )
        pairs = [(a, b) for a, b in zip(found, plain, strict=True) if a and b]
        if not pairs:
            continue
        valid = [a["valid"] for a, _ in pairs]
        gain = [a["valid"] - b["valid"] for a, b in pairs]
        cost = (
            f"{mean([a['passes'] for a, _ in pairs]):.1f}",
            f"{mean([a['processed'] for a, _ in pairs]):.0f}",
        )
        shown = "" if rule == "one token per step" else f"{mean(gain):+.1f}{bounds(gain)}"
        lines.append((method, order, rule, *cost, f"{mean(valid):.1f}", bounds(valid).strip(" ()"), shown))
    return as_markdown(lines)


def row_of(rows: list[Any], method: str, order: str, rule: str, seed: int) -> Any:
    """Return the row of a setting, or None."""
    setting = {"method": method, "order": order, "rule": rule, "seed": seed}
    return next((row for row in rows if row["setting"] == setting), None)


def mean(values: list[float]) -> float:
    """Return the mean over seeds."""
    return sum(values) / len(values)


def bounds(values: list[float]) -> str:
    """Return the 95% interval over seeds in words, empty if a seed is missing."""
    if len(values) < len(SEEDS):
        return ""
    half = half_interval(values)
    return f" ({mean(values) - half:.1f} to {mean(values) + half:.1f})"


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure(Path(sys.argv[-1]))
    else:
        print(table(read_results(HERE / "rows.jsonl")), end="")
