"""Prompts as examples: text, token ids, or problems of the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike

from latent_tokens.checks import check_int
from latent_tokens.data.splits import make_problems
from latent_tokens.tasks import Examples, Language, Task, Tokens, joined
from latent_tokens.tasks.base import check_tokens
from latent_tokens.tasks.examples import Example, stack

Prompt = str | Sequence[str] | Examples | Example | Sequence[Example] | ArrayLike


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
    if prompt is None and known is not None:
        raise ValueError("known: there is no prompt. Pass tokens of the same shape, or leave known out.")
    if prompt is None and isinstance(task, Task):
        return make_problems(task, num_samples or 1, seed)
    if prompt is None:
        return Examples.of(np.zeros((num_samples or 1, task.length), np.uint16), 0)
    examples = examples_of(task, mask_id, prompt, known)
    fix = f"Use {mask_id}, MASK, at positions to decode"
    check_tokens(task, examples.tokens, examples.known, "prompt", fix)
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
    examples = complete_examples(task, prompt)
    if examples is not None:
        if known is not None:
            raise ValueError("known: is for token ids, and this prompt has its given tokens. Leave it out.")
        return examples

    # Token ids, of torch, numpy or lists. torch has few operations on uint16, the type of stored text.
    tokens = tensor_of(prompt)
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"prompt of {tokens.dtype}: must be text, or token ids")
    tokens = tokens.long()
    given = tokens != mask_id if known is None else tensor_of(known)
    if tokens.dim() == 1:
        tokens = tokens[None]
        given = given.reshape(1, -1)
    if tokens.shape[1:] != (task.length,) or given.shape != tokens.shape or given.dtype != torch.bool:
        shapes = f"tokens {tuple(tokens.shape)}, known {tuple(given.shape)} of {given.dtype}"
        raise ValueError(f"{shapes}: must be (N, {task.length}), known of bool")
    if known is None and given.all():
        raise ValueError(
            f"known=None: every token is given. Pass known, true at given positions, or token {mask_id}, "
            "MASK, at the others."
        )
    ids = tokens.masked_fill(~given.to(tokens.device), 0).cpu().numpy()
    return Examples.of(cast(Tokens, ids), given.cpu().numpy())


def tensor_of(values: Prompt) -> torch.Tensor:
    """Return numbers as a tensor. An array is copied, because one of a data set may be read-only."""
    return torch.as_tensor(np.array(values) if isinstance(values, np.ndarray) else values)


def complete_examples(task: Language, prompt: Prompt) -> Examples | None:
    """Return a prompt of text or examples as examples, or None if it is of token ids."""
    if isinstance(prompt, Examples):
        return prompt
    items = list(prompt) if isinstance(prompt, list | tuple) else [prompt]
    if not items:
        raise ValueError("prompt: is empty. Pass at least one, or None for problems of the task.")
    if all(isinstance(item, str) for item in items):
        return joined([task.encode(str(item)) for item in items])
    if all(isinstance(item, dict) for item in items):
        return stack(cast(list[Example], items))
    return None
