"""The network: a pre-LN transformer that receives positions and a mask: its input is any subset in any order.

`forward` without `slots` is the reference. `forward_at` computes only what the logits of some slots depend
on, and is tested equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.attention.flex_attention import BlockMask

from latent_tokens.configs import SizeName
from latent_tokens.network import hub
from latent_tokens.network.block import Block, Selection, select_slots
from latent_tokens.network.compiling import begin_pass
from latent_tokens.network.kernels import has_hooks, linear
from latent_tokens.network.rotary import Rotation, rotary_table
from latent_tokens.network.weight_names import read_both_spellings
from latent_tokens.sizes import SIZES, Size

Parts = Sequence[Sequence[int]] | NDArray[np.integer[Any]]
"""The part numbers of each token, (V, P)."""
NOT_PREDICTED = -1e4  # the logit of a token that no answer has: its probability is 0 in float64
MISSING = {"generate": "load(NAME).generate() or generate(net, ...)", "task": "load(NAME).task"}


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
        # No buffer: config.json has the parts, and a network that is built on the meta device needs them.
        self.parts = torch.tensor(np.array([*table, mask]) + 1, device="cpu")

    def forward(self, ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N D"]:
        """Return the embedding of each token."""
        self.parts = self.parts.to(ids.device)
        return super().forward(self.parts[ids]).sum(-2)


class Transformer(nn.Module):
    """A denoiser: (ids Int[B, S], positions Int[B, S], mask Bool[B, S, S]) -> logits Float[B, S, V + 1].

    Its shape is that of the paper (table of sizes) with the constant adaLN folded in: LayerNorm with weight
    and bias, no bias in the attention, GELU, 4x MLP, untied head with bias. MASK is the id after the
    vocabulary (D-1, transformer architecture; D-2, MASK token). `method` is the Method that it was trained
    with, `folder` the directory that it was read from.

    Args:
        size: width, heads and layers, or a name of SIZES.
        vocab_size: the number of tokens without MASK.
        max_length: the number of positions.
        positions: "rotary" embedding, "learned" embedding, or "both".
        dropout: the share of each block's outputs that is set to 0 in training.
        gelu: "exact", or "tanh", the paper's approximation: within 5e-4, and a third as fast on a CPU.
        parts: the part numbers of each token, whose embeddings are summed (`PartEmbedding`). None is an
            embedding per token.
        answer_tokens: the tokens that can be predicted, to which the head is limited. None is all.

    Example:
        >>> Transformer(Size(width=32, heads=2, layers=3), vocab_size=6, max_length=36).mask_id
        6
    """

    method: Any = None
    folder: Path | None = None

    def __init__(
        self,
        size: Size | SizeName,
        vocab_size: int,
        max_length: int,
        positions: Literal["both", "rotary", "learned"] = "both",
        dropout: float = 0.0,
        gelu: Literal["tanh", "exact"] = "tanh",
        parts: Parts | None = None,
        answer_tokens: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if parts is not None and len(np.asarray(parts)) != vocab_size:
            raise ValueError(f"parts of {len(np.asarray(parts))} tokens: must be of all {vocab_size}")
        if answer_tokens is not None and not (answer_tokens and set(answer_tokens) <= set(range(vocab_size))):
            raise ValueError(
                f"answer_tokens={answer_tokens}: must be tokens 0-{vocab_size - 1}, at least one"
            )
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
        self.supports_slots = type(self) is Transformer  # a subclass sets it if its forward takes `slots`
        self.embedding = (
            nn.Embedding(vocab_size + 1, size.width)
            if self.parts is None
            else PartEmbedding(self.parts, size.width)
        )
        # The name of a module is that of its weights in files, and version 0.1 reads `place.weight`.
        self.place = None if positions == "rotary" else nn.Embedding(max_length, size.width)
        self.blocks = nn.ModuleList(Block(size, dropout, gelu) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        num_predicted = vocab_size + 1 if self.answer_tokens is None else len(self.answer_tokens)
        self.head = nn.Linear(size.width, num_predicted)
        self.register_load_state_dict_pre_hook(read_both_spellings)  # type: ignore[no-untyped-call]

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embedding.weight.device

    def __getattr__(self, name: str) -> Any:
        if name in MISSING:
            raise AttributeError(f"Transformer has no {name}. Use {MISSING[name]}.")
        return super().__getattr__(name)

    @property
    def position_embedding(self) -> nn.Embedding | None:
        """The learned embedding of positions. Until version 1.0 its weights are stored as `place.weight`."""
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
            mask: true if slot i attends to slot j. A BlockMask needs `slots`, and skips hooks of the blocks.
            slots: the slots whose logits are returned. None is all.
        """
        # A pass for some slots looks up its first projection if the table is smaller than the input.
        # In bf16 the gradient of the table would be summed with too few bits.
        if slots is not None and (
            isinstance(mask, BlockMask) or not (is_compiling() or self.has_hooked_parts)
        ):
            is_small = 3 * self.table_rows < 2 * ids.numel()
            is_exact = not (torch.is_autocast_enabled(ids.device.type) or self.has_hooked_embeddings)
            use_table = is_small and is_exact
            qkv_table = self.qkv_table() if use_table else None
            for_heads = mask[:, None] if isinstance(mask, Tensor) else mask
            return self.forward_at(ids, positions, for_heads, slots, qkv_table)

        # The reference computes every slot in every layer. So does a compiled network, as one graph, and one
        # with hooks, which would miss the slots that are left out.
        x = self.embed(ids, positions)
        rotation = self.rotation(positions)
        for block in self.blocks:
            x = block(x, rotation, cast(Tensor, mask)[:, None])
        logits = self.logits(x)
        return logits if slots is None else logits[slots]

    @property
    def has_hooked_parts(self) -> bool:
        """Whether a module behind the embeddings has a hook, which `forward_at` calls for some slots only."""
        return any(map(has_hooks, (self.blocks, self.norm, self.head)))

    @property
    def has_hooked_embeddings(self) -> bool:
        """Whether an embedding has a hook, which `qkv_table` does not call."""
        return any(has_hooks(part) for part in (self.embedding, self.position_embedding) if part is not None)

    def forward_at(
        self,
        ids: Int[Tensor, "B Q"],
        positions: Int[Tensor, "B Q"],
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        slots: Bool[Tensor, "B Q"] | Selection,
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
            slots = select_slots(slots.cpu().numpy(), slots.device, every_query=isinstance(mask, BlockMask))
        begin_pass(self.blocks[0], ids.device)
        x = self.embed(ids, positions)
        rotation = self.rotation(positions, length)
        last = len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            projected = None
            if number == 0 and qkv_table is not None:
                projected = F.embedding(self.table_index(ids, positions), qkv_table)
            x = cast(Block, block).forward_at(x, rotation, mask, slots if number == last else None, projected)
        return self.logits(x)

    def logits(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Return the logits of every token and MASK from the output of the last block."""
        logits = linear(self.head, self.norm(x))
        if self.answer_tokens is None:
            return logits
        every = logits.new_full((*logits.shape[:-1], self.vocab_size + 1), NOT_PREDICTED)
        index = torch.tensor(self.answer_tokens, device=x.device)
        return every.index_copy(-1, index, logits)

    def embed(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """Return the input of the first block: the embedding of each token, plus its learned position."""
        x: Tensor = self.embedding(ids)
        return x if self.position_embedding is None else x + self.position_embedding(positions)

    def rotation(self, positions: Int[Tensor, "B S"], length: int | None = None) -> Rotation | None:
        """Return cosine and sine of each slot's angles, or None without a rotary embedding.

        All positions lie below `length`. None looks for the largest, but in a graph it is `max_length`.
        """
        if self.positions == "learned":
            return None
        if length is None and self.positions == "rotary" and positions.numel() and not is_compiling():
            length = int(positions.max()) + 1
        length = max(self.max_length, length or 0)
        weight = self.embedding.weight
        half = self.size.width // self.size.heads // 2
        cos, sin = rotary_table(length, half, weight.dtype, weight.device)
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

    def table_index(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Return the row of `qkv_table` that each slot has."""
        return ids if self.position_embedding is None else ids * self.max_length + positions

    from_pretrained = staticmethod(hub.from_pretrained)
    save_pretrained = hub.save_pretrained
    push_to_hub = hub.push_to_hub
