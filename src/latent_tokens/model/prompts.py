"""Prompts as examples: text, token ids, or problems of the task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from latent_tokens.checks import check_int
from latent_tokens.data.splits import make_problems
from latent_tokens.data.tensors import as_numpy
from latent_tokens.tasks import Examples, Language, Task, joined

Prompt = str | Sequence[str] | Examples | ArrayLike


def problems_of(
    task: Language,
    mask_id: int,
    prompt: Prompt | None,
    known: ArrayLike | None,
    num_samples: int | None,
    seed: int,
) -> Examples:
    """Return the problems of samples, one each. Takes its arguments, and raises, as `Model.generate`."""
    if num_samples is not None:
        check_int("num_samples", num_samples, 1)
    if prompt is None and isinstance(task, Task):
        return make_problems(task, num_samples or 1, seed)
    if prompt is None:
        return Examples.of(np.zeros((num_samples or 1, task.length), np.uint16), 0)
    examples = examples_of(task, mask_id, prompt, known)
    if num_samples is None:
        return examples
    if len(examples.tokens) > 1:
        problem = f"there are {len(examples.tokens)} prompts, and each has one sample"
        raise ValueError(f"num_samples={num_samples}: {problem}. Leave it out.")
    return examples.take(np.zeros(num_samples, np.int64))


def examples_of(task: Language, mask_id: int, prompt: Prompt, known: ArrayLike | None) -> Examples:
    """Return prompts as examples without their answers.

    Raises:
        ValueError: a text is not a prompt of the task, or the arrays do not have its shape.
    """
    if isinstance(prompt, Examples):
        return prompt
    if isinstance(prompt, str):
        return task.encode(prompt)
    if isinstance(prompt, list | tuple) and prompt and all(isinstance(text, str) for text in prompt):
        return joined([task.encode(str(text)) for text in prompt])

    # Token ids, of torch, numpy or lists.
    tokens = torch.as_tensor(prompt)
    given = tokens != mask_id if known is None else torch.as_tensor(known)
    if tokens.dim() == 1:
        tokens = tokens[None]
        given = given.reshape(1, -1)
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"prompt of {tokens.dtype}: must be text, or token ids")
    if tokens.shape[1:] != (task.length,) or given.shape != tokens.shape or given.dtype != torch.bool:
        shapes = f"tokens {tuple(tokens.shape)}, known {tuple(given.shape)} of {given.dtype}"
        raise ValueError(f"{shapes}: must be (N, {task.length}), known of bool")
    if known is None and given.all():
        raise ValueError(
            f"known=None: every token is given. Pass known, true at given positions, or token {mask_id}, "
            "MASK, at the others."
        )
    return Examples.of(as_numpy(tokens.masked_fill(~given.to(tokens.device), 0)), given.cpu().numpy())
