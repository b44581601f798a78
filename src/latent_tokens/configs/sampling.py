"""The settings of sampling."""

from __future__ import annotations

from typing import Literal

OrderName = Literal["top_prob", "margin", "entropy", "uniform", "left_to_right"]
PolicyName = Literal["nearest", "random", "relevant"]
DEFAULT_CANDIDATES = 8
"""The paper's k (appendix D.2)."""
