"""What latents predict: how often a latent's likeliest token is the one decoded there later, against the steps until then."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from latent_tokens.configs import EvalConfig
from latent_tokens.decoding import Step, generate
from latent_tokens.evaluation import decoding_for, find_problems
from latent_tokens.model import Transformer
from latent_tokens.progress import progress
from latent_tokens.splits import chunks_of
from latent_tokens.tasks import Task
from latent_tokens.tensors import as_numpy, as_tensors

Row = dict[str, Any]


def foresight(net: Transformer, task: Task, config: EvalConfig) -> list[Row]:
    """A row for each number of steps until a latent is decoded, from 1: the share of latents whose likeliest token was then drawn, in percent.

    `all` is of all samples, `right` of those that the task's judge calls right; `count` is of latents in all samples.
    """
    (latents,) = config.latents or (None,)
    decoding, problems = decoding_for(net.method, task, config, latents), find_problems(task, config)
    length, count = task.length, len(problems.tokens)
    hits, seen = np.zeros((2, 2, length + 1), np.int64)  # of all samples and of the right ones, by steps until decoded
    with progress("watching latents", count) as advance:
        for number, part in enumerate(chunks_of(problems, config.batch_size)):
            watched = Watched(len(part.tokens), length)
            tokens, known, lengths = as_tensors(part, next(net.parameters()).device)
            rows = number * config.batch_size + torch.arange(len(tokens), device=tokens.device)
            made = as_numpy(generate(net, net.method, tokens, known, decoding, config.seed, rows=rows, lengths=lengths, on_step=watched).tokens)
            agrees, ahead = watched.predictions(made)
            right = task.score(made, part)[task.metric].astype(bool)
            for i, kept in enumerate((ahead > 0, (ahead > 0) & right[:, None, None])):
                seen[i] += np.bincount(ahead[kept], minlength=length + 1)
                hits[i] += np.bincount(ahead[kept & agrees], minlength=length + 1)
            advance(len(tokens), "")
    shares = (100 * hits / seen.clip(1)).round(2)
    there = np.flatnonzero(seen[0]).tolist()
    return [{"steps": steps, "all": shares[0, steps], "right": shares[1, steps], "count": int(seen[0, steps])} for steps in there]


class Watched:
    """Remembers, step by step, the likeliest token at each latent position, and when each position was decoded (an `on_step`)."""

    def __init__(self, rows: int, length: int) -> None:
        self.likeliest = np.full((rows, length, length), -1)  # row, step, position; -1 where it is no latent
        self.decoded_at = np.full((rows, length), -1)
        self.step = 0

    def __call__(self, step: Step) -> None:
        likeliest = step.probabilities.argmax(-1).cpu().numpy()
        for i, (row, latents) in enumerate(zip(step.rows.tolist(), step.latents, strict=True)):
            start = int(step.layout.num_clean[i])
            self.likeliest[row, self.step, latents] = likeliest[i, start : start + len(latents)]
            chosen = step.chosen[i]
            self.decoded_at[row, chosen[chosen >= 0].cpu().numpy()] = self.step
        self.step += 1

    def predictions(self, tokens: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """(whether a latent's likeliest token was decoded there, steps until then), each (rows, steps, positions); 0 steps where it is no latent."""
        ahead = self.decoded_at[:, None, :] - np.arange(self.likeliest.shape[1])[None, :, None]
        return self.likeliest == tokens[:, None, :], np.where(self.likeliest >= 0, ahead, 0)
