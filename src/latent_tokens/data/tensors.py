"""Examples as tensors, and samples as the arrays that tasks judge."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from latent_tokens.tasks import Examples
from latent_tokens.tasks.base import Tokens


def as_tensors(examples: Examples, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Tokens Int[N, L], known Bool[N, L] and lengths Int[N], as `loss` and `generate` take them."""
    tokens, lengths = (
        torch.from_numpy(part.astype(np.int64)).to(device) for part in (examples.tokens, examples.lengths)
    )
    return tokens, torch.from_numpy(np.ascontiguousarray(examples.known)).to(device), lengths


def as_numpy(tokens: Tensor) -> Tokens:
    """Tokens as tasks take them: uint8 on the CPU, or uint16 where there are more than 256."""
    found = tokens.cpu().numpy()
    large = found.size and found.max() > np.iinfo(np.uint8).max
    return cast(Tokens, found.astype(np.uint16 if large else np.uint8))
