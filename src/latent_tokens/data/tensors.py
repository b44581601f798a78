"""Examples as tensors, and samples as the arrays that tasks score."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from latent_tokens.tasks import Examples, Tokens
from latent_tokens.tasks.examples import smallest_type


def as_tensors(examples: Examples, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Return examples as the tensors that `loss` and `generate` take.

    Args:
        examples: N examples of at most L positions.
        device: The device of the tensors.

    Returns:
        tokens: Int64, (N, L).
        known: Bool, (N, L).
        lengths: Int64, (N,).

    Example:
        >>> tokens, known, lengths = as_tensors(TASKS["sudoku-4"].generate(2, seed=0))
        >>> tokens.shape
        torch.Size([2, 16])
    """
    tokens = torch.from_numpy(examples.tokens.astype(np.int64)).to(device)
    known = torch.from_numpy(np.array(examples.known)).to(device)  # that of a text cannot be written to
    lengths = torch.from_numpy(examples.lengths.astype(np.int64)).to(device)
    return tokens, known, lengths


def as_numpy(tokens: Tensor) -> Tokens:
    """Return tokens as tasks take them: of the smallest type, uint8, uint16 or uint32, on the CPU.

    Args:
        tokens: token ids, on any device.

    Example:
        >>> as_numpy(torch.tensor([[1, 2]])).dtype
        dtype('uint8')
    """
    array = tokens.cpu().numpy()
    return array.astype(smallest_type(int(array.max(initial=0))))
