"""latent-tokens lm-eval."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from latent_tokens import processes
from latent_tokens.checks import check_int, did_you_mean, one_line
from latent_tokens.commands.shared import Command, OwnMethod, RunName, check_outputs
from latent_tokens.configs import NumCandidates, StepConfig

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager


@dataclass(frozen=True, kw_only=True)
class LmEval(Command, StepConfig, OwnMethod):
    """Evaluate a text model on tasks of lm-eval, with exact likelihoods.

    It prints the table of lm-eval, nats per token and bits per byte.

    Examples:
        latent-tokens lm-eval runs/text --tasks lambada_openai --latents 8 --limit 100
        latent-tokens lm-eval runs/text --tasks mine --include-path tasks --order left_to_right
    """

    run: RunName
    """Text model. A run directory, a model directory, or a name on the Hugging Face Hub. A
    directory of transformers is opened as an autoregressive model."""
    tasks: tuple[str, ...] = ()
    """Tasks of lm-eval, or groups of them."""
    include_path: Path | None = None
    """Directory with tasks of your own, as YAML files."""
    order: Literal["uniform", "left_to_right"] | None = None
    """Decoding order. uniform: random orders. left_to_right: one order. Default: uniform,
    left_to_right for arm and ar-mtp."""
    candidates: NumCandidates | None = None
    """Number of candidates (k) in generation: the most confident of the next k masked tokens is
    decoded. Default: 1, or 8 with a confidence, a threshold, a bound or a factor."""
    orders: int | None = None
    """Number of random orders to average over. Default: 4."""
    suffix: int | None = None
    """Number of masked positions after the text of a likelihood, which are latent tokens only.
    Default: n, and for all the rest of a window, or 0."""
    num_fewshot: int | None = None
    """Number of solved examples in front of each question. Default: the task's."""
    chat: bool = False
    """Whether to write each request as messages, by the chat template of the tokenizer."""
    limit: int | None = None
    """Number of documents of each task. Default: all."""
    batch_size: int = 8
    """Requests computed together. The results do not depend on it."""
    seed: int = 0
    """Random seed of orders and samples."""
    out: Path | None = None
    """JSON file to write, with the results, the settings and the versions."""


def run_lm_eval(command: LmEval) -> int:
    """Run `latent-tokens lm-eval`. Print the table of lm-eval and the likelihoods."""
    # Check the options and the installation.
    if processes.world_size() > 1:
        raise ValueError(
            f"lm-eval runs in one process, and there are {processes.world_size()}. Start one."
        )
    if not command.tasks:
        raise ValueError("tasks=(): is missing. Name one task of lm-eval or more.")
    check_outputs({".json": command.out}, replace=True)
    for name, least in (("limit", 1), ("num_fewshot", 0)):
        if (value := getattr(command, name)) is not None:
            check_int(name, value, least)
    try:
        from latent_tokens.harness.lm_eval import LatentTokensLM
    except ImportError as error:
        raise ValueError(str(error)) from None
    from lm_eval import simple_evaluate
    from lm_eval.utils import handle_non_serializable, make_table

    from latent_tokens.checkpoints.stored_methods import load_method
    from latent_tokens.devices import fastest_device
    from latent_tokens.hf.directory import check_typed_method
    from latent_tokens.storage import json_bytes, provenance, write_atomic

    # Find the tasks, open the model.
    manager = find_tasks(command.tasks, command.include_path)
    typed = None if command.method is None else load_method(command.method)
    model = LatentTokensLM(
        command.run,
        **vars(command.config(StepConfig)),
        orders=command.orders,
        suffix=command.suffix,
        seed=command.seed,
        batch_size=command.batch_size,
        device=fastest_device(),
        base=command.base,
    )
    if typed is not None:
        check_typed_method(str(command.method), typed, model.model.method)

    # Evaluate it, print and write the results.
    results = simple_evaluate(
        model=model,
        tasks=list(command.tasks),
        num_fewshot=command.num_fewshot,
        limit=command.limit,
        task_manager=manager,
        apply_chat_template=command.chat,
        log_samples=False,
        random_seed=command.seed,
    )
    print(make_table(results))
    for line in likelihood_lines(model.get_model_info()):
        print(line)
    if command.out is not None:
        results["config"]["model"] = command.run
        content = json.loads(json.dumps(results, default=handle_non_serializable))
        write_atomic({command.out: json_bytes({**content, "provenance": {**provenance()}})})
        print(command.out)
    return 0


def find_tasks(tasks: tuple[str, ...], include_path: Path | None) -> TaskManager:
    """Return a manager that knows the tasks. Raise ValueError if lm-eval does not know one.

    The files of lm-eval's own tasks take seconds to read. They are read if the directory lacks one
    of the tasks.
    """
    from lm_eval.tasks import TaskManager

    if include_path is not None:
        if not include_path.is_dir():
            raise ValueError(f"include_path={include_path}: no such directory. Check the path.")
        manager = TaskManager(include_path=str(include_path), include_defaults=False)
        if set(tasks) <= set(manager.all_subtasks):
            return manager
    manager = TaskManager(include_path=None if include_path is None else str(include_path))
    for task in tasks:
        if task not in manager.all_tasks:
            hint = did_you_mean(task, manager.all_tasks)
            fix = hint or ". Add --include-path with a directory of tasks."
            raise ValueError(f"tasks={one_line(task, 100)}: not a task of lm-eval{fix}")
    return manager


def likelihood_lines(info: dict[str, Any]) -> list[str]:
    """Return a line for each type of request: nats per token and bits per byte."""
    from latent_tokens.evaluation.rows import labeled

    orders = "" if info["orders"] == 1 else f", {info['orders']} orders"
    latents = labeled(info["latents"], info.get("off_distribution", False))
    lines = []
    for kind, row in info["likelihood"].items():
        line = f"{kind}, {info['method']} n={latents}, {info['order']}{orders}: "
        for name in ("nats_per_token", "bits_per_byte"):
            half = row[f"{name}_half_interval"]
            interval = "" if half is None else f" ± {half:.4f}"
            line += f"{row[name]:.4f}{interval} {name.replace('_', ' ')}, "
        lines.append(f"{line}{row['tokens']:,} tokens of {row['requests']:,} requests")
    return lines
