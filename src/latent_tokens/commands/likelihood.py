"""latent-tokens likelihood."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latent_tokens.commands.shared import ManyLatents, OwnMethod, RunName, print_table
from latent_tokens.configs import EvalConfig, PolicyName

if TYPE_CHECKING:
    from latent_tokens.tables import Sheet


@dataclass(frozen=True, kw_only=True)
class Likelihood(OwnMethod):
    """Compute the exact log-likelihood of a text, averaged over decoding orders.

    It is printed as nats per token, perplexity and bits per byte.

    Examples:
        latent-tokens likelihood runs/text --text book.txt --latents 0 16
        latent-tokens likelihood runs/text --data data/text --num-sequences 16
    """

    run: RunName
    """Text model. A run directory, a model directory, or a name on the Hugging Face Hub."""
    text: Path | None = None
    """UTF-8 text file to measure. Give either --text or --data."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`, whose test split is measured."""
    num_sequences: int | None = None
    """Number of sequences, evenly spaced. Default: 64 of --data, all of --text."""
    order: str | None = None
    """Decoding order. uniform: random orders. left_to_right: one order. blockwise:N: blocks of N
    positions from left to right, random within one. Default: uniform, left_to_right for arm and
    ar-mtp, blockwise:N for block-mdm-N."""
    orders: int = 4
    """Number of random orders to average over."""
    latents: ManyLatents = None
    """Number of latent tokens (n) in the input, one line each. Numbers or all. There is one
    candidate, so n = 0 leaves no other masked token. Default: the method's own, 0 for scdm and
    esolm."""
    latent_policy: PolicyName | None = None
    """Which masked tokens are latent tokens, as for evaluate. relevant needs --data. Default:
    nearest."""
    seed: int = 0
    """Random seed of the orders, which are the same for every number of latent tokens, and of the
    latent policies random and relevant."""
    off_distribution: bool = False
    """Whether to allow any n for a method whose n is fixed in training, such as mdm. The results
    are labeled off-distribution."""
    json: bool = False
    """Print JSON lines."""


def run_likelihood(command: Likelihood) -> int:
    """Run `latent-tokens likelihood`. Print a table with one line per number of latent tokens."""
    from latent_tokens.checkpoints.files import find
    from latent_tokens.checkpoints.learned import learned_text
    from latent_tokens.data.corpus import file_text
    from latent_tokens.devices import fastest_device
    from latent_tokens.evaluation.likelihood import likelihoods, sequences_of
    from latent_tokens.hf.directory import open_models

    folder = find(command.run)
    (net,) = open_models(folder, method=command.method, base=command.base)
    net = net.to(fastest_device())
    task = learned_text(folder)
    text = None if command.text is None else file_text(command.text)
    source = f"text={command.text}" if text is not None else f"data={command.data}"
    examples = sequences_of(net, task, text, command.data, command.num_sequences, source)
    names = ("latents", "order", "latent_policy", "data", "seed", "off_distribution")
    config = EvalConfig(**{name: getattr(command, name) for name in names})

    def on_row(row: dict[str, Any]) -> None:
        if command.json:
            print(json.dumps(row), flush=True)

    rows = likelihoods(net, task, examples, config, orders=command.orders, on_row=on_row)
    if not command.json:
        print_table(likelihood_table(rows))
    return 0


def likelihood_table(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return the table of likelihoods. A column is left out if no row has its value."""
    from latent_tokens.evaluation.rows import bounds_of, labeled
    from latent_tokens.tables import Sheet

    def spread(row: Mapping[str, Any]) -> str:
        error = row["standard_error"]
        return "" if error is None else f"{error:.4f} ({len(row['nats'])} orders)"

    columns = {
        "method": [row["method"] for row in rows],
        "n": [labeled(row["latents"], "off_distribution" in row) for row in rows],
        "policy": [row.get("latent_policy", "") for row in rows],
        "nats per token": [f"{row['nats_per_token']:.4f}" for row in rows],
        "standard error": [spread(row) for row in rows],
        "perplexity": [f"{row['perplexity']:.2f}" for row in rows],
        "95% interval": [bounds_of(row["ci95"], 2) for row in rows],
        "bits per byte": [f"{row['bits_per_byte']:.3f}" for row in rows],
        "tokens": [f"{row['tokens']:,}" for row in rows],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    optional = ("tokens", "standard error", "bits per byte")
    return Sheet(columns, optional=optional, texts=("method", "policy"))
