"""Generation in transformers: decoding, its output, and the record of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from latent_tokens.core.decoding import Decoding, Step, is_off_distribution
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.sharing.model_inputs import check_inputs

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
