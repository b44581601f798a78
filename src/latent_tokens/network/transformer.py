"""The network: a pre-LN transformer that receives positions and a mask: its input is any subset in any order.

`forward` without `slots` is the reference. `forward_at` computes only what the logits of some slots
depend on, and is tested equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import isfunction
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

from latent_tokens.checks import check_choice, check_min
from latent_tokens.configs import SizeName
from latent_tokens.network.kernels import attend, compiled, has_hooks, linear
from latent_tokens.sizes import SIZES, Dimensions, Size

ROTARY_BASE = 10_000  # D-1, transformer architecture
Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the angles of each slot, (B, 1, S, C/2)."""


def rotary_table(
    length: int, half: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "L C"], Float[Tensor, "L C"]]:
    """Return cosine and sine of the angles of positions 0..length-1. They are computed in float32."""
    frequencies = ROTARY_BASE ** (-torch.arange(half, device=device) / half)
    angles = torch.arange(length, device=device)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


@lru_cache(maxsize=8)
def cached_table(
    length: int, half: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return `rotary_table`, as tensors that training can use if decoding computed them."""
    with torch.inference_mode(mode=False):
        return rotary_table(length, half, dtype, device)


def apply_rotary(
    x: Float[Tensor, "B H S C"], rotation: Rotation | None
) -> Float[Tensor, "B H S C"]:
    """Rotate the two halves of x by the angle of each slot (rotary embedding, half-split). None returns x."""
    if rotation is None:
        return x
    a, b = x.chunk(2, dim=-1)
    cos, sin = rotation
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


TOKENS_PER_GROUP = 1_024  # on a CPU, rows of at most this many attend together in the last layer


class Block(nn.Module):
    """Attention, then MLP. Each takes a LayerNorm of the residual stream and adds its output to the stream.

    `forward` is the reference. `forward_at` computes less, and is tested equal.
    """

    def __init__(self, size: Size, dropout: float, gelu: Literal["tanh", "exact"]) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.dropout = dropout
        self.approximate = "tanh" if gelu == "tanh" else "none"
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)
        self.compiled = False

    def forward(
        self, x: Float[Tensor, "B S D"], rotation: Rotation | None, mask: Bool[Tensor, "B 1 S S"]
    ) -> Float[Tensor, "B S D"]:
        """Return the output of the block at every slot."""
        q, k, v = self.split_heads(self.project(x), 3)
        q = apply_rotary(q, rotation)
        k = apply_rotary(k, rotation)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, H, S, C)
        return self.residual_and_mlp(x, merge_heads(attended))

    def forward_at(
        self,
        x: Float[Tensor, "B Q D"],
        rotation: Rotation | None,
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        selection: OutputSlots | None,
        projected: Float[Tensor, "B Q W"] | None,
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block at some slots.

        Args:
            x: the input of the block.
            rotation: cosine and sine of each slot's angles. None is no rotary embedding.
            mask: which slots attend to which. None is all to all.
            selection: the slots whose output is returned, (N, D), row by row. None is all, (B, Q,
                D).
            projected: queries, keys and values of each slot, side by side, if they were looked up.
        """
        width = x.shape[-1]

        # Project. For some slots only, the queries are projected below, from `source`.
        is_plain = type(self.qkv) is nn.Linear and not has_hooks(self.qkv)
        if projected is None and (selection is None or not is_plain):
            projected = self.project(x)
        if projected is None:
            source = self.attention_norm(x)
            keys_and_values = linear(self.qkv, source, slice(width, None))
        else:
            source = projected[..., :width]
            keys_and_values = projected[..., width:]
        k, v = self.split_heads(keys_and_values, 2)
        k = apply_rotary(k, rotation)

        # Every slot attends.
        if selection is None:
            q = apply_rotary(self.split_heads(source, 1)[0], rotation)
            return self.residual_and_mlp(x, merge_heads(attend(q, k, v, mask)))

        # Some slots attend: group by group, from the first slot that a row of the group returns.
        mixed = []
        # Unlike slices, the parts of a split join their gradients in one operation.
        parts = [torch.split(tensor, selection.num_rows) for tensor in (source, k, v)]
        groups = zip(selection.groups, *parts, strict=True)
        for (rows, start, index), group_source, group_k, group_v in groups:
            queries = group_source[:, start:]
            if projected is None:
                queries = linear(self.qkv, queries, slice(width))
            q = apply_rotary(self.split_heads(queries, 1)[0], rotation_of(rotation, rows, start))
            attended = attend(q, group_k, group_v, mask_of(mask, rows, start))
            mixed.append(merge_heads(attended).flatten(0, 1).index_select(0, index))

        # The MLP takes the selected slots only.
        joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)  # (N, D)
        return self.residual_and_mlp(x.flatten(0, 1).index_select(0, selection.index), joined)

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N W"]:
        """Return queries, keys and values of each slot, side by side, from the input of the block."""
        function = compiled(project) if self.compiled else project
        return function(self, x)

    def split_heads(self, x: Float[Tensor, "B S W"], parts: int) -> Float[Tensor, "P B H S C"]:
        """Split each slot's vector into `parts` vectors, and each of these into heads."""
        of_head = x.shape[-1] // (parts * self.heads)
        return x.reshape(*x.shape[:-1], parts, self.heads, of_head).permute(2, 0, 3, 1, 4)

    def residual_and_mlp(
        self, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block from its input `x` and what its heads computed, `mixed`."""
        function = compiled(residual_and_mlp) if self.compiled else residual_and_mlp
        return function(self, x, mixed)


def project(block: Block, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N W"]:
    """Return `Block.project`."""
    return linear(block.qkv, block.attention_norm(x))


def residual_and_mlp(
    block: Block, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]
) -> Float[Tensor, "*N D"]:
    """Return `Block.residual_and_mlp`."""
    x = x + F.dropout(linear(block.attention_out, mixed), block.dropout, block.training)
    hidden = F.gelu(linear(block.mlp_in, block.mlp_norm(x)), approximate=block.approximate)
    return x + F.dropout(linear(block.mlp_out, hidden), block.dropout, block.training)


def merge_heads(attended: Float[Tensor, "B H Q C"]) -> Float[Tensor, "B Q D"]:
    """Join the heads of each slot."""
    return attended.transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class OutputSlots:
    """Some slots of a batch, row by row, and the groups of rows that attend together."""

    index: Int[Tensor, " N"]  # in the flattened batch
    num_rows: int  # of a group; the last may have fewer
    # Rows, first slot, index in the group from there on
    groups: list[tuple[slice, int, Int[Tensor, " _"]]]


def output_slots(slots: np.ndarray, device: torch.device, every_query: bool = False) -> OutputSlots:
    """Return the selection of slots that are true in an array (B, Q) on the host.

    All rows attend together, from the first slot on that one of them returns, or from slot 0 with
    `every_query`. On a CPU rows that return different slots attend in groups: a small call costs
    little there.
    """
    num_rows = max(1, len(slots))
    if device.type == "cpu" and not every_query and not (slots == slots[:1]).all():
        num_rows = max(1, TOKENS_PER_GROUP // slots.shape[1])
    groups = []
    for first in range(0, len(slots), num_rows):
        rows = slice(first, first + num_rows)
        start = 0 if every_query else int(slots[rows].argmax(1).min())
        groups.append((rows, start, indices(slots[rows, start:], device)))
    return OutputSlots(indices(slots, device), num_rows, groups)


def indices(slots: np.ndarray, device: torch.device) -> Int[Tensor, " N"]:
    """Return where the flattened array is true."""
    return torch.from_numpy(np.flatnonzero(slots)).to(device, non_blocking=True)


def rotation_of(rotation: Rotation | None, rows: slice, start: int) -> Rotation | None:
    """Return the rotation of some rows from slot `start` on."""
    if rotation is None:
        return None
    cos, sin = rotation
    return cos[rows, :, start:], sin[rows, :, start:]


def mask_of(
    mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None, rows: slice, start: int
) -> Bool[Tensor, "#C 1 P S"] | BlockMask | None:
    """Return the mask of some rows from query slot `start` on.

    A mask of one row, or in blocks, is for all rows.
    """
    if not isinstance(mask, Tensor):
        return mask
    return mask[rows if len(mask) > 1 else slice(None), :, start:]


Parts = Sequence[Sequence[int]] | NDArray[np.integer[Any]]
"""The part numbers of each token, (V, P)."""


NOT_PREDICTED = -1e4  # the logit of a token that no answer has: its probability is 0 in float64
MISSING = {"generate": "load(NAME).generate() or generate(net, ...)", "task": "load(NAME).task"}


def widened(logits: Float[Tensor, "*N C"], columns: int) -> Float[Tensor, "*N V"]:
    """Return logits with columns for the tokens that are never predicted, too."""
    return F.pad(logits, (0, columns - logits.shape[-1]), value=NOT_PREDICTED)


class PartEmbedding(nn.Embedding):
    """An embedding of tokens that are composed: that of a token is the sum of those of its parts.

    MASK, the token after the last, is one part of its own.

    Args:
        parts: the part numbers of each token, from 0. -1 is no part, for tokens with fewer.
        width: the number of channels.

    Raises:
        ValueError: the tokens have lists of different lengths, or a number is below -1.

    Example:
        >>> table = PartEmbedding([[0, 1], [0, 2], [2, -1]], width=8)
        >>> torch.equal(table(torch.tensor(0)), table.weight[1] + table.weight[2])
        True
    """

    def __init__(self, parts: Parts, width: int) -> None:
        table = np.asarray(parts)
        if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer) or table.min() < -1:
            raise ValueError("parts: must be whole numbers (V, P), from 0, and -1 for no part")
        num_parts = int(table.max()) + 1
        super().__init__(num_parts + 2, width, padding_idx=0)  # row 0 is no part, and stays 0
        mask = [num_parts] + [-1] * (table.shape[1] - 1)
        # No buffer: config.json has the parts, also for a network built on the meta device.
        self.parts = torch.tensor(np.array([*table, mask]) + 1, device="cpu")

    def forward(self, ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N D"]:
        """Return the embedding of each token."""
        self.parts = self.parts.to(ids.device)
        return super().forward(self.parts[ids]).sum(-2)


class Transformer(nn.Module):
    """A denoiser: (ids Int[B, S], positions Int[B, S], mask Bool[B, S, S]) -> logits Float[B, S, V + 1].

    Its shape is that of the paper (table of sizes) with the constant adaLN folded in: LayerNorm
    with weight and bias, no bias in the attention, GELU, 4x MLP, untied head with bias. MASK is the
    id after the vocabulary (D-1, transformer architecture; D-2, MASK token). `method` is the Method
    that it was trained with, `folder` the directory that it was read from.

    Args:
        size: width, heads and layers, or a name of SIZES.
        vocab_size: the number of tokens without MASK.
        max_length: the number of positions.
        positions: "rotary" embedding, "learned" embedding, or "both".
        dropout: the share of each block's outputs that is set to 0 in training.
        gelu: "exact", or "tanh", the release's approximation: within 5e-4, and a third as fast on a
            CPU.
        parts: the part numbers of each token, whose embeddings are summed (`PartEmbedding`). None
            is an embedding per token.
        answer_tokens: the tokens that can be predicted, to which the head is limited. Logits end at
            the largest of them. None is all.

    Example:
        >>> Transformer(Size(width=32, heads=2, layers=3), vocab_size=6, max_length=36).mask_id
        6
    """

    method: Any = None
    folder: Path | None = None
    gradient_checkpointing = False  # these two names are those of transformers, which sets both
    _gradient_checkpointing_func: Any = staticmethod(partial(checkpoint, use_reentrant=False))

    def __init__(
        self,
        size: Size | SizeName | str,
        vocab_size: int,
        max_length: int,
        positions: Literal["both", "rotary", "learned"] = "both",
        dropout: float = 0.0,
        gelu: Literal["tanh", "exact"] = "tanh",
        parts: Parts | None = None,
        answer_tokens: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        check_choice("positions", positions, ("both", "rotary", "learned"))
        check_choice("gelu", gelu, ("exact", "tanh"))
        check_min("dropout", dropout, 0, below=1)
        if parts is not None and len(np.asarray(parts)) != vocab_size:
            given = len(np.asarray(parts))
            raise ValueError(f"parts of {given} tokens: must be of all {vocab_size}")
        if answer_tokens is not None and (
            not answer_tokens or not set(answer_tokens) <= set(range(vocab_size))
        ):
            allowed = f"must be tokens 0-{vocab_size - 1}, at least one"
            raise ValueError(f"answer_tokens={answer_tokens}: {allowed}")
        size = SIZES[size] if isinstance(size, str) else size
        self.size = size
        self.vocab_size = vocab_size
        self.max_length = max_length
        self.positions = positions
        self.dropout = dropout
        self.gelu = gelu
        self.parts = None if parts is None else np.asarray(parts).tolist()  # as JSON stores them
        self.answer_tokens = None if answer_tokens is None else list(map(int, answer_tokens))
        self.mask_id = vocab_size
        self.supports_slots = type(self) is Transformer  # a subclass sets it if its forward does
        self.embedding: nn.Embedding
        if self.parts is None:
            self.embedding = nn.Embedding(vocab_size + 1, size.width)
        else:
            self.embedding = PartEmbedding(self.parts, size.width)
        self.place = None if positions == "rotary" else nn.Embedding(max_length, size.width)
        self.blocks = nn.ModuleList(Block(size, dropout, gelu) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        answers = self.answer_tokens
        self.num_logits = vocab_size + 1 if answers is None else max(answers) + 1
        # If the answers are tokens 0, 1, 2 ... in order, each logit is in its column already.
        self.are_first = answers == list(range(self.num_logits))
        self.answer_index = torch.tensor(answers or [], dtype=torch.int64, device="cpu")
        self.head = nn.Linear(size.width, self.num_logits if answers is None else len(answers))

    @property
    def num_positions(self) -> int | None:
        """The number of positions that have an embedding, or None for any number."""
        return None if self.positions == "rotary" else self.max_length

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embedding.weight.device

    def __getattr__(self, name: str) -> Any:
        if name in MISSING:
            raise AttributeError(f"Transformer has no {name}. Use {MISSING[name]}.")
        return super().__getattr__(name)

    @property
    def dimensions(self) -> Dimensions:
        """The numbers that the memory of training depends on."""
        return Dimensions(self.size.layers, self.size.width, self.size.heads, self.num_logits)

    @property
    def position_embedding(self) -> nn.Embedding | None:
        """The learned embedding of positions. Its weights are stored as `place.weight`."""
        return self.place

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        positions: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B S S"] | BlockMask,
        slots: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "*N V"]:
        """Return the logits of every slot, (B, S, V), or with `slots` of these only, (N, V), row by row.

        Args:
            ids, positions: the token id that each slot receives, and its position in the sequence.
            mask: true if slot i attends to slot j. A BlockMask needs `slots`, and skips hooks of
                the blocks.
            slots: the slots whose logits are returned. None is all.
        """
        # A pass for some slots looks up its first projection if the table is smaller than the
        # input. In bf16 the gradient of the table would be summed with too few bits.
        may_skip = isinstance(mask, BlockMask) or not (is_compiling() or self.has_hooked_parts)
        if slots is not None and may_skip:
            is_small = 3 * self.table_rows < 2 * ids.numel()
            is_rounded = torch.is_autocast_enabled(ids.device.type)
            # Dropout of an adapter would have one mask per row of the table.
            is_plain = type(cast(Block, self.blocks[0]).qkv) is nn.Linear or not self.training
            use_table = is_small and not is_rounded and is_plain and not self.has_hooked_embeddings
            qkv_table = self.qkv_table() if use_table else None
            for_heads = mask[:, None] if isinstance(mask, Tensor) else mask
            return self.forward_at(ids, positions, for_heads, slots, qkv_table)

        # The reference computes every slot in every layer. So does a compiled network, as one
        # graph, and one with hooks, which would miss the slots that are left out.
        x = self.embed(ids, positions)
        rotation = self.rotation(positions)
        for block in self.blocks:
            x = self.checkpointed(block, x, rotation, cast(Tensor, mask)[:, None])
        logits = self.logits(x)
        return logits if slots is None else logits[slots]

    @property
    def has_hooked_parts(self) -> bool:
        """Whether a module behind the embeddings has a hook, which `forward_at` calls for some slots only."""
        return any(map(has_hooks, (self.blocks, self.norm, self.head)))

    @property
    def has_hooked_embeddings(self) -> bool:
        """Whether an embedding has a hook, which `qkv_table` does not call."""
        parts = (self.embedding, self.position_embedding)
        return any(has_hooks(part) for part in parts if part is not None)

    def forward_at(
        self,
        ids: Int[Tensor, "B Q"],
        positions: Int[Tensor, "B Q"],
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        slots: Bool[Tensor, "B Q"] | OutputSlots,
        qkv_table: Float[Tensor, "T W"] | None = None,
        length: int | None = None,
    ) -> Float[Tensor, "N V"]:
        """Return the logits of some slots, row by row.

        The last layer has queries, MLP and head for these only, which is exact under every rule.

        Args:
            ids, positions: as in `forward`.
            mask: which slots attend to which. None is all to all.
            slots: the slots whose logits are returned.
            qkv_table: the projections of the first layer, `self.qkv_table()`. None computes them.
            length: all positions lie below it. None looks for the largest.
        """
        if isinstance(slots, Tensor):
            slots = output_slots(
                slots.cpu().numpy(), slots.device, every_query=isinstance(mask, BlockMask)
            )
        x = self.embed(ids, positions)
        rotation = self.rotation(positions, length)
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            projected = None
            if number == 0 and qkv_table is not None:
                projected = F.embedding(self.table_index(ids, positions), qkv_table)
            selection = slots if number == last else None
            forward_at = cast(Block, block).forward_at
            x = self.checkpointed(forward_at, x, rotation, mask, selection, projected)
        return self.logits(x)

    def checkpointed(self, function: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """Return function(*inputs), of a block.

        With `gradient_checkpointing`, training keeps the inputs only, and computes the rest again.
        """
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            return cast(Tensor, self._gradient_checkpointing_func(function, *inputs))
        return function(*inputs)

    def logits(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return the logits of every token that can be predicted from the output of the last block."""
        logits = linear(self.head, self.norm(x))
        if self.answer_tokens is None or self.are_first:
            return logits
        every = logits.new_full((*logits.shape[:-1], self.num_logits), NOT_PREDICTED)
        with torch.inference_mode(mode=False):  # so that training can use it if decoding moved it
            self.answer_index = self.answer_index.to(x.device)
        return every.index_copy(-1, self.answer_index, logits)

    def embed(
        self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        """Return the input of the first block: the embedding of each token, plus its learned position."""
        x: Tensor = self.embedding(ids)
        return x if self.position_embedding is None else x + self.position_embedding(positions)

    def rotation(self, positions: Int[Tensor, "B S"], length: int | None = None) -> Rotation | None:
        """Return cosine and sine of each slot's angles, or None without a rotary embedding.

        All positions lie below `length`. None looks for the largest, but in a graph it is
        `max_length`.
        """
        if self.positions == "learned":
            return None
        can_look = positions.numel() and not is_compiling()
        if length is None and self.positions == "rotary" and can_look:
            length = int(positions.max()) + 1
        length = max(self.max_length, length or 0)
        weight = self.embedding.weight
        half = self.size.width // self.size.heads // 2
        table = rotary_table if is_compiling() else cached_table
        cos, sin = table(length, half, weight.dtype, weight.device)
        return cos[positions][:, None], sin[positions][:, None]

    @property
    def table_rows(self) -> int:
        """The number of rows of `qkv_table`."""
        return (self.vocab_size + 1) * (1 if self.position_embedding is None else self.max_length)

    def qkv_table(self) -> Float[Tensor, "T W"]:
        """Return the first block's queries, keys and values of each token at each position, unrotated."""
        x = self.embedding(torch.arange(self.vocab_size + 1, device=self.device))
        if self.position_embedding is not None:
            x = (x[:, None] + self.position_embedding.weight).flatten(0, 1)
        return cast(Block, self.blocks[0]).project(x)

    def table_index(
        self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]
    ) -> Int[Tensor, "B S"]:
        """Return the row of `qkv_table` that each slot has."""
        return ids if self.position_embedding is None else ids * self.max_length + positions


FUNCTIONS = {name: value for name, value in vars(Transformer).items() if isfunction(value)}


def is_transformer(net: object) -> TypeGuard[Transformer]:
    """Return whether a network is what its size describes: no subclass with functions of its own.

    FSDP's subclass has none.

    Example:
        >>> is_transformer(Transformer("pico", vocab_size=4, max_length=16))
        True
    """
    return isinstance(net, Transformer) and all(
        getattr(type(net), name) is value for name, value in FUNCTIONS.items()
    )
