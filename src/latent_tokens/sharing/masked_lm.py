"""The logits of slots in any order, and the samples of exported models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from latent_tokens.core.decoding import Decoding, Step, is_off_distribution
from latent_tokens.core.denoiser import exclude_mask_token
from latent_tokens.core.layout import Layout
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer


def attended_slots(
    net: Transformer, input_ids: Tensor, positions: Tensor | None, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the positions of slots, by default 0, 1, 2 and so on, and which slots (B, S) are not padding.

    Raise ValueError if positions are out of range or occur twice.
    """
    attended = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    attended = attended.bool()
    if positions is None:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
    ordered = positions.expand_as(attended).masked_fill(~attended, -1).sort(dim=1).values
    is_twice = (ordered.diff(dim=1) == 0) & (ordered[:, 1:] >= 0)
    is_outside = attended & ((positions < 0) | (positions >= net.max_length))
    if is_twice.any() or is_outside.any():
        allowed = f"must be different and from 0 to {net.max_length - 1}"
        raise ValueError(f"position_ids: {allowed}. Cut the input.")
    return positions.long(), attended


def arranged_logits(
    net: Transformer, input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the logits (B, S, V + 1) of slots in any order, and which of them (B, S) predict a token."""
    method = net.method
    positions, attended = attended_slots(net, input_ids, position_ids, attention_mask)
    tokens, layout, slot_of = arrange(net, input_ids.long(), positions, attended)

    # The logits of the arranged slots, in the order of the input.
    logits = method.logits(net, tokens, layout).masked_fill(~layout.shown[..., None], 0)
    logits = exclude_mask_token(net.mask_id, logits)  # (B, S, V + 1)
    predicted = layout.shown if method.readout == "shifted" else layout.shown & ~layout.clean
    return logits.gather(1, slot_of[..., None].expand_as(logits)), predicted.gather(1, slot_of)


def arrange(
    net: Transformer, input_ids: Tensor, positions: Tensor, attended: Tensor
) -> tuple[Tensor, Layout, Tensor]:
    """Arrange slots as the method expects them: [clean | masked | padding], each in the order of the input.

    Returns:
        The tokens of the sequences (B, L), the layout of the input, and the slot (B, S) of the
        arranged input for each slot of `input_ids`.

    Raises:
        ValueError: the clean tokens are not a prefix, and the readout is shifted.
    """
    method = net.method
    positions = positions.expand_as(input_ids).masked_fill(~attended, 0)
    is_masked = attended & (input_ids == net.mask_id)
    slots = (2 * ~attended + is_masked).argsort(dim=1, stable=True)  # (B, S)

    # The slots that take part. A shifted readout reads no further than the first masked one.
    num_clean = (attended & ~is_masked).sum(1)
    num_visible = method.max_visible(is_masked.sum(1))
    if method.readout == "shifted":
        num_visible = num_visible.clamp(max=1)
    layout = Layout(positions.gather(1, slots), num_clean, num_clean + num_visible)
    if method.readout == "shifted" and (layout.positions != layout.slots)[layout.shown].any():
        problem = "its tokens are not a prefix, and a shifted readout only continues one"
        raise ValueError(f"input_ids: {problem}. Use scdm or mdm to infill.")

    # The tokens by position.
    rows = torch.arange(len(input_ids), device=input_ids.device)[:, None].expand_as(input_ids)
    tokens = torch.full((len(input_ids), net.max_length), net.mask_id, device=input_ids.device)
    tokens[rows[attended], positions[attended]] = input_ids[attended]
    return tokens, layout, slots.argsort(1)


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

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __getitem__(self, index: Any) -> Any:
        """Return the attribute of a name, as outputs of transformers do, or a part of the tensor."""
        return getattr(self, index) if isinstance(index, str) else super().__getitem__(index)


def decode_masked(
    net: Transformer,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    decoding: Decoding,
    seed: int,
    on_step: Callable[[Step], None] | None,
) -> GeneratedOutput:
    """Return `input_ids` (B, L) with every MASK decoded. Padding, at the end of rows, stays as it is."""
    _, attended = attended_slots(net, input_ids, None, attention_mask)
    if (attended[:, 1:] & ~attended[:, :-1]).any():
        raise ValueError("attention_mask: padding must be at the end of a row")
    input_ids = input_ids.long()
    known = (input_ids != net.mask_id) | ~attended  # padding is not decoded
    lengths = attended.sum(1)
    result = generate(
        net, net.method, input_ids, known, decoding, seed, lengths=lengths, on_step=on_step
    )

    # The tokens with their record.
    sequences = torch.where(attended, result.tokens, input_ids)
    output = sequences.as_subclass(GeneratedOutput)
    output.sequences = sequences
    output.order = result.order
    output.nfe = result.forward_passes
    output.tokens_processed = result.processed
    output.tokens_per_forward = (~known).sum(1) / result.passes.clamp(min=1)
    output.off_distribution = is_off_distribution(net.method, decoding.latents)
    return output
