"""A trained model with its task: the short way to sample, evaluate and share it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from latent_tokens.checkpoints.pretrained import check_fits
from latent_tokens.checks import changed, check_choice
from latent_tokens.configs import EvalConfig, SamplingConfig
from latent_tokens.core.decoding import Decoding, is_off_distribution
from latent_tokens.core.method import Method
from latent_tokens.evaluation.evaluate import evaluate
from latent_tokens.evaluation.evaluators import judge_of
from latent_tokens.evaluation.generative_perplexity import evaluate_text
from latent_tokens.evaluation.problems import Batch, decode_batch, device_of, policy_for
from latent_tokens.evaluation.rows import judged_by
from latent_tokens.evaluation.settings import check_counts, check_policy, decoding_for, order_for
from latent_tokens.model.outputs import ResultTable, Samples
from latent_tokens.model.prompts import Prompt, problems_of
from latent_tokens.network.transformer import Transformer
from latent_tokens.sharing.hub_methods import push_to_hub, save_pretrained
from latent_tokens.tasks import Language, Task, Text, errors_of

FUNCTIONS = {setting.name for setting in fields(Decoding)}  # the settings that can be functions
FOR_SAMPLING = (*(setting.name for setting in fields(SamplingConfig)), "confidence")


@dataclass(frozen=True)
class Model:
    """A network with its method and its task, as `load` and `train` return it.

    Attributes:
        net: the network: a `Transformer`, or your own.
        method: the method that it was trained with.
        task: the task that it learned.
        directory: the directory that it was read from.

    Example:
        >>> load("sudoku-6-scdm").task.name
        'sudoku-6'
    """

    net: Transformer = field(repr=False)
    method: Method
    task: Language
    directory: Path

    def generate(
        self,
        prompt: Prompt | None = None,
        known: ArrayLike | None = None,
        *,
        num_samples: int | None = None,
        **settings: Any,
    ) -> Samples:
        """Return samples: of prompts, one each, or of problems of the task.

        Sample i depends on (seed, i) only.

        Args:
            prompt: a problem as text, several, `Examples` or items of them, or token ids (N, L). None makes
                problems of the test split, or texts without a prompt.
            known: for token ids, true at given positions. None: all that are not MASK.
            num_samples: the number of samples, by default 1. Several prompts have one each.
            **settings: any field of `SamplingConfig` (`latents=4`, `order="uniform"`, `seed=1`), or a
                function for a field of `Decoding` (`confidence=margin`). The defaults are those of
                `latent-tokens sample`.

        Raises:
            ValueError: a setting or the prompt does not suit the model.

        Example:
            >>> load("sudoku-6-scdm").generate(num_samples=2, latents=4).tokens.shape
            (2, 36)
        """
        check_fits(self.net, self.task)
        decoding, seed = self.decoding(settings)
        if isinstance(self.task, Text) and self.method.readout == "left" and prompt is None:
            prompt = ""  # the first token must be given: no slot is to its left
        examples = problems_of(self.task, self.net.mask_id, prompt, known, num_samples, seed)
        decoded = decode_batch(self.net, Batch.of(examples, device_of(self.net)), decoding, seed)
        samples = decoded.samples
        rows = list(zip(samples, examples.lengths.tolist(), strict=True))
        valid = None
        if isinstance(self.task, Task):
            valid = np.array([not errors_of(self.task, *row) for row in rows], np.bool_)
        return Samples(
            samples,
            [self.task.decode(sample[:length]) for sample, length in rows],
            valid,
            decoded.generated.processed.cpu().numpy(),
            decoded.generated.order.cpu().numpy(),
            decoded.generated.forward_passes,
            is_off_distribution(self.method, decoding.latents),
        )

    def evaluate(self, *, evaluator: str | None = None, **settings: Any) -> ResultTable:
        """Return the rows of `evaluate`, one per number of latent tokens.

        Args:
            evaluator: the evaluator model of generated text, by default trigrams of `data`.
            **settings: any field of `EvalConfig`.

        Raises:
            ValueError: as `evaluate`.

        Example:
            >>> results = load("sudoku-6-scdm").evaluate(latents=(0, 4), candidates=4, num_samples=8)
            >>> [row["latents"] for row in results.rows]
            [0, 4]
        """
        config = changed(EvalConfig(), settings)
        order = order_for(self.method, self.task, config)
        check_counts(self.method, order, config.latents or (), config.candidates, config.latent_policy)
        if isinstance(self.task, Text):
            judge_model = judge_of(evaluator, config, self.task, device_of(self.net))
            rows = evaluate_text(self.net, self.task, config, judge_model)
        elif evaluator is not None:
            raise ValueError(
                f"evaluator={evaluator}: is for text, and {self.task.name} has a verifier. Leave it out."
            )
        else:
            rows = evaluate(self.net, cast(Task, self.task), config)
        title = f"{self.directory.name}, {rows[0]['num_samples']:,} samples per row{judged_by(rows[0])}"
        return ResultTable(rows, title)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write a model directory with its card (`Transformer.save_pretrained`).

        Args:
            folder: the directory. A model in it is replaced.
            **options: as those of `Transformer.save_pretrained`.

        Example:
            model.save_pretrained("models/six", license="mit")
        """
        save_pretrained(self.net, folder, **options)

    def push_to_hub(self, name: str, **options: Any) -> str:
        """Save the model as OWNER/NAME on the Hugging Face Hub (`Transformer.push_to_hub`).

        Args:
            name: OWNER/NAME on the hub.
            **options: as those of `Transformer.push_to_hub`.

        Returns:
            The address of the commit.

        Example:
            model.push_to_hub("me/six", private=True)
        """
        return push_to_hub(self.net, name, **options)

    def decoding(self, settings: dict[str, Any]) -> tuple[Decoding, int]:
        """Return the `Decoding` and the seed of settings by name.

        Raises:
            ValueError: a setting is unknown, out of range, or not supported by the method.
        """
        for name in settings:
            check_choice("setting", name, FOR_SAMPLING)
        functions = {name: settings[name] for name in settings.keys() & FUNCTIONS if callable(settings[name])}
        named = {name: value for name, value in settings.items() if name not in functions}
        if "confidence" in named:
            raise ValueError(f"confidence={named['confidence']}: must be a function. Use order='margin'.")
        config = SamplingConfig(**named)
        decoding = decoding_for(self.method, self.task, config)
        order = order_for(self.method, self.task, config)
        latents = functions.get("latents", config.latents)
        check_counts(self.method, order, [latents], config.candidates, config.latent_policy)
        policy = EvalConfig(
            latent_policy=config.latent_policy, seed=config.seed, off_distribution=config.off_distribution
        )
        check_policy(self.method, policy)
        decoding = replace(decoding, latent_policy=policy_for(self.net, self.task, policy))
        return replace(decoding, **functions), config.seed
