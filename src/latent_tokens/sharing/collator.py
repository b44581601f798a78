"""Training exported models with transformers: a collator and a trainer that keeps the evaluation fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from transformers import Trainer, TrainingArguments

from latent_tokens.core.attention import dense_mask
from latent_tokens.core.denoiser import exclude_mask_token, unwrap
from latent_tokens.core.method import Method
from latent_tokens.core.objective import corrupt
from latent_tokens.data.loading import as_tensors
from latent_tokens.network.fast import check_method
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.network.transformer import Transformer
from latent_tokens.sharing.model_inputs import IGNORED_LABEL
from latent_tokens.tasks import Examples
from latent_tokens.tasks.examples import Example, stack


@dataclass
class DiffusionCollator:
    """Draws orders and numbers of clean tokens for some examples, as `latent_tokens.loss` does.

    `loss` of its batch is that of `latent_tokens.loss` for the same random numbers. Each call draws new ones.
    In a worker process of a DataLoader they also depend on the worker's seed.

    Args:
        method: how to train.
        mask_id: the id of MASK.
        seed: the seed of orders and numbers of clean tokens. Give each rank another one.

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
    generator: torch.Generator = field(default_factory=torch.Generator, init=False, repr=False)
    seeded_with: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_method(None, self.method)

    def __call__(self, items: Sequence[Example | tuple[ArrayLike, ArrayLike, int]]) -> dict[str, Tensor]:
        """Return the batch of B examples of L positions.

        Args:
            items: items of `Examples`: dicts with tokens, known and length, or the same in tuples.

        Returns:
            input_ids: Int (B, S).
            position_ids: Int (B, S).
            attention_mask: Bool (B, 1, S, S), true if a slot attends to another.
            labels: Int (B, S), -100 where nothing is scored.
            weights: Float (B, S), the weight of each slot in the loss.

        Raises:
            ValueError: the items are not examples of one L, one has no unknown position, or the method cannot
                take the known positions.
        """
        method = self.method
        clean_tokens, known_positions, num_positions = as_tensors(stack(items))
        batch = corrupt(
            method, clean_tokens, known_positions, self.seeded(), mask_id=self.mask_id, lengths=num_positions
        )
        targets = batch.tokens.gather(1, batch.layout.positions)
        return {
            "input_ids": method.input_ids(batch.tokens, batch.layout, self.mask_id),
            "position_ids": batch.layout.positions,
            "attention_mask": dense_mask(method.attention, batch.layout)[:, None],
            "labels": targets.masked_fill(~batch.scored, IGNORED_LABEL),
            "weights": batch.weight[:, None] * batch.scored,
        }

    def loss(
        self, logits: Float[Tensor, "B S V"], labels: Int[Tensor, "B S"], weights: Float[Tensor, "B S"]
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch from the network's logits: the weighted sum of its cross-entropies.

        Args:
            logits: of the slots of the batch.
            labels: the tokens to predict, and -100 for slots that are not scored.
            weights: the weight of each slot.

        Example:
            loss = collator.loss(outputs.logits, batch["labels"], batch["weights"])
        """
        return weighted_cross_entropy(exclude_mask_token(self.mask_id, logits), labels, weights)

    def seeded(self) -> torch.Generator:
        """Return the generator of this process. A copy of it in another process gets another seed."""
        worker = get_worker_info()
        seed = self.seed if worker is None else (self.seed + worker.seed) % (1 << 63)
        if self.seeded_with != seed:
            self.seeded_with = seed
            self.generator.manual_seed(seed)
        return self.generator


def weighted_cross_entropy(
    logits: Float[Tensor, "B S V"], labels: Int[Tensor, "B S"], weights: Float[Tensor, "B S"]
) -> Float[Tensor, ""]:
    """Return the sum of the cross-entropies of labels that are not -100, times their weights."""
    scored = labels != IGNORED_LABEL
    nll = F.cross_entropy(logits[scored].float(), labels[scored], reduction="none")
    return (nll * weights[scored]).sum()


ItemDataset = Dataset[Example] | Sequence[Example] | Examples


class LatentTokensTrainer(Trainer):
    """A Trainer whose loss is `latent_tokens.loss`. Every evaluation draws the same random numbers.

    Evaluations use no worker processes of a DataLoader.

    Args:
        model: a LatentTokensForMaskedLM, also with adapters of peft, or another network of transformers that
            takes `position_ids` and a 4D `attention_mask`.
        args: the settings. Columns of the data sets are never removed.
        method: how to train. None is the model's own method.
        mask_id: the id of MASK. None is the one of the model's config.
        train_dataset: items with tokens, known and length, or `Examples`.
        eval_dataset: the same for evaluations.
        options: of `Trainer`.

    Raises:
        ValueError: the model is not one of transformers, or has no method, and none is set.

    Example:
        >>> LatentTokensTrainer(model, TrainingArguments("runs/tuned"), train_dataset=examples).train()
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        method: Method | None = None,
        mask_id: int | None = None,
        train_dataset: ItemDataset | None = None,
        eval_dataset: ItemDataset | None = None,
        **options: Any,
    ) -> None:
        check_is_of_transformers(model)
        if method is None:
            method = getattr(getattr(model, "net", None), "method", None)
        if mask_id is None:
            mask_id = getattr(getattr(model, "config", None), "mask_token_id", None)
        missing = [name for name, value in (("method", method), ("mask_id", mask_id)) if value is None]
        if method is None or mask_id is None:
            names = " and ".join(missing)
            raise ValueError(f"{names}: not set by {type(model).__name__}. Pass {names}.")
        args = copy(args)
        args.remove_unused_columns = False
        self.collator = DiffusionCollator(method, mask_id, args.seed + args.process_index)
        super().__init__(
            model,
            args,
            data_collator=self.collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            **options,
        )
        self.model_accepts_loss_kwargs = False  # the loss is a mean over the batch, not a sum over items

    def compute_loss(  # type: ignore[override]
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a collated batch, from one forward pass."""
        outputs = model(
            input_ids=inputs["input_ids"],
            position_ids=inputs["position_ids"],
            attention_mask=inputs["attention_mask"],
        )
        loss = self.collator.loss(outputs.logits, inputs["labels"], inputs["weights"])
        return (loss, {"logits": outputs.logits}) if return_outputs else loss

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return the batches of an evaluation, drawn by a new collator in this process."""
        with self.drawing_anew():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Dataset[Example]) -> DataLoader[dict[str, Tensor]]:
        """Return the batches of `predict`, drawn by a new collator in this process."""
        with self.drawing_anew():
            return super().get_test_dataloader(test_dataset)

    @contextmanager
    def drawing_anew(self) -> Iterator[None]:
        """Use a new collator and no worker processes, which would draw other numbers each time."""
        args = self.args
        self.args = copy(args)
        self.args.dataloader_num_workers = 0
        self.args.dataloader_persistent_workers = False
        self.args.dataloader_prefetch_factor = None
        self.args.dataloader_multiprocessing_context = None
        self.data_collator = replace(self.collator)
        try:
            yield
        finally:
            self.args = args
            self.data_collator = self.collator


def check_is_of_transformers(model: nn.Module) -> None:
    """Raise ValueError if a model is a `Transformer` or a `HuggingFaceDenoiser`, which `fit` trains."""
    inner = unwrap(model)
    if isinstance(inner, HuggingFaceDenoiser):
        raise ValueError(
            "model=HuggingFaceDenoiser: is not of transformers. Pass net.model, method and mask_id."
        )
    if isinstance(inner, Transformer):
        fix = "Save it, and open the directory with AutoModelForMaskedLM"
        raise ValueError(f"model=Transformer: is not of transformers. {fix}.")
