"""The Trainer of transformers with the loss of a method, and equal random numbers in every evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

from latent_tokens.core.method import Method
from latent_tokens.sharing.collator import DiffusionCollator
from latent_tokens.tasks import Examples
from latent_tokens.tasks.examples import Example

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
        callbacks, optimizers, compute_metrics: as those of `Trainer`.

    Raises:
        ValueError: the model has no method or no MASK, and none is set.

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
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, LambdaLR | None] = (None, None),
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
    ) -> None:
        if method is None:
            method = getattr(getattr(model, "net", None), "method", None)
        if mask_id is None:
            mask_id = getattr(getattr(model, "config", None), "mask_token_id", None)
        if method is None or mask_id is None:
            problem = f"method={method}, mask_id={mask_id}: not set by {type(model).__name__}"
            raise ValueError(f"{problem}. Pass both, with a model of transformers.")
        args = copy(args)
        args.remove_unused_columns = False
        self.collator = DiffusionCollator(method, mask_id, args.seed + args.process_index)
        super().__init__(
            model,
            args,
            data_collator=self.collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            callbacks=callbacks,
            optimizers=optimizers,
            compute_metrics=compute_metrics,
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
