"""The evaluation protocol of the paper, which its tables follow."""

from __future__ import annotations

from dataclasses import replace

from latent_tokens.configs import DEFAULT_CANDIDATES, EvalConfig
from latent_tokens.evaluation.settings import is_adaptive, order_for
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import read_description
from latent_tokens.tasks import Task, Zebra

NUM_ZEBRA = 1_280  # test puzzles, from the first


def with_protocol(net: Transformer, task: Task, config: EvalConfig) -> EvalConfig:
    """Return the config with what its protocol sets. Without a protocol it is returned as it is.

    The protocol "paper" takes 8 candidates in every adaptive order, the first 1,280 problems of Zebra,
    sequences with the paper's padding, and EMA weights (D-39, the paper's protocol). An order that is not
    adaptive has no candidates to set.

    Raises:
        ValueError: the model learned sequences without padding, or was trained without EMA weights.
    """
    if config.protocol is None:
        return config
    padding = getattr(task, "padding", "paper")
    if padding != "paper":
        raise ValueError(
            f"protocol=paper: the model learned {task.name} with padding={padding}. "
            "Train it on a data set made with padding=paper, or leave the protocol out."
        )
    if not has_ema(net):
        raise ValueError(
            "protocol=paper: the model was trained without EMA weights (ema=0). "
            "Train it with ema=0.9999, or leave the protocol out."
        )
    candidates = DEFAULT_CANDIDATES if is_adaptive(order_for(net.method, task, config)) else None
    return replace(config, protocol=None, candidates=candidates, num_samples=num_problems(task))


def num_problems(task: Task) -> int | None:
    """Return the number of problems that the paper's protocol measures. None: as without a protocol."""
    return NUM_ZEBRA if isinstance(task, Zebra) else None


def has_ema(net: Transformer) -> bool:
    """Return whether a model has EMA weights. It has if its directory does not say otherwise."""
    if net.folder is None:
        return True
    training = read_description(net.folder, "config.json", "run").get("training")
    return not (isinstance(training, dict) and training.get("ema") == 0)
