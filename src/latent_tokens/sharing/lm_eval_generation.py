"""Generation for lm-eval: its settings, and the text before the first stop string."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from latent_tokens.checks import check_int

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
    """How to generate the answer to a request."""

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
