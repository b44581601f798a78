"""Generation for lm-eval: its settings, and texts up to the first stop string."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, cast

import torch
from jaxtyping import Int
from torch import Tensor

from latent_tokens.checks import check_int
from latent_tokens.core.decoding import Decoding
from latent_tokens.core.denoiser import Denoiser, unwrap
from latent_tokens.evaluation.continuations import Continuation, padded
from latent_tokens.network.check import eval_mode
from latent_tokens.network.fast import generate
from latent_tokens.sharing.text_model import TextModel

GenerationValue = str | list[str] | int | float | bool | None

DEFAULT_MAX_TOKENS = 256  # as in lm-eval, or half of the positions of a shorter model
MAX_TOKENS_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
SUPPORTED = ("until", "do_sample", "temperature", "top_p", *MAX_TOKENS_NAMES)


class Request(Protocol):
    """A request of lm-eval: the arguments of a method of its models."""

    args: tuple[str, ...]


class GenerationRequest(Protocol):
    """A request of lm-eval for generated text: the context, and `generation_kwargs` of the task."""

    args: tuple[str, dict[str, GenerationValue]]


@dataclass(frozen=True)
class GenerationSettings:
    """The settings of the answer to a request."""

    until: tuple[str, ...]  # an answer ends before the first of them
    max_tokens: int
    temperature: float  # 0 is greedy
    top_p: float


def generation_settings(values: Mapping[str, GenerationValue], max_length: int) -> GenerationSettings:
    """Return the settings of a task's `generation_kwargs`.

    Generation is greedy unless they ask for sampling: by do_sample, or else by a temperature above 0.

    Raises:
        ValueError: a setting is not supported, or leaves no room for a context.
    """
    for name in values:
        if name not in SUPPORTED:
            raise ValueError(
                f"generation_kwargs: {name} is not supported. Use {', '.join(SUPPORTED[:4])} or max_gen_toks."
            )
    until = values.get("until") or []
    stops = [until] if isinstance(until, str) else cast(list[str], until)
    limits = [values[name] for name in MAX_TOKENS_NAMES if values.get(name) is not None]
    max_tokens = limits[0] if limits else min(DEFAULT_MAX_TOKENS, max_length // 2)
    check_int("max_gen_toks", max_tokens, 1)
    if cast(int, max_tokens) >= max_length:
        raise ValueError(
            f"max_gen_toks={max_tokens}: the model has {max_length} positions, and the context needs some. "
            "Use fewer."
        )
    temperature = values.get("temperature")
    is_sampled = bool(temperature) if values.get("do_sample") is None else bool(values["do_sample"])
    sampling_temperature = 1.0 if temperature is None else float(cast(float, temperature))
    return GenerationSettings(
        until=tuple(stop for stop in stops if stop),
        max_tokens=cast(int, max_tokens),
        temperature=sampling_temperature if is_sampled else 0.0,
        top_p=float(cast(float, values.get("top_p") or 1.0)),
    )


def before_stop(text: str, until: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    for stop in until:
        text = text.split(stop, maxsplit=1)[0]
    return text


def is_decided(text: str, until: Sequence[str]) -> bool:
    """Return whether the text before the first stop string stays the same, whatever follows.

    Another stop string may begin in this text, and end after it. Only if it overlaps the first it counts.
    """
    return bool(until) and len(text) >= len(before_stop(text, until)) + sum(map(len, until))


def continue_contexts(
    model: TextModel,
    contexts: Sequence[Sequence[int]],
    numbers: Sequence[int],
    settings: GenerationSettings,
    decoding: Decoding,
    seed: int,
) -> list[str]:
    """Return the generated text after each context, up to its first stop string or the end of the text.

    Decoding ends when no later token changes a text.

    Args:
        model: the model.
        contexts: the given tokens. One that is too long loses its first tokens.
        numbers: the random stream of each, which is that of (seed, number).
        settings: how many tokens are masked after each context, and the stop strings.
        decoding: how to sample.
        seed: the random seed.
    """
    decoding = replace(decoding, temperature=settings.temperature, top_p=settings.top_p)
    num_new = settings.max_tokens
    fitted = [model.fitted(context, num_new + model.feeds_first) for context in contexts]
    texts: dict[int, str] = {}
    for first, indices in model.by_first(fitted).items():
        # Arrange the contexts, each with its masked tokens.
        masked = [0] * num_new
        rows = [Continuation(fitted[index][model.feeds_first :], masked, numbers[index]) for index in indices]
        tokens, num_known, lengths = padded(rows, model.device)
        known = torch.arange(tokens.shape[1], device=model.device) < num_known[:, None]  # (B, L)

        # Decode them.
        net = model.fed_with(first)
        with eval_mode(cast(Denoiser, net)):
            generated = generate(
                net,
                model.method,
                tokens,
                known,
                decoding,
                seed,
                rows=torch.tensor([row.number for row in rows], device=model.device),
                lengths=lengths,
                stop=partial(all_decided, model, settings, num_known),
            )
        for index, start, line in zip(indices, num_known.tolist(), generated.tokens.tolist(), strict=True):
            ids, _ = decoded(model, line[start : start + num_new])
            texts[index] = before_stop(model.codec.decode(ids), settings.until)
    return [texts[index] for index in range(len(contexts))]


def all_decided(
    model: TextModel,
    settings: GenerationSettings,
    starts: Int[Tensor, " B"],
    rows: Int[Tensor, " A"],
    tokens: Int[Tensor, "A L"],
) -> bool:
    """Return whether no later token changes the text of a row (a `Stop`)."""
    for start, line in zip(starts[rows].tolist(), tokens.tolist(), strict=True):
        ids, is_at_end = decoded(model, line[start : start + settings.max_tokens])
        if not is_at_end and not is_decided(model.codec.decode(ids), settings.until):
            return False
    return True


def decoded(model: TextModel, tokens: list[int]) -> tuple[list[int], bool]:
    """Return (the tokens up to the first that ends the text or is masked, whether the text ends there)."""
    ends = (model.codec.end, unwrap(model.net).mask_id)
    length = next((index for index, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:length], model.codec.end in tokens[length : length + 1]
