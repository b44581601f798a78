"""Generation in transformers: the settings of `generate`, its output, and the record of its steps."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, cast

import torch
from torch import Tensor
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from latent_tokens.checks import check_int
from latent_tokens.configs import OrderName, SamplingConfig
from latent_tokens.core.decoding import Decoding, Step, check_decoding
from latent_tokens.core.methods import Method
from latent_tokens.core.partition import equal_parts
from latent_tokens.evaluation.settings import decoding_for
from latent_tokens.tasks import TASKS, Language, Text

SETTINGS = (
    "num_latent_tokens",
    "candidates",
    "order",
    "temperature",
    "top_p",
    "tokens_per_step",
    "steps",
    "seed",
    "do_sample",
)
IGNORED_SETTINGS = ("transformers_version", "return_dict_in_generate")

StepCallback = Callable[[PreTrainedModel, int, float, dict[str, Tensor]], object]


class TraceRow(TypedDict):
    """A step of one sample."""

    row: int
    step: int
    positions: list[int]
    tokens: list[int]
    candidates: list[int]
    latents: list[int]


@dataclass
class GeneratedOutput(ModelOutput):
    """The result of `generate` for B samples of L positions."""

    sequences: Tensor | None = None  # Int[B, L]
    order: Tensor | None = None  # Int[B, L]: given positions, then the others in decoding order
    nfe: int | None = None  # forward passes: the steps of the sample that took most
    tokens_processed: Tensor | None = None  # Int[B]: summed over steps
    tokens_per_forward: Tensor | None = None  # Float[B]: decoded tokens per step of the sample
    trace: list[TraceRow] | None = None  # with `output_trace`


class LatentTokensGenerationConfig(GenerationConfig):
    """The settings of `generate`, with the names of transformers and diffusers.

    A setting that is None has the default of `latent-tokens sample`.

    Args:
        num_latent_tokens: latent tokens n per step.
        candidates: candidate set size k.
        order: decoding order.
        temperature: temperature of the samples.
        top_p: nucleus of the samples.
        tokens_per_step: tokens decoded per step.
        steps: number of steps, instead of `tokens_per_step`.
        seed: seed of the samples.
        do_sample: False is temperature 0.
        others: settings of transformers, which decoding refuses.

    Example:
        >>> model.generate(input_ids, LatentTokensGenerationConfig(num_latent_tokens=4, candidates=8))
    """

    def __init__(
        self,
        *,
        num_latent_tokens: int | Literal["all"] | None = None,
        candidates: int | Literal["all", "growing"] | None = None,
        order: OrderName | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        tokens_per_step: int | None = None,
        steps: int | None = None,
        seed: int | None = None,
        do_sample: bool | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)  # type: ignore[no-untyped-call]
        self.num_latent_tokens = num_latent_tokens
        self.candidates = candidates
        self.order = order
        self.temperature = temperature
        self.top_p = top_p
        self.tokens_per_step = tokens_per_step
        self.steps = steps
        self.seed = seed
        self.do_sample = do_sample

    def with_defaults(self, defaults: GenerationConfig | None) -> LatentTokensGenerationConfig:
        """Return these settings, with those of `defaults` instead of None.

        Raise ValueError if it has other settings.
        """
        stored = {} if defaults is None else defaults.to_diff_dict()
        others = sorted(set(stored) - {*SETTINGS, *IGNORED_SETTINGS})
        if others:
            raise ValueError(
                f"generation_config.{others[0]}={stored[others[0]]}: no setting of this decoding. "
                f"Its settings are {', '.join(SETTINGS)}."
            )
        merged = copy(self)
        for name in SETTINGS:
            if getattr(self, name) is None:
                setattr(merged, name, stored.get(name))
        return merged

    def decoding(self, method: Method, task: Language) -> Decoding:
        """Return the Decoding of these settings. Raise ValueError if the method does not support them."""
        # Settings that exclude each other.
        if self.steps is not None and self.tokens_per_step is not None:
            raise ValueError(
                f"steps={self.steps} and tokens_per_step={self.tokens_per_step}: "
                "one follows from the other. Set one of them."
            )
        if self.do_sample is False and self.temperature:
            raise ValueError(
                f"do_sample=False with temperature={self.temperature}: "
                "without sampling, the most likely token is chosen. Leave one out."
            )

        # Ranges that SamplingConfig does not check, under the names of this class.
        if self.num_latent_tokens not in (None, "all"):
            check_int("num_latent_tokens", self.num_latent_tokens, 0)
        if self.steps is not None:
            check_int("steps", self.steps, 1)
        if self.seed is not None:
            check_int("seed", self.seed, 0)

        temperature = self.temperature
        if self.do_sample is False and temperature is None:
            temperature = 0.0
        config = SamplingConfig(
            latents=self.num_latent_tokens,
            candidates=self.candidates,
            order=self.order,
            tokens_per_step=self.tokens_per_step,
            temperature=temperature,
            top_p=self.top_p,
        )
        decoding = decoding_for(method, task, config)
        if self.steps is not None:
            decoding = replace(decoding, tokens_per_step=equal_parts(self.steps))
        check_decoding(method, decoding)
        return decoding


class StepRecorder:
    """The `on_step` of `generate`: counts the steps of each sample, keeps them, and calls a callback.

    Args:
        model: the first argument of the callback.
        input_ids: the tokens (B, L) before the first step.
        masked: the masked positions (B, L) before the first step.
        callback: called as callback(model, step, masked fraction, {"sequences": tokens}).
        keep_trace: whether to keep every step in `trace`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        masked: Tensor,
        callback: StepCallback | None,
        keep_trace: bool,
    ) -> None:
        self.model = model
        self.callback = callback
        self.keep_trace = keep_trace
        self.sequences = input_ids.clone()
        self.num_masked_first = masked.sum(1)
        self.num_masked = masked.sum(1)
        self.steps = torch.zeros_like(self.num_masked)
        self.trace: list[TraceRow] = []

    def __call__(self, step: Step) -> None:
        # The fraction of masked tokens before the step, of the sample with the largest.
        fractions = self.num_masked / self.num_masked_first.clamp(min=1)
        masked_fraction = float(fractions[step.rows].max())

        is_decoded = step.chosen >= 0
        rows = step.rows[:, None].expand_as(step.chosen)
        self.sequences[rows[is_decoded], step.chosen[is_decoded]] = step.tokens[is_decoded]
        self.num_masked[step.rows] -= is_decoded.sum(1)
        self.steps[step.rows] += 1
        if self.keep_trace:
            self.trace += trace_rows(step)
        if self.callback is not None:
            values = {"sequences": self.sequences.clone()}
            self.callback(self.model, int(step.number[0]), masked_fraction, values)


def trace_rows(step: Step) -> list[TraceRow]:
    """Return a step as plain values, one row per sample."""
    rows: list[TraceRow] = []
    all_candidates = step.candidates
    all_latents = step.latents
    for index, row in enumerate(step.rows.tolist()):
        positions = [position for position in step.chosen[index].tolist() if position >= 0]
        rows.append(
            {
                "row": row,
                "step": int(step.number[index]),
                "positions": positions,
                "tokens": step.tokens[index, : len(positions)].tolist(),
                "candidates": all_candidates[index],
                "latents": all_latents[index],
            }
        )
    return rows


def task_of(config: PretrainedConfig) -> Language:
    """Return the task whose decoding defaults a model has, or None for a task of another package."""
    name = str((getattr(config, "task", None) or {}).get("name"))
    return Text() if name == Text.name else cast(Language, TASKS.get(name))
