"""Measure the adapted models of docs/adapting.md: exact likelihood over the number of latent tokens.

    python scripts/adapting.py models/smollm2 data/english-32                             # the base, as it is
    python scripts/adapting.py models/smollm2 data/english-32 runs/smollm2-ar-latents     # a run
    python scripts/adapting.py --render     # write the table and the figure from the rows that are stored

A run is measured at its end, on 32 sequences and on 8 of them, and on these 8 at each validation whose
checkpoint it keeps. A method without a KV cache is measured at its end only: scdm on the 32, mdm on the 8.
The rows are in results/adapting/rows.jsonl. A row that is stored is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NotRequired, TypedDict, cast

import matplotlib.pyplot as plt
import torch
from page_tables import write_tables

from latent_tokens import METHODS, HuggingFaceDenoiser, Transformer, from_pretrained
from latent_tokens.checkpoints.files import tensors_sha256
from latent_tokens.checkpoints.hugging_face import read_model
from latent_tokens.core.attention import is_cacheable
from latent_tokens.core.method import Method, name_of
from latent_tokens.data.loading import load_data
from latent_tokens.evaluation.intervals import half_interval_of_ratio
from latent_tokens.evaluation.likelihood import nats_along_orders, num_bytes
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.palette import METHOD_COLORS, PAGE as PAGE_COLORS
from latent_tokens.progress import counting
from latent_tokens.storage import append_line, read_lines
from latent_tokens.storage.versions import source_commit
from latent_tokens.tasks import Examples, Text
from latent_tokens.tasks.base import evenly
from latent_tokens.tasks.text.task import with_first_given
from latent_tokens.training.checkpoint import read_state, saved_states, step_in_name

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "results" / "adapting" / "rows.jsonl"
PAGE = ROOT / "docs" / "adapting.md"
FIGURE = ROOT / "docs" / "adapting.png"
SEQUENCES, FEW = 32, 8  # measured at the end of training, and at each checkpoint
MDM = ("mdm", "mdm-left")
ORDERS = 1  # random orders per sequence of a method that has no order of its own

Count = int | Literal["all"]


class Row(TypedDict):
    """The likelihood of sequences of the test split with one number of latent tokens."""

    model: str
    method: str
    step: int
    latents: Count
    orders: int
    nats: list[float]  # of each sequence, the mean over orders
    tokens: list[int]  # of each sequence
    bytes: int
    seconds: float
    torch: str
    commit: str | None
    weights_sha256: NotRequired[str]  # of the trained weights, its first 12 digits
    validation: NotRequired[dict[str, float]]  # the loss after each number of steps, of a run of mdm


class Part(NamedTuple):
    """A network, and what is measured of it."""

    net: HuggingFaceDenoiser
    step: int
    sequences: int
    latents: tuple[Count, ...]


def parts_of(base: Path, run: Path | None) -> Iterator[Part]:
    """Yield the base as it is, or a run at its checkpoints and at its end."""
    if run is None:
        net = HuggingFaceDenoiser(read_model(base), None, "shifted").eval()
        net.method = METHODS["arm"]
        yield Part(net, 0, SEQUENCES, (0,))
        return
    net = open_run(run, base)
    training = json.loads((run / "config.json").read_text())["training"]
    last = training["steps"]
    if not is_cacheable(method_of(net).attention):
        if is_mdm(net):
            yield Part(net, last, FEW, ("all",))
        else:
            yield Part(net, last, SEQUENCES, (0, 8, "all"))
        return
    checkpoints = {step_in_name(path): path for path in saved_states(run)}
    for step in range(training["evaluate_every"], last, training["evaluate_every"]):
        if step in checkpoints:
            load_averaged(net, checkpoints[step])
            yield Part(net, step, FEW, (0, 8))
    net = open_run(run, base)
    yield Part(net, last, FEW, (0, 8))  # along the same random orders as at the checkpoints
    yield Part(net, last, SEQUENCES, (0, 8, 64, "all"))


def open_run(run: Path, base: Path) -> HuggingFaceDenoiser:
    """Return the network of a run, with the weights of the lowest validation loss."""
    return cast(HuggingFaceDenoiser, from_pretrained(run, base=base))


def method_of(net: HuggingFaceDenoiser) -> Method:
    """Return the method of a network. It must have one."""
    assert net.method is not None
    return net.method


def is_mdm(net: HuggingFaceDenoiser) -> bool:
    """Return whether a network is an MDM, with predictions in place or to the left."""
    return name_of(method_of(net)) in MDM


def load_averaged(net: HuggingFaceDenoiser, checkpoint: Path) -> None:
    """Load the EMA weights of a checkpoint."""
    _, tensors = read_state(checkpoint)
    averaged = {name: tensor for name, tensor in tensors["ema"].items() if name != "n_averaged"}
    net.load_state_dict({name.removeprefix("module."): tensor for name, tensor in averaged.items()})


def measure(base: Path, data: Path, run: Path | None) -> None:
    """Measure the base or a run. Each row is stored when it has been measured."""
    task, splits = load_data(data, ("test",))
    assert isinstance(task, Text)
    test = splits["test"]
    examples = test.take(evenly(len(test.tokens), SEQUENCES))
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
                row["validation"] = validation_of(run)
            append_line(ROWS, row)


def validation_of(run: Path) -> dict[str, float]:
    """Return the validation losses of a run by their steps."""
    metrics = read_lines(run / "metrics.jsonl")
    return {str(row["step"]): row["validation_loss"] for row in metrics if "validation_loss" in row}


def is_of(row: Row, model: str, sha256: str, latents: Count, sequences: int) -> bool:
    """Return whether a row is of these weights, this number of latent tokens, and as many sequences."""
    found = (row["model"], row["weights_sha256"], row["latents"], len(row["nats"]))
    return found == (model, sha256, latents, sequences)


def trained(net: HuggingFaceDenoiser) -> dict[str, torch.Tensor]:
    """Return the weights that training changes, or all if it changes none."""
    weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    return weights if net.adapter is not None else dict(net.named_parameters())


def measured(part: Part, task: Text, examples: Examples, latents: Count, model: str) -> Row:
    """Return the row of a network with one number of latent tokens."""
    start = time.perf_counter()
    with counting(f"{model}, step {part.step}, n = {latents}", None) as report:
        net = cast(Transformer, part.net)
        nats = nats_along_orders(net, examples, orders=ORDERS, latents=latents, report=report)
    return {
        "model": model,
        "method": name_of(method_of(part.net)),
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


def nats_per_token(row: Row) -> tuple[float, float]:
    """Return the nats per token, and half of its 95% interval over sequences."""
    return sum(row["nats"]) / sum(row["tokens"]), half_interval_of_ratio(row["nats"], row["tokens"])


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
    mean, half = nats_per_token(row)
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


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw nats over the steps of training at n = 0 and 8, and the difference to n = 0 at the end over n."""
    sheet, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for model in dict.fromkeys(row["model"] for row in rows if row["method"] not in MDM):
        of_model = [row for row in rows if row["model"] == model]
        color = METHOD_COLORS[of_model[0]["method"]]
        if of_model[0]["step"] == 0:  # a base as it is
            left.axhline(few_nats(of_model[0]), color=color, linestyle=":", label=f"{model}, as it is")
            continue
        for latents, line in ((0, "-"), (8, "--")):
            curve = [row for row in of_model if row["latents"] == latents and len(row["nats"]) == FEW]
            if not curve:  # measured at its end only
                continue
            steps = [row["step"] for row in curve]
            label = f"{model}, n = {latents}"
            left.plot(steps, list(map(few_nats, curve)), line, marker="o", ms=3, color=color, label=label)
        first, *others = [row for row in of_model if len(row["nats"]) == SEQUENCES]
        apart, halves = zip(*(difference(row, first) for row in others), strict=True)
        names = [str(row["latents"]) for row in others]
        right.errorbar(names, apart, halves, marker="o", ms=4, capsize=3, color=color, label=model)
    right.axhline(0, color=PAGE_COLORS["edge"], linewidth=1)
    left.set(xlabel="training steps", ylabel=f"nats per token, {FEW} sequences")
    right.set(xlabel="latent tokens n", ylabel=f"nats per token above n = 0, {SEQUENCES} sequences")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    sheet.savefig(path, dpi=150)


def few_nats(row: Row) -> float:
    """Return the nats per token of the sequences that are measured at every checkpoint."""
    kept = evenly(len(row["nats"]), FEW)
    return sum(row["nats"][i] for i in kept) / sum(row["tokens"][i] for i in kept)


def main() -> None:
    """Measure a base or a run, or write the table and the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("base", "data", "run"):
        parser.add_argument(name, nargs="?", type=Path)
    parser.add_argument("--render", action="store_true", help="Measure nothing.")
    options = parser.parse_args()
    if not options.render:
        if options.data is None:
            parser.error("BASE and DATA are missing. Name both, or use --render.")
        ROWS.parent.mkdir(exist_ok=True)
        measure(options.base, options.data, options.run)
    rows = cast(list[Row], read_lines(ROWS))
    write_tables(PAGE, {"adapting": table(rows), "mdm": table_of_mdm(rows)})
    draw(rows, FIGURE)


if __name__ == "__main__":
    main()
