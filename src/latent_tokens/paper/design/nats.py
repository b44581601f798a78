"""Boards in exact nats: the cells of the experiment. Likelihood takes 64 boards where samples take 4,000."""

from __future__ import annotations

from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.paper.design.cells import ORDERS, Cell, Claim, boards
from latent_tokens.paper.design.scales import Latents, Scale
from latent_tokens.paper.design.variants import NATS

POLICIES = ("nearest", "relevant", "constrained of a unit")
TIMING = ("constant", "a share", "early", "late")


def boards_in_nats(scale: Scale) -> list[Cell]:
    """Return the likelihood of held-out boards by n, latent policy and timing, of scdm, sidm and mdm.

    Latent tokens are random ones unless a policy is named, as in decoding, which reshuffles its schedule.
    """
    if not scale.num_boards:
        return []
    listed = []
    dial = dict.fromkeys((*scale.dial_of("sudoku-gen"), *scale.chosen))
    for order in ORDERS:
        listed += [boards("scdm", order, n, f"random{NATS}") for n in dial]
        listed += [boards("scdm", order, n, f"{name}{NATS}") for name in POLICIES for n in scale.chosen]
        listed += [boards("scdm", order, None, f"{name}{NATS}") for name in TIMING]
        listed += [boards(method, order, None, f"nearest{NATS}") for method in ("sidm", "mdm")]
    return listed


def questions_in_nats(scale: Scale) -> list[Claim]:
    """Return the claims on policies and timing, in nats of held-out boards. A < B: A is better.

    In top-prob order the nearest latent tokens are those that are decoded next, which decoding cannot know.
    """
    listed = []
    for order in ORDERS:
        pairs: list[tuple[str, tuple[Latents, str], tuple[Latents, str]]] = [
            ("n=all < n=0", ("all", "random"), (0, "random")),
            ("same total of latents, late < constant n", (None, "late"), (None, "constant")),
            ("late latents < n=all", (None, "late"), ("all", "random")),
            *(
                (f"{n} relevant latents < {n} random ones", (n, "relevant"), (n, "random"))
                for n in scale.chosen
            ),
            (
                "4 constrained shared-unit latents < 4 random ones",
                (4, "constrained of a unit"),
                (4, "random"),
            ),
            *((f"{n} relevant latents < n=all", (n, "relevant"), ("all", "random")) for n in scale.chosen),
        ]
        if order == "top_prob":
            pairs += [
                (f"{n} nearest latents < {n} random ones", (n, "nearest"), (n, "random"))
                for n in scale.chosen
            ]
        setting = f"nats, {ORDER_NAMES[order]}: "
        for text, (n, better), (m, worse) in pairs:
            first, second = (
                boards("scdm", order, count, f"{name}{NATS}") for count, name in ((n, better), (m, worse))
            )
            listed.append(Claim(f"{setting}scdm, {text}", first, second))
        every = boards("scdm", order, "all", f"random{NATS}")
        sidm = boards("sidm", order, None, f"nearest{NATS}")
        listed.append(Claim(f"{setting}scdm n=all < sidm", every, sidm))
    return listed
