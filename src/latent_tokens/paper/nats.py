"""Boards in exact nats: the cells of the experiment. Likelihood takes 64 boards where samples take 4,000."""

from __future__ import annotations

from latent_tokens.paper.cells import ORDERS, Cell, boards
from latent_tokens.paper.scales import Scale
from latent_tokens.paper.variants import NATS

POLICIES = ("nearest", "relevant", "constrained of a unit")
TIMING = ("constant", "a share", "early", "late")


def boards_in_nats(scale: Scale) -> list[Cell]:
    """Return the likelihood of held-out boards by n, latent policy and timing, of scdm, sidm and mdm.

    Latent tokens are random ones unless a policy is named, as in decoding, which reshuffles its schedule.
    """
    if not scale.num_boards:
        return []
    listed = []
    for order in ORDERS:
        listed += [boards("scdm", order, n, f"random{NATS}") for n in scale.dial_of("sudoku-gen")]
        listed += [boards("scdm", order, n, f"{name}{NATS}") for name in POLICIES for n in scale.chosen]
        listed += [boards("scdm", order, None, f"{name}{NATS}") for name in TIMING]
        listed += [boards(method, order, None, f"nearest{NATS}") for method in ("sidm", "mdm")]
    return listed
