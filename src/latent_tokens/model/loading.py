"""Get a model: read one by its directory or name, or train one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from torch import nn

from latent_tokens.checkpoints.opening import check_learned, learned_task, model_of
from latent_tokens.checkpoints.pretrained import find, from_pretrained
from latent_tokens.checks import check_settings
from latent_tokens.configs import TrainConfig
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import Method, name_of
from latent_tokens.model.model import Model
from latent_tokens.network.transformer import Transformer
from latent_tokens.plugins import is_dotted
from latent_tokens.tasks import Language, check_instance
from latent_tokens.training.loop import fit


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
        task: the task that it learned, if that is your own: an object, or module:Name. None: the one that the
            directory names.
        method: its method, if that has functions of your own, as module:name. None: the one of the directory.
        base: the model that a LoRA adapter belongs to, as for `from_pretrained`.

    Raises:
        ValueError: as `from_pretrained`, or the task is not one of this version.

    Example:
        >>> model = load("sudoku-6-scdm")
        >>> model.task.name
        'sudoku-6'
    """
    folder = find(folder_or_name)
    net = model_of(folder, method, base)
    if task is None or isinstance(task, str):
        learned: Language = learned_task(folder, task)
    else:
        check_instance(task)
        check_learned(task.name, task, folder)
        learned = task
    return Model(net, net.method, learned, folder)


def train(
    task: str | Language, method: str | Method, *, net: nn.Module | None = None, **settings: Any
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
    task_name = task if isinstance(task, str) else task.name
    method_name = method if isinstance(method, str) else name_of(method)
    check_settings(TrainConfig, settings)
    config = TrainConfig(task_name, method_name, **settings)
    own_task = None if isinstance(task, str) else task
    own_method = None if isinstance(method, str) else method
    folder = fit(config, own_method, net=net, task=own_task)
    # The task of another name is that of the directory, with the settings of its data set.
    typed = task if own_task is not None or is_dotted(task_name) else None
    if net is None:
        return load(folder, task=typed)
    trained = cast(Transformer, unwrap(from_pretrained(folder, net=net)))
    learned = learned_task(folder, typed) if typed is None or isinstance(typed, str) else typed
    return Model(trained, trained.method, learned, folder)
