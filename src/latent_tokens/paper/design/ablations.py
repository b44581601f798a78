"""Ablations: experiments of our own, most of them on generated boards. Each changes one thing."""

from __future__ import annotations

from latent_tokens.configs import OrderName
from latent_tokens.paper.design.cells import MODELS, ORDERS, WITH_LATENTS, Cell, Experiment, boards
from latent_tokens.paper.design.nats import boards_in_nats
from latent_tokens.paper.design.scales import Latents, Scale
from latent_tokens.paper.design.variants import OFF_DISTRIBUTION

CHOICES = (
    "plain",
    "random",
    "of a unit",
    "constrained",
    "constrained of a unit",
    "most certain",
    "least certain",
    "relevant",
)
WHICH: tuple[tuple[Latents, str], ...] = ((0, "plain"), (4, "plain"), (4, "relevant"), ("all", "plain"))
COMPUTE = ("12.5 % of the steps", "25 % of the steps", "50 % of the steps", "plain")
SUPERVISED: tuple[tuple[str, Latents], ...] = (("mdm", None), ("scdm", 0), ("scdm", 4), ("scdm", "all"))
DEPTHS = ("scdm", "scdm-depth", "mdm-depth")  # whose number of latent tokens is set at inference
CONFIDENCES: tuple[tuple[OrderName, str], ...] = (
    *(("top_prob", ""), ("margin", ""), ("entropy", "")),
    *(("top_prob", ", noise 1"), ("top_prob", ", noise 4.5")),  # 4.5 is MaskGIT's
)
MORE_STEPS = "300 % of the steps"
BY_STEPS: tuple[tuple[str, OrderName, Latents], ...] = (
    *((method, "top_prob", n) for method, n in MODELS),
    *(("ar-mtp", "left_to_right", None), ("arm", "left_to_right", None)),
)


def confidences(scale: Scale) -> list[Cell]:
    """Return boards of every confidence, and of top-prob with noise, at three numbers of candidates."""
    return [
        boards(method, order, latents, f"k={k}{noise}, diversity")
        for order, noise in CONFIDENCES
        for method, latents in MODELS
        for k in (8, "all", "growing")
        if (latents, k) != (0, "all")  # no masked token is left for n = all either
    ]


def frontier(scale: Scale) -> list[Cell]:
    """Return models over their numbers of latent tokens with k = 8, and at both ends with k = 4 and uniform.

    With k = 8 there is an mdm off-distribution, too. All are decoded in fp32.
    """
    dial = scale.dial_of("sudoku-gen")
    fixed: list[tuple[str, Latents]] = [("sidm", None), ("mdm", None)]
    ends = [*fixed, *((method, n) for method in DEPTHS for n in (0, "all"))]
    every = [*fixed, *((method, n) for method in DEPTHS for n in dial)]
    return [
        *(boards(method, "top_prob", n, "k=8, fp32") for method, n in every),
        *(boards("mdm", "top_prob", n, f"k=8, {OFF_DISTRIBUTION}") for n in dial if n != "all"),
        *(boards(method, "top_prob", n, "k=4, fp32") for method, n in ends),
        *(boards(method, "uniform", n, "fp32") for method, n in ends),
    ]


ABLATIONS: dict[str, Experiment] = {
    "ablation-refresh": Experiment(
        "Algorithm 5: schedule reshuffled after every step, or as printed",
        lambda scale: [
            boards("scdm", "top_prob", latents, name)
            for latents in (*scale.chosen, "all")
            for name in ("plain", "as printed")
        ],
        "Measured for scdm only. All other results of mdm, sidm and scdm use the reshuffled schedule,"
        " which Algorithms 4 and 5 do not print.",
    ),
    "ablation-weight": Experiment(
        "AR-MTP: loss divided by all tokens to decode, or by the predicted ones (elbo)",
        lambda scale: [boards("ar-mtp", "left_to_right", None, name) for name in ("plain", "elbo")],
    ),
    "figure-compute": Experiment(
        "Accuracy by training steps",
        lambda scale: [
            boards(method, "left_to_right", None, name) for method in ("arm", "ar-mtp") for name in COMPUTE
        ],
    ),
    "ablation-candidates": Experiment(
        "Number of candidates",
        lambda scale: [
            boards(method, "top_prob", latents, f"k={k}")
            for method, latents in MODELS
            for k in (1, 2, 4, 8, 16, "all", "growing")
            if (latents, k) != (0, "all")  # no masked token is left for n = all either
        ],
        "k = all leaves no latent tokens, so scdm's result there holds for every n.",
    ),
    "ablation-confidence": Experiment(
        "Which candidate is decoded",
        confidences,
        "Noise is the scale of Gumbel noise on the log of the confidence, which falls to 0 over decoding"
        " (MaskGIT). k = all leaves no latent tokens, so scdm's result there holds for every n.",
    ),
    "ablation-infilling": Experiment(
        "Number of candidates, for a model of boards that infills puzzles",
        lambda scale: [
            Cell("sudoku-gen", method, "top_prob", latents, "sudoku-puzzle", f"k={k}")
            for method, latents in MODELS
            for k in (4, 8, "all", "growing")
            if (latents, k) != (0, "all")
        ],
        "k = all leaves no latent tokens, so scdm's result there holds for every n."
        " All seeds solve the same 1,000 puzzles.",
    ),
    "ablation-growing": Experiment(
        "Adaptive candidates (k = clean tokens + 1) on other tasks",
        lambda scale: [
            Cell(task, method, "top_prob", latents, variant=name)
            for task in ("sudoku-puzzle", "zebra", "countdown")
            for method, latents in MODELS[1:]
            for name in ("plain", "k=growing")
        ],
    ),
    "ablation-schedule": Experiment(
        "The same total number of latent tokens, at different steps",
        lambda scale: [
            boards("scdm", order, None, name)
            for order in ORDERS
            for name in ("constant", "a share", "early", "late")
        ],
    ),
    "ablation-targets": Experiment(
        "Training on all masked tokens, or on the target only",
        lambda scale: [
            boards(method, "top_prob", latents, name)
            for method, latents in SUPERVISED
            for name in ("plain", "target only")
        ],
    ),
    "ablation-latents": Experiment(
        "Which masked tokens serve as latents",
        lambda scale: [
            *(boards("scdm", order, latents, "plain") for order in ORDERS for latents in (0, "all")),
            *(
                boards("scdm", order, latents, name)
                for order in ORDERS
                for name in CHOICES
                for latents in scale.chosen
            ),
        ],
        "The default is the nearest masked tokens of the schedule.",
    ),
    "ablation-relevant": Experiment(
        "Four relevant latent tokens, on other tasks",
        lambda scale: [
            Cell(task, "scdm", order, latents, variant=name)
            for task in ("sudoku-puzzle", "countdown")
            for order in ORDERS
            for latents, name in WHICH
        ],
    ),
    "ablation-nats": Experiment(
        "Boards: exact nats by latent tokens, policy and timing", boards_in_nats, in_nats=True
    ),
    "figure-dead-ends": Experiment(
        "Boards without a solution left, by the number of candidates",
        lambda scale: [
            boards(method, "top_prob", latents, f"dead ends, k={k}")
            for method, latents in WITH_LATENTS
            for k in (1, 8, "all", "growing")
        ],
    ),
    "figure-predictions": Experiment(
        "Latent tokens whose most probable token is the one decoded later",
        lambda scale: [
            *(boards("scdm", order, latents, "watched") for order in ORDERS for latents in (4, "all")),
            *(boards("mdm", order, None, "watched") for order in ORDERS),
            boards("ar-mtp", "left_to_right", None, "watched"),
        ],
    ),
    "figure-depth": Experiment(
        "Accuracy by tokens processed, for models trained with other depths",
        frontier,
        "scdm-depth trains half of the rows under the independent rule, mdm-depth half of them with a uniform"
        " number of masked tokens. Off-distribution, the input of mdm has fewer of them than in training.",
        over=("decoded",),
    ),
    "figure-equal-compute": Experiment(
        "Accuracy by tokens in training and at inference, for one and three times the steps",
        lambda scale: [boards(*model, name) for model in BY_STEPS for name in ("plain", MORE_STEPS)],
        over=("trained", "decoded"),
    ),
    "ablation-steps": Experiment(
        "Number of candidates after three times the steps",
        lambda scale: [
            boards(method, "top_prob", n, f"{MORE_STEPS}, k={k}")
            for method, n in MODELS
            for k in (8, "growing")
            if n != 0
        ],
    ),
}
