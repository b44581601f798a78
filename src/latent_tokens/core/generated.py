"""What a decode returns: the samples, and each of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens.core.layout import Layout


@dataclass(frozen=True)
class Generated:
    """The samples that `generate` returns: B rows of L positions.

    Example:
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> generate(net, net.method, known.long(), known).forward_passes
        36
    """

    tokens: Int[Tensor, "B L"]
    order: Int[Tensor, "B L"]  # known positions, then the others as decoded, those past the length
    tokens_processed: Int[Tensor, " B"]  # slots of the input, cached or not, summed over steps
    passes: Int[Tensor, " B"]  # forward passes: how many times the row was in the network's input

    @property
    def forward_passes(self) -> int:
        """The largest number of passes of a row."""
        return max(self.passes.tolist(), default=0)


@dataclass(frozen=True)
class Step:
    """One decoding step, as `on_step` receives it: all that is needed to draw it.

    A is the number of unfinished rows.

    Example:
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> steps = []
        >>> generate(net, net.method, known.long(), known, latents=4, on_step=steps.append).forward_passes
        36
        >>> len(steps[0].latents[0])
        4
    """

    rows: Int[Tensor, " A"]  # which rows of the batch
    number: Int[Tensor, " A"]  # steps that each row has taken before
    layout: Layout  # the input: layout.positions, num_clean, num_shown
    num_candidates: Int[Tensor, " A"]
    chosen: Int[Tensor, "A T"]  # positions, the most confident first; -1 if a row decodes fewer
    tokens: Int[Tensor, "A T"]  # the tokens decoded there; -1 likewise
    look: Callable[[], Float[Tensor, "A S V"]]  # computes the logits of every slot
    # Computes the probabilities of `tokens`, before temperature
    decoded_probabilities: Callable[[], Float[Tensor, "A T"]]

    @cached_property
    def probabilities(self) -> Float[Tensor, "A S V"]:
        """Predicted probabilities at every masked slot, before temperature and top-p.

        Computed on first use.
        """
        with torch.no_grad():
            return self.look().softmax(-1)

    @property
    def clean(self) -> list[list[int]]:
        """The given and decoded positions of each row, in the order of their slots."""
        return self._slots(torch.zeros_like(self.layout.num_clean), self.layout.num_clean)

    @property
    def candidates(self) -> list[list[int]]:
        """The candidate positions of each row, in the order of their slots."""
        return self._slots(self.layout.num_shown - self.num_candidates, self.layout.num_shown)

    @property
    def latents(self) -> list[list[int]]:
        """The latent positions of each row, in the order of their slots."""
        return self._slots(self.layout.num_clean, self.layout.num_shown - self.num_candidates)

    def table(self) -> list[dict[str, int | float | str]]:
        """Return a row per masked token of the input: sample, step, position, role, token and probability.

        The role is decoded, candidate or latent. The token is the decoded one, else the most
        probable one, and the probability is the predicted one.

        Example:
            >>> rows = []
            >>> load("sudoku-6-scdm").generate(on_step=lambda step: rows.extend(step.table())).forward_passes
            36
            >>> rows[0]["sample"], rows[0]["step"], rows[0]["role"]  # pandas.DataFrame(rows) takes them
            (0, 0, 'candidate')
        """
        best = self.probabilities.argmax(-1)  # (A, S)
        table: list[dict[str, int | float | str]] = []
        for row, (candidates, latents) in enumerate(
            zip(self.candidates, self.latents, strict=True)
        ):
            tokens = dict(zip(self.chosen[row].tolist(), self.tokens[row].tolist(), strict=True))
            roles = dict.fromkeys(latents, "latent") | dict.fromkeys(candidates, "candidate")
            of_sample = {"sample": int(self.rows[row]), "step": int(self.number[row])}
            first_slot = int(self.layout.num_clean[row])
            for slot, position in enumerate(roles, start=first_slot):
                token = tokens.get(position, int(best[row, slot]))
                entry = {
                    "position": position,
                    "role": "decoded" if position in tokens else roles[position],
                    "token": token,
                    "probability": float(self.probabilities[row, slot, token]),
                }
                table.append({**of_sample, **entry})
        return table

    def _slots(self, start: Int[Tensor, " A"], stop: Int[Tensor, " A"]) -> list[list[int]]:
        rows = zip(self.layout.positions.tolist(), start.tolist(), stop.tolist(), strict=True)
        return [positions[a:b] for positions, a, b in rows]
