"""latent-tokens likelihood."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from latent_tokens.checks import one_of, whole
from latent_tokens.commands.shared import model_of, task_of

DEFAULT_SEQUENCES, DEFAULT_ORDERS = 64, 4


@dataclass(frozen=True)
class Likelihood:
    """How likely a model of text makes a text, exactly, along orders in which it could be decoded: nats and perplexity a token."""

    run: Positional[str]
    """A run folder."""
    text: Path | None = None
    """A text file, in UTF-8."""
    data: Path | None = None
    """Or a folder made by `latent-tokens data`, whose test split is read."""
    num_sequences: int | None = None
    """Sequences of --data. Default: 64; a text is taken whole."""
    order: Literal["uniform", "left_to_right"] | None = None
    """uniform: random orders. Default: uniform, or left_to_right where the method is."""
    orders: int | None = None
    """How many random orders; the figures are means over them, with their standard error. Default: 4, and one from left to right."""
    latents: tuple[int | Literal["all"], ...] | None = None
    """Latent tokens to show, the next of the order, a line each: numbers or all. Default: the method's own."""
    seed: int = 0
    """Of the orders, which are the same for every number of latents."""
    json: bool = False
    """Print JSON lines."""


def run_likelihood(command: Likelihood) -> int:
    """latent-tokens likelihood: a line for each number of latents."""
    from latent_tokens.decoding import Decoding
    from latent_tokens.evaluation import default_order, shown_latents
    from latent_tokens.held_out import nats_along_orders
    from latent_tokens.methods import name_of
    from latent_tokens.pretrained import check_fits, find
    from latent_tokens.progress import counting
    from latent_tokens.tasks import Text

    for name in ("orders", "num_sequences"):
        if getattr(command, name) is not None:
            whole(name, getattr(command, name), 1)
    one_of("order", command.order, (None, "uniform", "left_to_right"))
    net, task = model_of(command.run), task_of(find(command.run))
    if not isinstance(task, Text):
        raise ValueError(f"{command.run}: a model of {task.name}; the likelihood of a text takes a model of text")
    check_fits(net, task)
    if "left_to_right" in (command.order, default_order(net.method, task)) and (command.orders or 1) > 1:
        raise ValueError(f"orders={command.orders}: from left to right there is one order; leave it out")
    examples = read_examples(command, task)
    for latents in command.latents or (None,):
        if latents != "all" and latents is not None:
            whole("latents", latents, 0)
        shown = shown_latents(net.method, Decoding(latents=latents))
        name = f"{name_of(net.method)} n={shown}"
        with counting(f"likelihood, {name}", None) as report:
            nats = nats_along_orders(
                net, examples, orders=command.orders or DEFAULT_ORDERS, order=command.order, latents=latents, seed=command.seed, report=report
            )
        row = summed_up(nats, examples)
        if command.json:
            print(json.dumps({"latents": shown, **row}), flush=True)
        else:
            print(f"{name}: {in_words(row)}", flush=True)
    return 0


def read_examples(command: Likelihood, task: Any) -> Any:
    """The sequences of the text that is named. Raises ValueError where there is none, or a data set is of other tokens."""
    from latent_tokens.documents import text_of
    from latent_tokens.evaluation import read_split
    from latent_tokens.tasks.base import evenly

    if (command.text is None) == (command.data is None):
        raise ValueError("likelihood: of which text? name one with --text FILE, or a data set's test split with --data FOLDER")
    if command.text is not None and command.num_sequences is not None:
        raise ValueError(f"num_sequences={command.num_sequences}: is for --data; a text is taken whole, leave it out")
    if command.data is not None:
        examples = read_split(task, command.data, "test")
        if not len(examples.tokens):
            raise ValueError(f"data={command.data}: has no test split; make a data set that has")
        return examples.take(evenly(len(examples.tokens), command.num_sequences or DEFAULT_SEQUENCES))
    if command.text is None or not command.text.is_file():
        raise ValueError(f"text={command.text}: no such file; name one with --text")
    text = text_of(command.text)
    if not text:
        raise ValueError(f"text={command.text}: is empty; name one with text in it")
    return task.sequences(text)


def summed_up(nats: Any, examples: Any) -> dict[str, Any]:
    """A row: nats a token, their standard error over orders and the perplexity with its 95 % interval over sequences, where there are several."""
    from latent_tokens.judging import perplexity

    tokens = examples.lengths.astype(int)
    each = nats.sum(1) / tokens.sum()
    error = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None
    value, interval = perplexity(nats.mean(0), tokens)
    about = {"nats": each.tolist(), "nats_per_token": float(each.mean()), "standard_error": error}
    return {**about, "perplexity": value, "ci95": interval, "sequences": len(tokens), "tokens": int(tokens.sum())}


def in_words(row: dict[str, Any]) -> str:
    """That row as a person reads it."""
    error = "" if row["standard_error"] is None else f" (standard error {row['standard_error']:.4f} over {len(row['nats'])} orders)"
    interval = "" if row["ci95"] is None else f" ({row['ci95'][0]:.2f} - {row['ci95'][1]:.2f} over sequences)"
    return f"{row['nats_per_token']:.4f} nats a token{error}, perplexity {row['perplexity']:.2f}{interval}, {row['tokens']:,} tokens"
