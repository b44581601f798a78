"""The network: a pre-LN transformer that receives positions and a mask: its input is any subset in any order.

`forward` without `slots` is the reference. `forward_at` computes only what the logits of some slots
depend on, and is tested equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
from latent_tokens.network.block import (
    Block,
    OutputSlots,
    Rotation,
    cached_table,
    output_slots,
    rotary_table,
)
from latent_tokens.network.kernels import has_hooks, linear
from latent_tokens.sizes import SIZES, Dimensions, Size

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
