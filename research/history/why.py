"""Does the dial die, or was it never born? Losses and attention of one seed of each history, while it trains.

python research/history/why.py                      # print the table
python research/history/why.py --measure-missing    # of the checkpoints that history.py --measure boards left

At ten points of training, on the same masked boards of the validation split: the loss of the next token
without other masked tokens in the input (n = 0) and with all of them, and the share of attention that masked
tokens give to other masked tokens, by layer.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import tyro
from torch import Tensor

import latent_tokens as lt
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.order import any_order, draw_uniform
from latent_tokens.data.loading import as_tensors, load_data
from latent_tokens.evaluation.report import as_markdown, save_sheet
from latent_tokens.evaluation.rows import Row, append_result, read_results
from latent_tokens.palette import METHOD_COLORS, PAGE
from latent_tokens.training.checkpoint import read_state, saved_states, saved_step, step_in_name

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from histories import SETTINGS, History, data_of, histories  # noqa: E402

PATH = HERE / "why.jsonl"
BOARDS = 512
DASHES = {"scdm": "-", "mdm": "--", "sidm": ":"}


def inputs_of(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return validation examples (B, L), an order of each, and how much is clean, the same each time."""
    _, splits = load_data(data_of(SETTINGS[name]), ("validation",))
    tokens, known, lengths = as_tensors(splits["validation"].take(slice(BOARDS)))
    generator = torch.Generator().manual_seed(0)
    order = any_order(known, draw_uniform(generator, tokens.device, *known.shape))
    drawn = draw_uniform(generator, tokens.device, len(tokens))
    num_known = known.sum(1)
    return tokens.long(), order, num_known + (drawn * (lengths - num_known)).long()


def attention_shares(net: lt.Transformer, method: lt.Method, tokens: Tensor, layout: Layout) -> list[float]:
    """Return for each layer the share of attention that masked slots give to other masked slots."""
    ids = method.input_ids(tokens, layout, net.mask_id)
    mask = dense_mask(method.attention, layout)[:, None]
    masked = layout.shown & ~layout.clean  # (B, S)
    others = masked[:, None] & ~torch.eye(masked.shape[1], dtype=torch.bool)  # (B, S, S)
    x = net.embed(ids, layout.positions)
    shares = []
    for block in net.blocks:
        q, k, _ = block.split_heads(block.project(x), 3)  # learned positions: nothing is rotated
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
        share = (scores.softmax(-1) * others[:, None]).sum(-1)  # (B, H, S)
        shares.append(float(share.transpose(1, 2)[masked].mean()))
        x = block(x, None, mask)
    return shares


@torch.no_grad()
def measured(history: History, inputs: tuple[Tensor, Tensor, Tensor]) -> Iterator[Row]:
    """Yield the measurement of each checkpoint of a model, by its EMA weights."""
    tokens, order, num_clean = inputs
    one = torch.ones_like(num_clean)
    rest = order.shape[1] - num_clean - one
    target = tokens.gather(1, order.gather(1, num_clean[:, None]))[:, 0]
    net = lt.load(history.folder).net
    for path in reversed(saved_states(history.folder)):
        ema = read_state(path)[1]["ema"]
        weights = {name.removeprefix("module."): ema[name] for name in ema if name != "n_averaged"}
        net.load_state_dict(weights)
        row: dict[str, Any] = {"setting": history._asdict(), "step": step_in_name(path)}
        for name, latents in (("loss_0", 0 * one), ("loss_all", rest)):
            layout = next_layout(order, num_clean, one, latents)
            last = layout.slots == layout.num_shown[:, None] - 1
            logits = net.method.logits_at(last, net, tokens, layout)
            row[name] = float(torch.nn.functional.cross_entropy(logits, target))
        yield {**row, "attention": attention_shares(net, net.method, tokens, layout)}


def label(setting: dict[str, Any]) -> str:
    """Return the history of a row in words."""
    first = f", {setting['share']:.0%} {setting['first']} first" if setting["first"] else ""
    return f"{setting['method']}{first}"


def curves_of(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the rows of each history, by step."""
    curves: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        curves.setdefault(label(row["setting"]), []).append(row)
    return curves


def table(rows: list[Row]) -> str:
    """Return losses and attention at the end of training, one line per history."""
    lines = [
        ("history", "loss at n = 0", "loss at n = all", "difference", "attention to masked, by layer, %")
    ]
    for name, curve in curves_of(rows).items():
        last = curve[-1]
        losses = (last["loss_0"], last["loss_all"], last["loss_0"] - last["loss_all"])
        shares = " ".join(f"{100 * share:.0f}" for share in last["attention"])
        lines.append((name, *(f"{loss:.3f}" for loss in losses), shares))
    return as_markdown(lines)


def draw(rows: list[Row]) -> None:
    """Draw what latent tokens are worth, and the attention between masked tokens, over the steps."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(10, 4.2), layout="constrained")
    worth, attention = sheet.subplots(1, 2)
    ends = []
    for name, curve in curves_of(rows).items():
        setting = curve[0]["setting"]
        color = METHOD_COLORS[setting["first"] or setting["method"]]
        style = {"color": color, "linestyle": DASHES[setting["method"]], "label": name}
        steps = [row["step"] for row in curve]
        saved = [row["loss_0"] - row["loss_all"] for row in curve]
        worth.plot(steps, saved, **style)
        before = f"after {setting['first'].upper()}" if setting["first"] else "from scratch"
        ends.append(f"{saved[-1]:.2f} nats {before}")
        means = [100 * sum(row["attention"]) / len(row["attention"]) for row in curve]
        attention.plot(steps, means, **style)
    worth.set(xlabel="training step", ylabel="loss at n = 0 minus at n = all (nats)")
    worth.axhline(0, color=PAGE["edge"], linewidth=0.6)
    worth.set_yscale("symlog", linthresh=0.05)
    attention.set(xlabel="training step", ylabel="attention to other masked tokens (%)", ylim=(0, None))
    attention.legend(fontsize=8, frameon=False)
    caption = (
        f"6x6 boards, EMA weights, {BOARDS} validation boards, mean over layers and heads. "
        "One training seed, no intervals."
    )
    save_sheet(sheet, f"All latent tokens save an SCDM {', '.join(ends)}", caption, HERE / "why", dark=True)


def main(measure_missing: bool = False, draw_figure: bool = False) -> None:
    """Print the table.

    Args:
        measure_missing: measure the checkpoints first.
        draw_figure: draw the figure.
    """
    if measure_missing:
        rows = read_results(PATH)
        done = [row["setting"] for row in rows]
        inputs = inputs_of("boards")
        for history in histories("boards"):
            is_trained = saved_step(history.folder) == SETTINGS[history.name].steps
            if (history.seed, history.runs) == (0, 1) and is_trained and history._asdict() not in done:
                for row in measured(history, inputs):
                    append_result(PATH, row)
    if draw_figure:
        draw(read_results(PATH))
    print(table(read_results(PATH)), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
