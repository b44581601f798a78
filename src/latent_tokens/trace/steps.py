"""A step of a decode as cells: decoded, candidate and latent, with their predicted probabilities."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from latent_tokens.core.decoding import Step
from latent_tokens.trace.events import StepCells

TOP_TOKENS = 6  # most likely tokens of a cell
NINE = 9  # on a board of 9x9, all digits
DIGITS = 3  # of a probability


def cells_of(step: Step, cell_of: dict[int, int]) -> StepCells:
    """Return the cells of a step of one sample. Positions that are not drawn are left out."""
    layout = step.layout
    num_clean = int(layout.num_clean[0])
    num_shown = int(layout.num_shown[0])
    masked = layout.positions[0, num_clean:num_shown].tolist()
    probabilities = step.probabilities[0, num_clean:num_shown]
    decoded = zip(step.chosen[0].tolist(), step.tokens[0].tolist(), strict=True)
    return {
        "step": int(step.number[0]),
        "chosen": [[cell_of[position], token] for position, token in decoded if position in cell_of],
        "candidates": [cell_of[position] for position in step.candidates[0] if position in cell_of],
        "latents": [cell_of[position] for position in step.latents[0] if position in cell_of],
        "beliefs": dict(top_probabilities(masked, probabilities, cell_of)),
    }


def top_probabilities(
    positions: list[int], probabilities: Float[Tensor, "N V"], cell_of: dict[int, int]
) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield each cell with its most likely tokens and their probabilities, if they do not round to 0."""
    most = NINE if len(cell_of) == NINE**2 else TOP_TOKENS
    top = probabilities.topk(min(most, probabilities.shape[1]), dim=1)
    for position, tokens, values in zip(positions, top.indices.tolist(), top.values.tolist(), strict=True):
        if position in cell_of:
            pairs = [[token, round(value, DIGITS)] for token, value in zip(tokens, values, strict=True)]
            yield str(cell_of[position]), [pair for pair in pairs if pair[1] > 0]
