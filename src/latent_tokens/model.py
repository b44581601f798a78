"""The ten-line interface: `load`, `train` and `Model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from latent_tokens.checkpoints.files import find
from latent_tokens.checkpoints.learned import check_fits, check_learned, learned_task
from latent_tokens.checks import check_int, check_setting
from latent_tokens.configs import EvalConfig, SamplingConfig
from latent_tokens.core.decoding import Decoding, is_off_distribution
from latent_tokens.core.denoiser import as_denoiser, unwrap
from latent_tokens.core.generated import Step
from latent_tokens.core.method import Method, name_of
from latent_tokens.devices import fastest_device
from latent_tokens.evaluation.evaluate import evaluate
from latent_tokens.evaluation.likelihood import DEFAULT_ORDERS, likelihoods, sequences_of
from latent_tokens.evaluation.problems import (
    Batch,
    decode_batch,
    decoding_with_policy,
    device_of,
    samples_in_words,
    without_prompt,
)
from latent_tokens.evaluation.rows import append_result, judged_by
from latent_tokens.evaluation.settings import split_functions
from latent_tokens.hf.directory import from_pretrained, open_models
from latent_tokens.hf.export import export_model, push_to_hub
from latent_tokens.keywords import EvalKeywords, SamplingKeywords, TrainSettings
from latent_tokens.network.transformer import Transformer
from latent_tokens.outputs import ResultTable, Samples
from latent_tokens.plugins import is_dotted
from latent_tokens.sizes import in_millions
from latent_tokens.storage import create_directory
from latent_tokens.tasks import (
    Examples,
    Language,
    Sudoku,
    SudokuPuzzle,
    Task,
    Text,
    Tokens,
    check_instance,
    errors_of,
    joined,
)
from latent_tokens.tasks.base import check_tokens
from latent_tokens.tasks.examples import Example, stack
from latent_tokens.training.loop import fit

NO_PROMPT = "prompt: is empty. Pass at least one, or None for problems of the task."
Prompt = str | Sequence[str] | Examples | Example | Sequence[Example] | ArrayLike


def prompt_problems(
    net: Transformer,
    task: Language,
    prompt: Prompt | None,
    known: ArrayLike | None,
    num_samples: int | None,
    seed: int,
) -> Examples:
    """Return the problems of samples, one each. Takes its arguments, and raises, as `Model.generate`."""
    if num_samples is not None:
        check_int("num_samples", num_samples, 1)
    if prompt is None:
        if known is not None:
            fix = "Pass tokens of the same shape, or leave known out."
            raise ValueError(f"known: there is no prompt. {fix}")
        return without_prompt(net, task, num_samples or 1, seed)
    examples = examples_of(task, net.mask_id, prompt, known)
    fix = f"Use {net.mask_id}, MASK, at positions to decode"
    check_tokens(task, examples.tokens, examples.known, "prompt", fix)
    if num_samples is None:
        return examples
    if len(examples.tokens) > 1:
        problem = f"there are {len(examples.tokens)} prompts, and each has one sample"
        raise ValueError(f"num_samples={num_samples}: {problem}. Leave it out.")
    return examples.take(np.zeros(num_samples, np.int64))


def examples_of(task: Language, mask_id: int, prompt: Prompt, known: ArrayLike | None) -> Examples:
    """Return prompts as examples without their answers.

    Raises:
        ValueError: a text is not a prompt of the task, or the arrays do not have its shape.
    """
    examples = complete_examples(task, prompt)
    if examples is not None:
        if known is not None:
            problem = "is for token ids, and this prompt has its given tokens"
            raise ValueError(f"known: {problem}. Leave it out.")
        return examples

    # Token ids, of torch, numpy or lists. torch has few operations on uint16, the type of stored text.
    tokens = tensor_of(prompt)
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"prompt of {tokens.dtype}: must be text, or token ids")
    if not tokens.numel():
        raise ValueError(NO_PROMPT)
    tokens = tokens.long()
    given = (
        tokens != mask_id if known is None else tensor_of(known, "known", "true or false (N, L)")
    )
    if tokens.dim() == 1:
        tokens = tokens[None]
        given = given.reshape(1, -1)
    is_of_task = tokens.shape[1:] == (task.length,) and given.shape == tokens.shape
    if not is_of_task or given.dtype != torch.bool:
        shapes = f"tokens {tuple(tokens.shape)}, known {tuple(given.shape)} of {given.dtype}"
        raise ValueError(f"{shapes}: must be (N, {task.length}), known of bool")
    if lengths_vary(task):
        problem = f"the sequences of {task.name} have different lengths, which ids do not tell"
        raise ValueError(f"prompt of token ids: {problem}. Pass text, or Examples.")
    if known is None and given.all():
        fix = f"Pass known, true at given positions, or token {mask_id}, MASK, at the others."
        raise ValueError(f"known=None: every token is given. {fix}")
    ids = tokens.masked_fill(~given.to(tokens.device), 0).cpu().numpy()
    return Examples.of(cast(Tokens, ids), given.cpu().numpy())


PROBED = 16  # examples, whose lengths tell whether those of a task vary


def lengths_vary(task: Language) -> bool:
    """Return whether the sequences of a task have different lengths. Those of Sudoku and text have one."""
    if isinstance(task, Sudoku | SudokuPuzzle | Text) or not isinstance(task, Task):
        return False
    return bool((task.generate(PROBED, seed=0).lengths < task.length).any())


def tensor_of(
    values: Prompt | ArrayLike,
    name: str = "prompt",
    must: str = "text, Examples, or token ids (N, L)",
) -> torch.Tensor:
    """Return numbers as a tensor. An array is copied, because one of a data set may be read-only."""
    try:
        return torch.as_tensor(np.array(values) if isinstance(values, np.ndarray) else values)
    except (TypeError, ValueError, RuntimeError):  # not numbers, or rows of several lengths
        kind = type(values).__name__
        raise ValueError(f"{name} of {kind}: must be {must}") from None


def complete_examples(task: Language, prompt: Prompt) -> Examples | None:
    """Return a prompt of text or examples as examples, or None if it is of token ids."""
    if isinstance(prompt, Examples):
        return prompt
    items = list(prompt) if isinstance(prompt, list | tuple) else [prompt]
    if not items:
        raise ValueError(NO_PROMPT)
    if all(isinstance(item, str) for item in items):
        return joined([task.encode(str(item)) for item in items])
    if all(
        isinstance(item, dict) and item.keys() == Example.__annotations__.keys() for item in items
    ):
        return stack(cast(list[Example], items))
    return None


FOR_SAMPLING = ("num_samples", "select", "remask", *(f.name for f in fields(SamplingConfig)))
OF_LIKELIHOOD = ("order", "latents", "latent_policy", "seed", "off_distribution")


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

    net: Transformer
    method: Method
    task: Language
    directory: Path

    def __repr__(self) -> str:
        shape = f"{self.net.size}, " if isinstance(self.net, Transformer) else ""
        size = f"{shape}{in_millions(self.num_parameters())} parameters"
        return f"Model({name_of(self.method)} of {self.task.name}, {size}, {self.directory})"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return device_of(self.net)

    def to(self, device: torch.device | str) -> Model:
        """Move the network to a device, in place, and return the model.

        Example:
            >>> load("sudoku-6-scdm").to("cpu").device
            device(type='cpu')
        """
        self.net.to(device)
        return self

    def num_parameters(self) -> int:
        """Return the number of weights, each counted once.

        Example:
            >>> load("sudoku-6-scdm").num_parameters()
            797703
        """
        return sum(weight.numel() for weight in self.net.parameters())

    def generate(
        self,
        prompt: Prompt | None = None,
        known: ArrayLike | None = None,
        *,
        num_samples: int | None = None,
        on_step: Callable[[Step], None] | None = None,
        **settings: Unpack[SamplingKeywords],
    ) -> Samples:
        """Return samples: of prompts, one each, or of problems of the task.

        Sample i depends on (seed, i) only.

        Args:
            prompt: a problem as text, several, `Examples` or items of them, or token ids (N, L).
                None makes problems of the test split, or texts without a prompt.
            known: for token ids, true at given positions. None: all that are not MASK.
            num_samples: the number of samples, by default 1. Several prompts have one each.
            on_step: called with every step, as by `generate`.
            **settings: any field of `SamplingConfig` (`latents=4`, `order="uniform"`, `seed=1`), or
                a function for a field of `Decoding` (`confidence=margin`). The defaults are those
                of `latent-tokens sample`.

        Raises:
            ValueError: a setting or the prompt does not suit the model.

        Example:
            >>> load("sudoku-6-scdm").generate(num_samples=2, latents=4).tokens.shape
            (2, 36)
        """
        check_fits(self.net, self.task)
        decoding, seed = self.decoding(settings)
        examples = prompt_problems(self.net, self.task, prompt, known, num_samples, seed)
        batch = Batch.of(examples, device_of(self.net))
        decoded = decode_batch(self.net, batch, decoding, seed, on_step)
        rows = list(zip(decoded.samples, examples.lengths.tolist(), strict=True))
        valid = None
        if isinstance(self.task, Task):
            valid = np.array([not errors_of(self.task, *row) for row in rows], np.bool_)
        return Samples(
            tokens=decoded.samples,
            text=samples_in_words(self.task, decoded.samples, examples),
            valid=valid,
            tokens_processed=decoded.generated.tokens_processed.cpu().numpy(),
            order=decoded.generated.order.cpu().numpy(),
            forward_passes=decoded.generated.forward_passes,
            off_distribution=is_off_distribution(self.method, decoding.latents),
        )

    def evaluate(
        self,
        *,
        evaluator: str | None = None,
        out: str | Path | None = None,
        **settings: Unpack[EvalKeywords],
    ) -> ResultTable:
        """Return the rows of `evaluate`, one per combination of settings.

        Args:
            evaluator: the evaluator model of generated text, by default trigrams of `data`.
            out: the directory whose results.jsonl receives each row when it is measured, where
                `results` finds it: `model.directory` for a run. None stores no rows.
            **settings: any field of `EvalConfig`, or a function for a field of `Decoding`, which the
                rows name.

        Raises:
            ValueError: as `evaluate`.

        Example:
            >>> results = load("sudoku-6-scdm").evaluate(latents=(0, 4), candidates=4, num_samples=8)
            >>> [row["latents"] for row in results.rows]
            [0, 4]
        """
        if out is None:
            rows = evaluate(self.net, self.task, evaluator=evaluator, **settings)
        else:
            create_directory(Path(out))  # before anything is measured
            keep = partial(append_result, Path(out) / "results.jsonl")
            rows = evaluate(self.net, self.task, evaluator=evaluator, on_row=keep, **settings)
        title = self.directory.absolute().name
        if rows:  # of text, ranks other than 0 have none
            title += f", {rows[0]['num_samples']:,} samples per row{judged_by(rows[0])}"
        return ResultTable(rows, title)

    def likelihood(
        self,
        text: str | None = None,
        *,
        data: str | Path | None = None,
        num_sequences: int | None = None,
        orders: int = DEFAULT_ORDERS,
        **settings: Any,
    ) -> list[dict[str, Any]]:
        """Return the exact likelihood of a text, averaged over decoding orders, one row per n.

        Args:
            text: the text. None is the test split of `data`.
            data: the directory of a data set. None is the text.
            num_sequences: the number of sequences, evenly spaced. None is all of a text, and 64 of
                a data set.
            orders: the number of random orders.
            **settings: order, latents, latent_policy, seed and off_distribution of `EvalConfig`.

        Returns:
            Rows with nats_per_token, perplexity, bits_per_byte and others, as `latent-tokens
            likelihood --json` prints them.

        Raises:
            ValueError: the model did not learn text, or does not support a setting.

        Example:
            load("runs/text").likelihood("Once upon a time", latents=(0, 16))[1]["perplexity"]
        """
        if not isinstance(self.task, Text):
            raise ValueError(f"likelihood: the model learned {self.task.name}. Use a text model.")
        for name in settings:
            check_setting(name, OF_LIKELIHOOD)
        config = EvalConfig(data=None if data is None else Path(data), **settings)
        source = "text" if data is None else f"data={data}"
        examples = sequences_of(self.net, self.task, text, data, num_sequences, source)
        return likelihoods(self.net, self.task, examples, config, orders=orders)

    def save_pretrained(
        self, folder: str | Path, *, dtype: torch.dtype | None = None, license: str | None = None
    ) -> None:
        """Write a model directory with its card and its tokenizer, which transformers opens too.

        Args:
            folder: the directory. A model in it is replaced.
            dtype: the precision on disk. None is that of the weights.
            license: the license that the card names, as spelled on the hub. None names no license.

        Example:
            model.save_pretrained("models/six", license="mit")
        """
        export_model(self.net, folder, dtype=dtype, license=license, task=self.task)

    def push_to_hub(self, name: str, **options: Any) -> str:
        """Save the model as OWNER/NAME on the Hugging Face Hub in one commit, and return its address.

        Args:
            name: OWNER/NAME on the hub.
            **options: dtype and license as those of `save_pretrained`, private, token, and settings
                of `upload_folder` of huggingface_hub, such as revision.

        Example:
            model.push_to_hub("me/six", private=True)
        """
        return push_to_hub(self.net, name, task=self.task, **options)

    def decoding(self, settings: Mapping[str, Any]) -> tuple[Decoding, int]:
        """Return the `Decoding` and the seed of settings by name.

        Raises:
            ValueError: a setting is unknown, out of range, or not supported by the method.
        """
        for name in settings:
            check_setting(name, FOR_SAMPLING)
        named, functions = split_functions(settings)
        config = SamplingConfig(**named)
        decoding = decoding_with_policy(self.net, self.method, self.task, config, functions)
        return decoding, config.seed


def load(
    folder_or_name: str | Path,
    *,
    task: str | Language | None = None,
    method: str | None = None,
    base: str | Path | None = None,
) -> Model:
    """Return the model of a directory, a bundled model, or a model of the Hugging Face Hub, OWNER/NAME.

    It is in eval mode, on the fastest device available.

    Args:
        folder_or_name: the directory or name.
        task: the task that it learned, if that is your own: an object, or module:Name. None: the
            one that the directory names.
        method: its method, if that has functions of your own, as module:name. None: the one of the
            directory.
        base: the model that a LoRA adapter belongs to, as for `from_pretrained`.

    Raises:
        ValueError: as `from_pretrained`, or the task is not one of this version.

    Example:
        >>> model = load("sudoku-6-scdm")
        >>> model.task.name
        'sudoku-6'
    """
    folder = find(folder_or_name)
    (net,) = open_models(folder, method=method, base=base)
    net = net.to(fastest_device())
    if task is None or isinstance(task, str):
        learned: Language = learned_task(folder, task)
    else:
        check_instance(task)
        check_learned(task.name, task, folder)
        learned = task
    return Model(net, net.method, learned, folder)


def train(
    task: str | Language,
    method: str | Method,
    *,
    net: nn.Module | None = None,
    **settings: Unpack[TrainSettings],
) -> Model:
    """Train a model with `fit`, and return it.

    Args:
        task: the name of a task, or your own.
        method: the name of a method, or your own.
        net: your own network, which is trained in place. It needs `out`.
        **settings: any field of `TrainConfig` (`steps=600`, `size="tiny"`, `start="runs/other"`).

    Raises:
        ValueError: as `fit`.

    Example:
        mine = train("sudoku-4", "scdm", steps=600)
        print(mine.generate(num_samples=100, latents="all").valid.mean())
    """
    if not isinstance(task, str) and not isinstance(getattr(task, "name", None), str):
        raise ValueError(f"task={task!r}: must be a task, or its name like 'sudoku-4'")
    if not isinstance(method, str | Method):
        raise ValueError(f"method={method!r}: must be a method, or its name like 'scdm'")
    if net is not None:
        as_denoiser(net)
    task_name = task if isinstance(task, str) else task.name
    own_task = None if isinstance(task, str) else task
    folder = fit(task_name, method, net=net, task=own_task, **settings)
    # The task of another name is that of the directory, with the settings of its data set.
    dotted = task_name if is_dotted(task_name) else None
    if net is None:
        return load(folder, task=own_task or dotted)
    trained = cast(Transformer, unwrap(from_pretrained(folder, net=net)))
    return Model(trained, trained.method, own_task or learned_task(folder, dotted), folder)
