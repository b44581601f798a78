"""Inputs of the transformers model: checks, the layout of the slots, and the loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from latent_tokens.core.denoiser import exclude_mask_token
from latent_tokens.core.layout import Layout
from latent_tokens.network.transformer import Transformer

IGNORED_LABEL = -100  # as everywhere in transformers


def check_inputs(net: Transformer, input_ids: Tensor, positions: Tensor, attended: Tensor) -> None:
    """Raise ValueError if tokens, positions or padding have the wrong shape or are out of range."""
    # Shapes and the type.
    shapes = (input_ids.shape[1:], input_ids.shape, (1, *input_ids.shape[1:]))
    if input_ids.dim() != 2 or attended.shape != input_ids.shape or positions.shape not in shapes:
        raise ValueError(
            f"input_ids {tuple(input_ids.shape)} with attention_mask {tuple(attended.shape)}, "
            f"position_ids {tuple(positions.shape)}: all of them must be (rows, slots)"
        )
    if input_ids.is_floating_point() or input_ids.is_complex() or input_ids.dtype == torch.bool:
        raise ValueError(f"input_ids of {input_ids.dtype}: must be whole numbers")
    if input_ids.shape[1] > net.max_length:
        raise ValueError(
            f"input_ids of {input_ids.shape[1]} slots: "
            f"this model learned sequences of {net.max_length}. Cut them."
        )

    # Tokens and positions of the slots that are not padding.
    invalid = ((input_ids < 0) | (input_ids > net.mask_id)) & attended
    if invalid.any():
        raise ValueError(
            f"input_ids: {int(input_ids[invalid][0])} is not a token: "
            f"must be 0..{net.mask_id - 1}, or {net.mask_id} for MASK"
        )
    positions = positions.expand_as(input_ids)
    if (((positions < 0) | (positions >= net.max_length)) & attended).any():
        raise ValueError(f"position_ids: must lie in 0..{net.max_length - 1}")
    ordered = positions.masked_fill(~attended, -1).sort(dim=1).values
    if ((ordered.diff(dim=1) == 0) & (ordered[:, 1:] >= 0)).any():
        raise ValueError("position_ids: a row names a position twice")


def attended_slots(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return which slots (B, S) are not padding. Raise ValueError if tokens have another shape."""
    if input_ids.dim() != 2:
        raise ValueError(f"input_ids {tuple(input_ids.shape)}: must be (rows, slots)")
    if attention_mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    return attention_mask.bool()


def arranged_logits(
    net: Transformer, input_ids: Tensor, position_ids: Tensor | None, attention_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the logits (B, S, V + 1) of slots in any order, and which of them (B, S) predict a token.

    Raises:
        ValueError: an input has the wrong shape or is out of range.
    """
    method = net.method
    attended = attended_slots(input_ids, attention_mask)
    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
    check_inputs(net, input_ids, position_ids, attended)
    tokens, layout, slot_of = arrange(net, input_ids.long(), position_ids.long(), attended)

    # The logits of the arranged slots, in the order of the input.
    logits = method.logits(net, tokens, layout).masked_fill(~layout.shown[..., None], 0)
    logits = exclude_mask_token(net.mask_id, logits)  # (B, S, V + 1)
    predicted = layout.shown if method.readout == "shifted" else layout.shown & ~layout.clean
    return logits.gather(1, slot_of[..., None].expand_as(logits)), predicted.gather(1, slot_of)


def arrange(
    net: Transformer, input_ids: Tensor, positions: Tensor, attended: Tensor
) -> tuple[Tensor, Layout, Tensor]:
    """Arrange slots as the method expects them: [clean | masked | padding], each in the order of the input.

    Args:
        net: the network with its method.
        input_ids: tokens and MASK (B, S).
        positions: the positions of the slots, (S) or (B, S).
        attended: which slots (B, S) are not padding.

    Returns:
        The tokens of the sequences (B, L), the layout of the input, and the slot (B, S) of the arranged input
        for each slot of `input_ids`.

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
        raise ValueError(
            "input_ids: its tokens are not a prefix, and a shifted readout only continues one. "
            "Use scdm or mdm to infill."
        )

    # The tokens by position.
    rows = torch.arange(len(input_ids), device=input_ids.device)[:, None].expand_as(input_ids)
    tokens = torch.full((len(input_ids), net.max_length), net.mask_id, device=input_ids.device)
    tokens[rows[attended], positions[attended]] = input_ids[attended]
    return tokens, layout, slots.argsort(1)


def mean_nats(logits: Tensor, labels: Tensor, predicted: Tensor, vocab_size: int) -> Tensor:
    """Return the mean cross-entropy of the labels at `predicted` slots, or 0 if there are none.

    Raises:
        ValueError: the labels have the wrong shape, or one is not a token.
    """
    has_label = labels != IGNORED_LABEL
    invalid = ((labels < 0) | (labels >= vocab_size)) & has_label
    if labels.shape != predicted.shape or invalid.any():
        raise ValueError(
            f"labels {tuple(labels.shape)}: must be of the shape {tuple(predicted.shape)} "
            f"and 0..{vocab_size - 1}, or {IGNORED_LABEL} for none"
        )
    scored = has_label & predicted
    total = F.cross_entropy(logits[scored].float(), labels[scored].long(), reduction="sum")
    return total / scored.sum().clamp(min=1)
