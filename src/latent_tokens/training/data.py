"""The examples of a training run: of a data set, or generated, and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from latent_tokens import processes
from latent_tokens.configs import Split
from latent_tokens.core.method import Method
from latent_tokens.data.loading import load_data
from latent_tokens.data.splits import chunks_of, make_splits
from latent_tokens.progress import CONSOLE, counting
from latent_tokens.storage import Json, json_bytes
from latent_tokens.tasks import (
    Examples,
    Language,
    Task,
    TaskBase,
    Text,
    check_instance,
    described,
    description,
    differing_settings,
)
from latent_tokens.tasks.text.task import with_first_given
from latent_tokens.tasks.text.tokenizer import TOKENIZER_FILE
from latent_tokens.training.config import DEFAULT_NUM_TRAIN, TrainConfig

TRAINED: tuple[Split, ...] = ("train", "validation")
CHECKED_AT_ONCE = 10_000  # examples


def num_train_of(config: TrainConfig, task: Language) -> int:
    """Return the number of examples to generate: the config's, else that of a user's task.

    Raise ValueError for a number beside a data set, which has its own.
    """
    for name in ("num_train", "num_validation"):
        value = getattr(config, name)
        if config.data is not None and value != getattr(TrainConfig, name):
            problem = "the data set has its own examples. Leave one of the two out"
            raise ValueError(f"{name}={value} with data={config.data}: {problem}.")
    if config.num_train is not None:
        return config.num_train
    return task.num_train if isinstance(task, TaskBase) else DEFAULT_NUM_TRAIN


def training_data(
    config: TrainConfig, task: Language, method: Method, *, is_object: bool
) -> tuple[Language, dict[Split, Examples]]:
    """Return (the task, its examples for training and validation), of a data set or generated.

    The task of a data set has more settings than its name. One that is an object must have the
    same. The readout "left" needs a first token that is given. That of a text is an end of
    document. Raise ValueError if the task needs a data set, or the data set is not of the task.
    """
    check_instance(task)
    if config.data is None:
        return task, generate_examples(config, task)
    stored_task, splits = load_data(config.data, TRAINED, task)
    problem = None
    if stored_task.name != task.name:
        problem = f"contains {stored_task.name}, not {task.name}"
    elif not all(split in splits and len(splits[split].tokens) for split in TRAINED):
        problem = "lacks train or validation examples. Make a data set that has them."
    elif is_object:
        stored: dict[str, Json] = json.loads(json_bytes(description(stored_task)))
        differing = differing_settings(task, stored)
        differing.pop("tokenizer", None)  # the name of a file, whose hash is a setting, too
        if differing:
            setting, (value, other) = next(iter(differing.items()))
            problem = f"has {setting}={other}, and the task {setting}={value}. Use one of both."
    if problem is not None:
        raise ValueError(f"data={config.data}: {problem}")
    if isinstance(stored_task, Text) and method.readout == "left":
        splits = {split: with_first_given(examples) for split, examples in splits.items()}
    return stored_task, splits


def generate_examples(config: TrainConfig, task: Language) -> dict[Split, Examples]:
    """Return generated examples. Raise ValueError if the task needs a data set."""
    if not isinstance(task, Task):
        fix = f"Make one (latent-tokens data {task.name} --source FILE), and name it with --data."
        raise ValueError(f"task={task.name}: is learned from a data set. {fix}")
    counts: dict[Split, int] = {
        "train": num_train_of(config, task),
        "validation": config.num_validation,
    }
    with counting(f"generating {task.name}", sum(counts.values())) as count:
        builder = make_splits(task, counts, config.seed, report=count)
    for split in builder.open:
        num_examples = builder.counts.get(split, 0)
        CONSOLE.print(f"{split}: {task.name} has only {num_examples:,} different examples")
    if not all(builder.counts.get(split) for split in counts):
        problem = "has too few examples for both splits. Widen the task, or use another seed."
        raise ValueError(f"task={task.name}: {problem}")
    return builder.examples()


def check_tokenizer(start: str | Path, folder: Path, task: Language) -> None:
    """Raise ValueError if a text has another tokenizer than the model that training starts from.

    If the folder of the model names the text that it learned, that is compared, else its
    tokenizer.json. Without one there is nothing to compare.
    """
    if not isinstance(task, Text) or not (folder / TOKENIZER_FILE).is_file():
        return
    config = folder / "config.json"
    entries = json.loads(config.read_text()).get("task") if config.is_file() else None
    learned = described(entries, folder) if entries else Text(task.length, TOKENIZER_FILE, folder)
    if isinstance(learned, Text) and learned.fingerprint != task.fingerprint:
        raise ValueError(
            f"start={start}: has another tokenizer ({learned.fingerprint}) "
            f"than the data set ({task.fingerprint}). Make the data set with --tokenizer {start}."
        )


def check_examples(
    config: TrainConfig, method: Method, task: Language, splits: Mapping[Split, Examples]
) -> None:
    """Raise ValueError if the method cannot take the examples, or a rank would have none.

    In each example at least one position must not be given. If the task names the tokens of
    answers, no answer may have another.
    """
    answer_tokens = getattr(task, "answer_tokens", None)
    if config.noise == "all" and (answer_tokens is not None or method.readout == "left"):
        holder = task.name if answer_tokens is not None else config.method
        problem = "it masks positions that are never predicted"
        raise ValueError(f"noise=all is not supported by {holder}: {problem}. Use noise=answer.")
    for split, examples in splits.items():
        for number, part in enumerate(chunks_of(examples, CHECKED_AT_ONCE)):
            inside = part.inside
            is_given = (part.known | ~inside).all(1)
            if config.noise == "answer" and is_given.any():
                example = number * CHECKED_AT_ONCE + int(is_given.argmax())
                fix = "Leave out examples whose every position is given."
                raise ValueError(f"{split} example {example}: has nothing to predict. {fix}")
            method.check_known(torch.from_numpy(np.array(part.known)))
            others = part.tokens[inside & ~part.known]
            if answer_tokens is not None and not np.isin(others, answer_tokens).all():
                token = others[~np.isin(others, answer_tokens)][0]
                problem = f"answer_tokens of {task.name} lacks token {token}"
                raise ValueError(f"{problem}, which an answer of split {split} has. Add it.")
    if config.batch_size < (least := processes.world_size()):
        problem = f"must be at least the world size, {least}"
        raise ValueError(f"batch_size={config.batch_size}: {problem}")
