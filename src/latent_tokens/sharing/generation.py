"""The generate() of exported models, and its settings."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack, cast

import torch
from torch import Tensor
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

from latent_tokens.checks import check_int
from latent_tokens.configs import OrderName, SamplingConfig
from latent_tokens.core.decoding import Decoding, Step, check_decoding, is_off_distribution
from latent_tokens.core.method import Method
from latent_tokens.core.selection import equal_parts
from latent_tokens.evaluation.settings import decoding_for
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.sharing.model_inputs import check_inputs
from latent_tokens.tasks import TASKS, Language, Text

IGNORED_SETTINGS = ("transformers_version", "return_dict_in_generate")


class GenerationSettings(TypedDict, total=False):
    """The settings of `generate`, with the names of transformers and diffusers."""

    num_latent_tokens: int | Literal["all"] | None  # latent tokens n per step
    candidates: int | Literal["all", "growing"] | None  # candidate set size k
    order: OrderName | None  # decoding order
    temperature: float | None  # temperature of the samples
    top_p: float | None  # nucleus of the samples
    tokens_per_step: int | None  # tokens decoded per step
    steps: int | None  # number of steps, instead of `tokens_per_step`
    seed: int | None  # seed of the samples
    num_return_sequences: int | None  # samples per row of the input
    do_sample: bool | None  # False is temperature 0
    off_distribution: bool | None  # True allows any n for a method whose n is fixed in training


SETTINGS = tuple(GenerationSettings.__annotations__)


APPEND_MASK = (
    "generate decodes each MASK of input_ids. Append as many: "
    "torch.nn.functional.pad(input_ids, (0, N), value=model.config.mask_token_id)."
)


HINTS = {"max_new_tokens": APPEND_MASK, "max_length": APPEND_MASK}  # settings that another call replaces


class LatentTokensGenerationConfig(GenerationConfig):
    """The settings of `generate`, with the names of transformers and diffusers.

    A setting that is None has the default of `latent-tokens sample`.

    Args:
        settings: those of `GenerationSettings`. Others of transformers are kept, and decoding refuses them.

    Example:
        >>> model.generate(input_ids, LatentTokensGenerationConfig(num_latent_tokens=4, candidates=8))
    """

    def __init__(self, **settings: Unpack[GenerationSettings]) -> None:
        others = {name: value for name, value in settings.items() if name not in SETTINGS}
        super().__init__(**others)  # type: ignore[no-untyped-call]
        for name in SETTINGS:
            setattr(self, name, settings.get(name))

    @property
    def settings(self) -> GenerationSettings:
        """The settings that decoding supports."""
        return cast(GenerationSettings, {name: getattr(self, name) for name in SETTINGS})

    def with_defaults(self, defaults: GenerationConfig | None) -> LatentTokensGenerationConfig:
        """Return these settings, with those of `defaults` instead of None.

        Raise ValueError if it has other settings.
        """
        stored = {} if defaults is None else defaults.to_diff_dict()
        others = sorted(set(stored) - {*SETTINGS, *IGNORED_SETTINGS})
        if others:
            hint = HINTS.get(others[0], f"Its settings are {', '.join(SETTINGS)}.")
            setting = f"generation_config.{others[0]}={stored[others[0]]}"
            raise ValueError(f"{setting}: no setting of this decoding. {hint}")
        merged = copy(self)
        for name in SETTINGS:
            if getattr(self, name) is None:
                setattr(merged, name, stored.get(name))
        return merged

    def decoding(self, method: Method, task: Language) -> Decoding:
        """Return the Decoding of these settings. Raise ValueError if the method does not support them."""
        # Settings that exclude each other.
        settings = self.settings
        temperature = settings["temperature"]
        if settings["steps"] is not None and settings["tokens_per_step"] is not None:
            raise ValueError(
                f"steps={settings['steps']} and tokens_per_step={settings['tokens_per_step']}: "
                "one follows from the other. Set one of them."
            )
        if settings["do_sample"] is False and temperature:
            raise ValueError(
                f"do_sample=False with temperature={temperature}: "
                "without sampling, the most likely token is chosen. Leave one out."
            )

        # Ranges that SamplingConfig does not check, under the names of this class.
        if settings["num_latent_tokens"] not in (None, "all"):
            check_int("num_latent_tokens", settings["num_latent_tokens"], 0)
        for name in ("steps", "num_return_sequences"):
            if settings[name] is not None:
                check_int(name, settings[name], 1)

        if settings["do_sample"] is False and temperature is None:
            temperature = 0.0
        config = SamplingConfig(
            latents=settings["num_latent_tokens"],
            candidates=settings["candidates"],
            order=settings["order"],
            tokens_per_step=settings["tokens_per_step"],
            temperature=temperature,
            top_p=settings["top_p"],
            seed=settings["seed"] or 0,
            off_distribution=bool(settings["off_distribution"]),
        )
        decoding = decoding_for(method, task, config)
        if settings["steps"] is not None:
            decoding = replace(decoding, tokens_per_step=equal_parts(settings["steps"]))
        check_decoding(method, decoding)
        return decoding


def known_task(config: PretrainedConfig) -> Language:
    """Return the task whose decoding defaults a model has, or None for a task of another package."""
    name = str((getattr(config, "task", None) or {}).get("name"))
    return Text() if name == Text.name else cast(Language, TASKS.get(name))


def check_settings(settings: GenerationSettings) -> None:
    """Raise TypeError for an argument of `generate` that is not a setting."""
    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        hint = HINTS.get(unknown[0], f"Its settings are {', '.join(SETTINGS)}.")
        raise TypeError(f"{unknown[0]}: no argument of generate. {hint}")


def seed_from(seed: int | None, generator: torch.Generator | None) -> int:
    """Return the seed of the samples: the setting, one drawn from a generator, or 0 without either."""
    if generator is None:
        return seed or 0
    if seed is not None:
        raise ValueError(f"seed={seed} with a generator: the seed is drawn from it. Leave one out.")
    return int(torch.randint(1 << 62, (), generator=generator, device=generator.device))


StepCallback = Callable[[PreTrainedModel, int, float, dict[str, Tensor]], object]


class TraceRow(TypedDict):
    """A step of one sample."""

    row: int
    step: int
    positions: list[int]
    tokens: list[int]
    candidates: list[int]
    latents: list[int]


class GeneratedOutput(Tensor):
    """The result of `generate`: the tokens (B, L), a tensor, with the record of their decoding.

    A tokenizer decodes it as any other tensor. The result of an operation is a plain tensor.
    """

    sequences: Tensor  # Int[B, L], the tokens as a plain tensor
    order: Tensor  # Int[B, L]: given positions, then the others in decoding order
    nfe: int  # forward passes: the steps of the sample that took most
    tokens_processed: Tensor  # Int[B]: summed over steps
    tokens_per_forward: Tensor  # Float[B]: decoded tokens per step of the sample
    off_distribution: bool  # whether n leaves out masked tokens that each input had in training
    trace: list[TraceRow] | None  # type: ignore[assignment] # with `output_trace`, instead of Tensor.trace

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __getitem__(self, index: Any) -> Any:
        """Return the attribute of a name, as outputs of transformers do, or a part of the tensor."""
        return getattr(self, index) if isinstance(index, str) else super().__getitem__(index)


def decode_masked(
    model: PreTrainedModel,
    input_ids: Tensor,
    attended: Tensor,
    decoding: Decoding,
    seed: int,
    callback: StepCallback | None,
    keep_trace: bool,
) -> GeneratedOutput:
    """Return `input_ids` (B, L) with every MASK decoded. Padding, not `attended`, stays as it is.

    Raises:
        ValueError: an input has the wrong shape or is out of range.
    """
    # Check the input. Padding counts as known, so it is not decoded.
    net = cast(Transformer, model.net)
    check_inputs(net, input_ids, torch.arange(input_ids.shape[1], device=input_ids.device), attended)
    if (attended[:, 1:] & ~attended[:, :-1]).any():
        raise ValueError("attention_mask: padding must be at the end of a row")
    input_ids = input_ids.long()
    known = (input_ids != net.mask_id) | ~attended

    # Decode.
    recorder = StepRecorder(model, input_ids, ~known, callback, keep_trace)
    lengths = attended.sum(1)
    result = generate(net, net.method, input_ids, known, decoding, seed, lengths=lengths, on_step=recorder)

    # The tokens with their record.
    sequences = torch.where(attended, result.tokens, input_ids)
    output = sequences.as_subclass(GeneratedOutput)
    output.sequences = sequences
    output.order = result.order
    output.nfe = result.forward_passes
    output.tokens_processed = result.processed
    output.tokens_per_forward = (~known).sum(1) / recorder.steps.clamp(min=1)
    output.off_distribution = is_off_distribution(net.method, decoding.latents)
    output.trace = recorder.trace if keep_trace else None
    return output


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
