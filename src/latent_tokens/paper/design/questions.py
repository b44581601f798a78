"""Our own claims, which the ablations ask: pairs of cells of which the first may be better."""

from __future__ import annotations

from itertools import product

from latent_tokens.configs import OrderName
from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.paper.design.ablations import BY_STEPS, COMPUTE, CONFIDENCES, MORE_STEPS
from latent_tokens.paper.design.cells import MODELS, ORDERS, OURS, WITH_LATENTS, Cell, Claim, boards
from latent_tokens.paper.design.scales import BOARDS_9, Latents
from latent_tokens.paper.design.variants import OFF_DISTRIBUTION, label

CANDIDATES: tuple[int | str, ...] = (4, 8, 16, "all", "growing")
WAYS: tuple[tuple[OrderName, str], ...] = (
    *(("top_prob", "k=4, fp32"), ("top_prob", "k=8, fp32")),
    ("uniform", "fp32"),
)
MARGIN = 3.0  # points of accuracy that a model whose n can be set may lose to sidm


def questions() -> list[Claim]:
    """Return our own claims, which the ablations ask. Yes means that the first cell is better."""
    return [
        question("schedule reshuffled > as printed", "scdm", "top_prob", 4, "plain", "as printed"),
        question("loss flat > elbo", "ar-mtp", "left_to_right", None, "plain", "elbo"),
        mdm_and_sidm("sudoku-gen", "uniform"),
        *sidm_and_scdm(),
        *of_candidates(),
        *of_confidence(),
        *of_policies(),
        *of_depths(),
        *of_fewer_steps(),
        *of_more_steps(),
        *of_countdown(),
    ]


def of_countdown() -> list[Claim]:
    """Return the claims on Countdown: arm against models without latent tokens, n, policy and adaptive k."""
    cells = {n: Cell("countdown", "scdm", "uniform", n, variant="plain") for n in (0, 4, "all")}
    relevant = Cell("countdown", "scdm", "uniform", 4, variant="relevant")
    adaptive, fixed = (Cell("countdown", "mdm", "top_prob", variant=name) for name in ("k=growing", "plain"))
    arm = Cell("countdown", "arm", "left_to_right")
    return [
        Claim("arm > sidm, top-prob", arm, Cell("countdown", "sidm", "top_prob")),
        Claim("scdm, uniform: n=all > n=0", cells["all"], cells[0]),
        Claim("scdm, uniform, n=4: relevant > nearest", relevant, cells[4]),
        Claim("mdm, top-prob: k=growing > fixed k", adaptive, fixed),
    ]


def mdm_and_sidm(task: str, order: OrderName, source: str = OURS) -> Claim:
    """Return the claim that mdm is better than sidm in an order."""
    return Claim(
        f"mdm > sidm, {ORDER_NAMES[order]}", Cell(task, "mdm", order), Cell(task, "sidm", order), source
    )


def questions_of_9() -> list[Claim]:
    """Return our own claims that are asked of 9x9 boards as well."""
    listed = [mdm_and_sidm(BOARDS_9, "uniform")]
    for k, variant in ((8, None), ("growing", "k=growing")):
        none, every, sidm, _ = (
            Cell(BOARDS_9, method, "top_prob", n, variant=variant) for method, n in MODELS
        )
        listed += [
            Claim(f"top-prob, k={k}: sidm > scdm n=0", sidm, none),
            Claim(f"top-prob, k={k}: sidm > scdm n=all", sidm, every),
        ]
    return listed


def sidm_and_scdm() -> list[Claim]:
    """Return the claims on sidm and both ends of scdm, at every number of candidates."""
    listed = []
    for k in CANDIDATES:
        sidm = boards("sidm", "top_prob", None, f"k={k}")
        if k != "all":
            none = boards("scdm", "top_prob", 0, f"k={k}")
            listed.append(Claim(f"top-prob, k={k}: sidm > scdm n=0", sidm, none))
        name = "scdm at any n" if k == "all" else "scdm n=all"
        every = boards("scdm", "top_prob", "all", f"k={k}")
        listed.append(Claim(f"top-prob, k={k}: sidm > {name}", sidm, every))
    for k in (8, "growing", "all"):
        name = "scdm at any n" if k == "all" else "scdm n=all"
        every = infilled("scdm", "all", k)
        listed.append(Claim(f"top-prob, k={k}: {name} > sidm", every, infilled("sidm", None, k)))
    return listed


def of_candidates() -> list[Claim]:
    """Return the claims on the number of candidates, and on the targets of the training."""
    listed = [question("k=growing > k=8", method, "top_prob", n, "k=growing", "k=8") for method, n in MODELS]
    for method, n in WITH_LATENTS:
        listed += [
            question("k=8 > k=1", method, "top_prob", n, "k=8", "k=1"),
            question("k=8 > k=4", method, "top_prob", n, "k=8", "k=4"),
            question("k=8 > k=all", method, "top_prob", n, "k=8", "k=all"),
            question("all targets > target only", method, "top_prob", n, "plain", "target only"),
        ]
    for method, n in WITH_LATENTS:
        name = method if n is None else f"{method} n={n}"
        every = infilled(method, n, "all")
        listed += [
            Claim(f"{name}, top-prob: k=all > k={k}", every, infilled(method, n, k)) for k in (4, "growing")
        ]
    return listed


def of_confidence() -> list[Claim]:
    """Return the claims on adaptive candidates against other confidences, and against annealed noise."""
    listed = []
    for (method, n), (order, noise), k in product(MODELS, CONFIDENCES[1:], (8, "all")):
        name = method if n is None else f"{method} n={n}"
        growing = boards(method, "top_prob", n, "k=growing, diversity")
        n_of_other = "all" if k == "all" and n == 0 else n  # k = all leaves no latent tokens
        other = boards(method, order, n_of_other, f"k={k}{noise}, diversity")
        text = f"{name}: top-prob, k=growing > {ORDER_NAMES[order]}, k={k}{noise}"
        listed.append(Claim(text, growing, other))
    return [*listed, *with_entropy()]


def with_entropy() -> list[Claim]:
    """Return the claims on latent tokens and candidates if that of lowest entropy is decoded."""
    all_candidates, eight = (boards("mdm", "entropy", None, f"k={k}, diversity") for k in ("all", 8))
    listed = [Claim("mdm, entropy: k=all > k=8", all_candidates, eight)]
    for k in (8, "growing", "all"):
        none, every, sidm, mdm = (boards(method, "entropy", n, f"k={k}, diversity") for method, n in MODELS)
        name = "scdm at any n" if k == "all" else "scdm n=all"
        listed += [
            Claim(f"entropy, k={k}: {name} > sidm", every, sidm),
            Claim(f"entropy, k={k}: mdm > {name}", mdm, every),
        ]
        if k != "all":
            listed += [
                Claim(f"entropy, k={k}: scdm n=all > n=0", every, none),
                Claim(f"entropy, k={k}: sidm > scdm n=0", sidm, none),
            ]
    return listed


def of_policies() -> list[Claim]:
    """Return the claims on when latents are in the input, and on which masked tokens they are."""
    late = "same total of latents, late > constant n"
    listed = [question(late, "scdm", order, None, "late", "constant") for order in ORDERS]
    late_cell = boards("scdm", "uniform", None, "late")
    every = boards("scdm", "uniform", "all", "plain")
    listed.append(Claim("scdm, uniform: late latents > n=all", late_cell, every))
    policies = {
        "random": "random",
        "constrained of a unit": "constrained shared-unit",
        "relevant": "relevant",
    }
    for order, (variant, name) in product(ORDERS, policies.items()):
        listed.append(question(f"{name} latents > nearest", "scdm", order, 4, variant, "plain"))
    for order in ORDERS:
        relevant = boards("scdm", order, 4, "relevant")
        every = boards("scdm", order, "all", "plain")
        listed.append(Claim(f"scdm, {ORDER_NAMES[order]}: 4 relevant latents > n=all", relevant, every))
    return listed


def infilled(method: str, n: Latents, k: int | str) -> Cell:
    """Return the cell of a model of boards that infills puzzles with k candidates."""
    return Cell("sudoku-gen", method, "top_prob", n, "sudoku-puzzle", f"k={k}")


def question(text: str, method: str, order: OrderName, n: Latents, better: str, worse: str) -> Claim:
    """Return a claim of ours between two variants on boards."""
    names = [method, ORDER_NAMES[order]] if n is None else [method, f"n={n}", ORDER_NAMES[order]]
    first = boards(method, order, n, better)
    return Claim(f"{', '.join(names)}: {text}", first, boards(method, order, n, worse))


def of_depths() -> list[Claim]:
    """Return the claims on models trained with other depths, at both ends of n."""
    listed = []
    for order, variant in WAYS:
        setting = ORDER_NAMES[order] if order == "uniform" else f"{ORDER_NAMES[order]}, {label(variant)}"
        sidm = boards("sidm", order, None, variant)
        none = boards("scdm", order, 0, variant)
        every = boards("scdm", order, "all", variant)
        for method in ("mdm-depth", "scdm-depth"):
            first = boards(method, order, 0, variant)
            text = f"{setting}: {method} n=0 > sidm - {MARGIN:g} points"
            listed += [
                Claim(text, first, sidm, margin=MARGIN),
                Claim(f"{setting}: {method} n=0 > scdm n=0", first, none),
                Claim(
                    f"{setting}: {method} n=all > scdm n=all", boards(method, order, "all", variant), every
                ),
            ]
    with_depth = boards("mdm-depth", "top_prob", 0, "k=8, fp32")
    without = boards("mdm", "top_prob", 0, f"k=8, {OFF_DISTRIBUTION}")
    listed.append(Claim(f"top-prob, k=8: mdm-depth n=0 > mdm n=0, {OFF_DISTRIBUTION}", with_depth, without))
    return listed


def of_fewer_steps() -> list[Claim]:
    """Return the claim that ar-mtp is better than arm, after equal shares of the steps."""
    return [
        Claim(
            f"{label(share)}: ar-mtp > arm",
            boards("ar-mtp", "left_to_right", None, share),
            boards("arm", "left_to_right", None, share),
        )
        for share in COMPUTE
        if share != "plain"
    ]


def of_more_steps() -> list[Claim]:
    """Return the orderings of the models for three times the steps, and what each model gains by them."""
    none, every, sidm, mdm, ar_mtp, arm = (boards(*model, MORE_STEPS) for model in BY_STEPS)
    pairs = {
        "mdm > sidm": (mdm, sidm),
        "scdm n=all > n=0": (every, none),
        "scdm n=all > sidm": (every, sidm),
        "mdm > scdm n=all": (mdm, every),
        "ar-mtp > arm": (ar_mtp, arm),
        "ar-mtp > mdm": (ar_mtp, mdm),
    }
    orderings = [Claim(f"3x steps: {text}", first, second) for text, (first, second) in pairs.items()]
    gains = [
        Claim(
            f"{method}{'' if n is None else f' n={n}'}: 3x steps > 1x",
            boards(method, order, n, MORE_STEPS),
            boards(method, order, n, "plain"),
        )
        for method, order, n in BY_STEPS
    ]
    for k in (8, "growing"):
        every, sidm, mdm = (
            boards(method, "top_prob", n, f"{MORE_STEPS}, k={k}") for method, n in MODELS if n != 0
        )
        orderings += [
            Claim(f"3x steps, k={k}: sidm > scdm n=all", sidm, every),
            Claim(f"3x steps, k={k}: mdm > scdm n=all", mdm, every),
        ]
    return orderings + gains
