"""Batches of a method for training loops of others: `DiffusionCollator` and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import get_worker_info

from latent_tokens.checks import refuse
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.denoiser import token_logits
from latent_tokens.core.layout import left_slots
from latent_tokens.core.method import Method, checked_method
from latent_tokens.core.objective import corrupt, cross_entropy
from latent_tokens.core.state import write_tokens
from latent_tokens.data.loading import as_tensors
from latent_tokens.tasks.examples import Example, stack

IGNORED_LABEL = -100  # as everywhere in transformers


@dataclass
class DiffusionCollator:
    """Draws orders and numbers of clean tokens for some examples, as `latent_tokens.loss` does.

    `loss` of its batch is that of `latent_tokens.loss` for the same random numbers. Each call draws
    new ones. In a worker process of a DataLoader they also depend on the worker's seed.

    Args:
        method: how to train.
        mask_id: the id of MASK.
        seed: the seed of orders and numbers of clean tokens. Give each rank another one.
        vocab_size: the number of tokens. Columns of logits from it on are excluded from the loss,
            as of a network with this `vocab_size`. None excludes that of MASK only.

    Raises:
        ValueError: the method is not a `Method`.

    Example:
        >>> collate = DiffusionCollator(METHODS["scdm"], mask_id=4)
        >>> examples = TASKS["sudoku-4"].generate(8, seed=0)
        >>> batch = next(iter(DataLoader(examples, batch_size=8, collate_fn=collate)))
        >>> sorted(batch)
        ['attention_mask', 'input_ids', 'labels', 'position_ids', 'weights']
    """

    method: Method
    mask_id: int
    seed: int = 0
    vocab_size: int | None = None
    generator: torch.Generator = field(default_factory=torch.Generator, init=False, repr=False)
    seeded_with: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        checked_method(None, self.method)

    def __call__(self, items: Sequence[Example]) -> dict[str, Tensor]:
        """Return the batch of B examples of L positions.

        Args:
            items: items of `Examples`: dicts with tokens, known and length.

        Returns:
            input_ids: Int (B, S).
            position_ids: Int (B, S).
            attention_mask: Bool (B, 1, S, S), true if a slot attends to another.
            labels: Int (B, S), -100 where nothing is scored.
            weights: Float (B, S), the weight of each slot in the loss.

        Raises:
            ValueError: the items are not examples of one L, one has no tokens or no unknown position,
                or the method cannot take the known positions.
        """
        method = self.method
        if any("tokens" not in item for item in items):
            problem = "have no tokens: a Trainer drops what its model does not name"
            refuse("items", problem, "TrainingArguments(remove_unused_columns=False)")
        clean_tokens, known_positions, num_positions = as_tensors(stack(items))
        batch = corrupt(
            method,
            clean_tokens,
            known_positions,
            self.seeded(),
            mask_id=self.mask_id,
            lengths=num_positions,
        )
        targets = batch.tokens.gather(1, batch.layout.positions)
        labels = targets.masked_fill(~batch.scored, IGNORED_LABEL)
        weights = batch.weight[:, None] * batch.scored
        if method.readout == "left":  # a prediction is read at the slot of the position before
            read = left_slots(batch.layout)
            labels = write_tokens(
                torch.full_like(labels, IGNORED_LABEL), read, labels, batch.scored
            )
            weights = write_tokens(torch.zeros_like(weights), read, weights, batch.scored)
        return {
            "input_ids": method.input_ids(batch.tokens, batch.layout, self.mask_id),
            "position_ids": batch.layout.positions,
            "attention_mask": dense_mask(method.attention, batch.layout)[:, None],
            "labels": labels,
            "weights": weights,
        }

    def loss(
        self,
        logits: Float[Tensor, "B S V"],
        labels: Int[Tensor, "B S"],
        weights: Float[Tensor, "B S"],
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch from the network's logits: the weighted sum of its cross-entropies.

        Args:
            logits: of the slots of the batch.
            labels: the tokens to predict, and -100 for slots that are not scored.
            weights: the weight of each slot.

        Example:
            loss = collator.loss(outputs.logits, batch["labels"], batch["weights"])
        """
        return weighted_cross_entropy(token_logits(self, logits), labels, weights)

    def seeded(self) -> torch.Generator:
        """Return the generator of this process. A copy of it in another process gets another seed."""
        worker = get_worker_info()
        seed = self.seed
        if worker is not None:
            # A sum would be that of another worker of another rank.
            state = np.random.SeedSequence((self.seed, worker.seed)).generate_state(1, np.uint64)
            seed = int(state[0] >> np.uint64(1))
        if self.seeded_with != seed:
            self.seeded_with = seed
            self.generator.manual_seed(seed)
        return self.generator


def weighted_cross_entropy(
    logits: Float[Tensor, "B S V"], labels: Int[Tensor, "B S"], weights: Float[Tensor, "B S"]
) -> Float[Tensor, ""]:
    """Return the sum of the cross-entropies of labels that are not -100, times their weights."""
    scored = labels != IGNORED_LABEL
    nll = cross_entropy(logits[scored], labels[scored])
    return (nll * weights[scored]).sum()
