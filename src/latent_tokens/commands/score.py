"""latent-tokens score."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

MOST_ERRORS = 3  # of the format that are printed


@dataclass(frozen=True)
class Score:
    """Score the answers of any model to a fixed list of problems, by the task's verifier.

    The list is made from a seed: the problems on which `evaluate` measures.

    Examples:
        latent-tokens score countdown-3 --template --num-problems 100
        latent-tokens score countdown-3 answers.jsonl
    """

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """Task of the problems, or yours as module:Name."""
    answers: Annotated[Positional[Path | None], arg(metavar="[ANSWERS]")] = None
    """File of JSON lines with problem (its number in the list, or its prompt) and answer (text, or
    tokens)."""
    template: bool = False
    """Print the problems as JSON lines to answer, instead of a score."""
    num_problems: int = 1_000
    """Number of problems, the first ones of the list. A problem without an answer counts as wrong."""
    pass_at: tuple[int, ...] | None = None
    """Print pass@k, the share of problems that one of k answers solves, for each k. The file may then
    have several answers to a problem, and the other figures are of the first ones."""
    json: bool = False
    """Print the score as a JSON object."""


def run_score(command: Score) -> int:
    """Run `latent-tokens score`. Print the shares with intervals, or the problems."""
    from latent_tokens.checks import check_int
    from latent_tokens.evaluation import answers as scoring
    from latent_tokens.tasks import Answerable, task_named

    task = task_named(command.task)
    if not isinstance(task, Answerable):
        raise ValueError(f"task={command.task}: has no verifier of answers as text. Use a puzzle.")
    if command.template == (command.answers is not None):
        raise ValueError("ANSWERS: name a file of answers, or use --template to get the problems.")
    problems = scoring.list_of_problems(task, command.num_problems)
    if command.answers is None:
        print(*scoring.template(task, problems), sep="\n")
        return 0

    for k in command.pass_at or ():
        check_int("pass_at", k, 1)
    most = 1 if command.pass_at is None else scoring.MOST_ANSWERS
    rounds = scoring.read_answers(command.answers, task, problems, most)
    scores = [scoring.score_answers(task, problems, answers) for answers in rounds]
    passed = {k: scoring.pass_at(k, scores) for k in command.pass_at or ()}
    score = scores[0]
    intervals = {name: score.interval(name) for name in score.shares}
    if command.json:
        print(json.dumps({**asdict(score), "ci95": intervals, "pass_at": passed}))
        return 0
    print(f"{task.name}, {score.num_problems:,} problems (sha256 {score.problems_sha256[:12]})")
    for name, share in score.shares.items():
        low, high = intervals[name]
        print(f"{name:14} {share:6.1%}  (95% interval {low:.1%} to {high:.1%})")
    for k, share in passed.items():
        print(f"{f'pass@{k}':14} {share:6.1%}")
    print(f"format errors  {len(score.format_errors):,}, unanswered {score.unanswered:,}")
    for number, error in list(score.format_errors.items())[:MOST_ERRORS]:
        print(f"  problem {number}: {error}")
    if score.format_errors:
        print(f"An answer is {task.answer_format}.")
    print(f"Models of this package read {score.encoding}.")
    return 0
