"""The settings of a benchmark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from latent_tokens.checks import check_int
from latent_tokens.configs.names import PositionName, Precision, SizeName
from latent_tokens.sizes import SIZES


@dataclass(frozen=True)
class BenchConfig:
    """Settings to measure, in every combination. The default is the table of docs/performance.md."""

    methods: tuple[str, ...] = ("mdm", "sidm", "scdm", "esolm", "arm")
    """Methods to decode with. mdm, sidm, scdm, esolm, arm, ar-mtp, ar-mtp-window-N or ar-ntp-N, for any
    window N from 1, block-mdm-N, for any block of N positions, mdm-depth, scdm-depth, ar-latents or
    mdm-left."""
    sizes: tuple[SizeName, ...] = ("tiny",)
    """Network sizes to decode with."""
    lengths: tuple[int, ...] = (128,)
    """Sequence lengths."""
    batch_sizes: tuple[int, ...] = (16,)
    """Numbers of sequences decoded together."""
    latents: tuple[int, ...] = (0,)
    """Numbers of latent tokens, for methods with latent token control."""
    off_distribution: bool = False
    """Whether to decode with these numbers too if a method's own is fixed in training. The rows are labeled
    off-distribution."""
    candidates: tuple[int, ...] | None = None
    """Numbers of candidates. Default: 8, but 1 for a fixed order and for esolm, as published."""
    train: tuple[str, ...] = ("tiny:64x128", "tiny:64x81:128", "nano:256x36")
    """Training steps to measure. SIZE:BATCHxLENGTH or SIZE:BATCHxLENGTH:PADDED, where the reference step pads
    to PADDED."""
    precisions: tuple[Precision, ...] | None = None
    """Floating-point formats of the network. Default: fp32, and bf16 if the hardware has instructions for
    it."""
    vocabulary: int = 32
    """Vocabulary size of a network that decodes, MASK included. 32 is the paper's for puzzles, 50258 that of
    GPT-2's tokens."""
    positions: PositionName = "learned"
    """Position encoding of such a network. learned, rotary (as in published text models) or both."""
    top_p: float = 1.0
    """Nucleus sampling of decoding. 0.9 for text."""
    plain: bool = True
    """Measure the reference implementation too, which takes hours for long sequences."""
    rounds: int = 3
    """Number of measurements, in turn. Medians are reported."""

    def __post_init__(self) -> None:
        check_int("rounds", self.rounds, 1)
        check_int("vocabulary", self.vocabulary, 2)
        for length in self.lengths:
            check_int("lengths", length, 1)
        for shape in self.train:
            training_shape(shape)


def training_shape(shape: str) -> tuple[SizeName, int, int, int]:
    """Return (size, batch, length, padded length) of SIZE:BATCHxLENGTH or SIZE:BATCHxLENGTH:PADDED.

    Raise ValueError if the shape is neither.
    """
    parts = re.fullmatch(r"([a-z]+):([1-9][0-9]{0,5})x([1-9][0-9]{0,5})(?::([1-9][0-9]{0,5}))?", shape)
    if parts is None or parts[1] not in SIZES:
        raise ValueError(
            f"train={shape}: must be SIZE:BATCHxLENGTH, like tiny:64x128, with SIZE one of {', '.join(SIZES)}"
        )
    length, padded = int(parts[3]), int(parts[4] or parts[3])
    if padded < length:
        raise ValueError(
            f"train={shape}: {length} positions cannot be padded to {padded}: "
            "must be SIZE:BATCHxLENGTH:PADDED with PADDED the longer"
        )
    return cast(SizeName, parts[1]), int(parts[2]), length, padded
