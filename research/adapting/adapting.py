"""Exact likelihood of the adapted models over the number of latent tokens.

python research/adapting/adapting.py                                            # print table.md from the rows
python research/adapting/adapting.py --base models/smollm2 --data DATA          # measure the base, as it is
python research/adapting/adapting.py --base models/smollm2 --data DATA --run RUN    # measure a run

A run is measured at its end, on 32 sequences and on 8 of them, and on these 8 at each validation whose
checkpoint it keeps. A method without a KV cache is measured at its end only: scdm on the 32, mdm on the 8. A
stored row is not measured again.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import tyro

from latent_tokens import METHODS, HuggingFaceDenoiser, from_pretrained
from latent_tokens.checkpoints.files import tensors_sha256
from latent_tokens.core.attention import is_cacheable
from latent_tokens.core.method import name_of
from latent_tokens.data.loading import load_data
from latent_tokens.evaluation.intervals import half_interval_of_ratio
from latent_tokens.evaluation.likelihood import nats_along_orders, num_bytes
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.hf.reading import read_model
from latent_tokens.progress import counting
from latent_tokens.storage import append_line, read_lines, source_commit
from latent_tokens.tasks import Examples, Text
from latent_tokens.tasks.base import evenly
from latent_tokens.tasks.text.task import with_first_given
from latent_tokens.training.checkpoint import read_state, saved_states, step_in_name

ROWS = Path(__file__).with_name("rows.jsonl")
SEQUENCES, FEW = 32, 8  # measured at the end of training, and at each checkpoint
MDM = ("mdm", "mdm-left")
AFTER = "-after-mdm"  # ends the name of a run with --first mdm:300
ORDERS = 1  # random orders per sequence of a method that has no order of its own

Row = dict[str, Any]  # the likelihood of sequences with one number of latent tokens


class Part(NamedTuple):
    """A network, and what is measured of it."""

    net: HuggingFaceDenoiser
    step: int
    sequences: int
    latents: tuple[int | str, ...]


def parts_of(base: Path, run: Path | None) -> Iterator[Part]:
    """Yield the base as it is, or a run at its checkpoints and at its end."""
    if run is None:
        net = HuggingFaceDenoiser(read_model(base), None, "shifted").eval()
        net.method = METHODS["arm"]
        yield Part(net, 0, SEQUENCES, (0,))
        return
    net = from_pretrained(run, base=base)
    training = json.loads((run / "config.json").read_text())["training"]
    last = training["steps"]
    if not is_cacheable(net.method.attention, net.max_length):
        yield Part(net, last, *((FEW, ("all",)) if is_mdm(net) else (SEQUENCES, (0, 8, "all"))))
        return
    checkpoints = {step_in_name(path): path for path in saved_states(run)}
    for step in range(training["evaluate_every"], last, training["evaluate_every"]):
        if step in checkpoints:
            averaged = read_state(checkpoints[step])[1]["ema"]
            names = (name for name in averaged if name != "n_averaged")
            net.load_state_dict({name.removeprefix("module."): averaged[name] for name in names})
            yield Part(net, step, FEW, (0, 8))
    net = from_pretrained(run, base=base)
    yield Part(net, last, FEW, (0, 8))  # along the same random orders as at the checkpoints
    yield Part(net, last, SEQUENCES, (0, 8, 64, "all"))


def is_mdm(net: HuggingFaceDenoiser) -> bool:
    """Return whether a network is an MDM, with predictions in place or to the left."""
    return name_of(net.method) in MDM


def measure(base: Path, data: Path, run: Path | None) -> None:
    """Measure the base or a run. Each row is stored when it has been measured."""
    task, splits = load_data(data, ("test",))
    examples = splits["test"].take(evenly(len(splits["test"].tokens), SEQUENCES))
    model = base.name if run is None else run.name
    for part in parts_of(base, run):
        chosen = examples.take(evenly(SEQUENCES, part.sequences))
        if is_mdm(part.net):  # to the left, the first token is given: in place it is too, to compare them
            chosen = with_first_given(chosen)
        sha256 = tensors_sha256(trained(part.net))[:12]
        for latents in part.latents:
            if any(is_of(row, model, sha256, latents, part.sequences) for row in read_lines(ROWS)):
                continue
            row = measured(part, task, chosen, latents, model)
            row["weights_sha256"] = sha256
            if run is not None and is_mdm(part.net):
                metrics = [each for each in read_lines(run / "metrics.jsonl") if "validation_loss" in each]
                row["validation"] = {str(each["step"]): each["validation_loss"] for each in metrics}
            append_line(ROWS, row)


def is_of(row: Row, model: str, sha256: str, latents: int | str, sequences: int) -> bool:
    """Return whether a row is of these weights, this number of latent tokens, and as many sequences."""
    found = (row["model"], row["weights_sha256"], row["latents"], len(row["nats"]))
    return found == (model, sha256, latents, sequences)


def trained(net: HuggingFaceDenoiser) -> dict[str, torch.Tensor]:
    """Return the weights that training changes, or all if it changes none."""
    weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    return weights if net.adapter is not None else dict(net.named_parameters())


def measured(part: Part, task: Text, examples: Examples, latents: int | str, model: str) -> Row:
    """Return the row of a network with one number of latent tokens."""
    start = time.perf_counter()
    with counting(f"{model}, step {part.step}, n = {latents}", None) as report:
        nats = nats_along_orders(part.net, examples, orders=ORDERS, latents=latents, report=report)
    return {
        "model": model,
        "method": name_of(part.net.method),
        "step": part.step,
        "latents": latents,
        "orders": len(nats),
        "nats": nats.mean(0).round(4).tolist(),
        "tokens": (examples.lengths - examples.known.sum(1)).tolist(),
        "bytes": num_bytes(task, examples),
        "seconds": round(time.perf_counter() - start, 1),
        "torch": torch.__version__.split("+")[0],
        "commit": source_commit(),
    }


def difference(row: Row, first: Row) -> tuple[float, float]:
    """Return the nats per token above those of another row, and half of the interval of this difference."""
    apart = [now - before for now, before in zip(row["nats"], first["nats"], strict=True)]
    return sum(apart) / sum(row["tokens"]), half_interval_of_ratio(apart, row["tokens"])


def table(rows: Sequence[Row]) -> str:
    """Return the table of the models at their end."""
    lines = [["model", "method", "steps", "n", "nats per token", "difference to n = 0", "bits per byte"]]
    for row in rows:
        if len(row["nats"]) < SEQUENCES:
            continue
        of_n0 = (row["model"], row["weights_sha256"], 0, SEQUENCES)
        first = next((other for other in rows if is_of(other, *of_n0)), row)
        bits = sum(row["nats"]) / math.log(2) / row["bytes"]
        cells = [row["model"], row["method"], f"{row['step']:,}", str(row["latents"])]
        lines.append([*cells, *nats_and_difference(row, first), f"{bits:.3f}"])
    return as_markdown(lines)


def nats_and_difference(row: Row, first: Row) -> tuple[str, str]:
    """Return two cells: the nats per token of a row, and the difference to another row, empty for itself."""
    mean = sum(row["nats"]) / sum(row["tokens"])
    half = half_interval_of_ratio(row["nats"], row["tokens"])
    apart, of_apart = difference(row, first)
    return f"{mean:.3f} ± {half:.3f}", "" if row is first else f"{apart:+.3f} ± {of_apart:.3f}"


def table_of_mdm(rows: Sequence[Row]) -> str:
    """Return the table of the runs of mdm, each compared with the first."""
    of_mdm = [row for row in rows if row["method"] in MDM]
    if not of_mdm:
        return ""
    first = of_mdm[0]
    after = [f"loss, {step} steps" for step in first["validation"]]
    lines = [["model", "method", *after, "nats per token", f"difference to {first['model']}"]]
    for row in of_mdm:
        losses = (f"{loss:.3f}" for loss in row["validation"].values())
        lines.append([row["model"], row["method"], *losses, *nats_and_difference(row, first)])
    return as_markdown(lines)


def table_of_first(rows: Sequence[Row]) -> str:
    """Return the table of runs with --first: what it adds to the nats, and to the gain of n over n = 0."""
    whole = {(row["model"], row["latents"]): row for row in rows if len(row["nats"]) == SEQUENCES}
    lines = [["model", "n", "nats above those without --first", "change of the difference to n = 0"]]
    for (model, n), row in whole.items():
        if not model.endswith(AFTER):
            continue
        same, of_n0 = whole[model.removesuffix(AFTER), n], whole[model.removesuffix(AFTER), 0]
        gained = [after - before for after, before in zip(same["nats"], of_n0["nats"], strict=True)]
        expected = [nats + gain for nats, gain in zip(whole[model, 0]["nats"], gained, strict=True)]
        above, change = difference(row, same), difference(row, {"nats": expected})
        cells = (f"{mean:+.3f} ± {half:.3f}" for mean, half in (above, change))
        lines.append([model, str(n), *cells] if n != 0 else [model, "0", next(cells), ""])
    return as_markdown(lines) if len(lines) > 1 else ""


def main(base: Path | None = None, data: Path | None = None, run: Path | None = None) -> None:
    """Print the tables.

    Args:
        base: a language model, to measure it or a run that adapts it first.
        data: data set of its tokens.
        run: the run.
    """
    if base is not None and data is not None:
        measure(base, data, run)
    rows = read_lines(ROWS)
    print("\n".join(filter(None, (table(rows), table_of_mdm(rows), table_of_first(rows)))), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
