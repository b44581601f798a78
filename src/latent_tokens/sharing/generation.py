"""The samples of exported models: a tensor of tokens with the record of their decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import torch
from torch import Tensor

from latent_tokens.core.decoding import Decoding, Step, is_off_distribution
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer


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
    net: Transformer,
    input_ids: Tensor,
    attended: Tensor,
    decoding: Decoding,
    seed: int,
    on_step: Callable[[Step], object] | None,
    keep_trace: bool,
) -> GeneratedOutput:
    """Return `input_ids` (B, L) with every MASK decoded. Padding, not `attended`, stays as it is.

    Raises:
        ValueError: padding is not at the end of a row.
    """
    if (attended[:, 1:] & ~attended[:, :-1]).any():
        raise ValueError("attention_mask: padding must be at the end of a row")
    input_ids = input_ids.long()
    known = (input_ids != net.mask_id) | ~attended  # padding is not decoded
    num_steps = torch.zeros_like(attended.sum(1))
    trace: list[TraceRow] = []

    def record(step: Step) -> None:
        num_steps[step.rows] += 1
        if keep_trace:
            trace.extend(trace_rows(step))
        if on_step is not None:
            on_step(step)

    lengths = attended.sum(1)
    result = generate(net, net.method, input_ids, known, decoding, seed, lengths=lengths, on_step=record)

    # The tokens with their record.
    sequences = torch.where(attended, result.tokens, input_ids)
    output = sequences.as_subclass(GeneratedOutput)
    output.sequences = sequences
    output.order = result.order
    output.nfe = result.forward_passes
    output.tokens_processed = result.processed
    output.tokens_per_forward = (~known).sum(1) / num_steps.clamp(min=1)
    output.off_distribution = is_off_distribution(net.method, decoding.latents)
    output.trace = trace if keep_trace else None
    return output


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
