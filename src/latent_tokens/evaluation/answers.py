"""Answers that any model gave to the problems of a task, scored by its verifier."""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from latent_tokens.checks import check_int, first_line, is_number, one_line, refuse
from latent_tokens.data.loading import fingerprint
from latent_tokens.data.splits import make_problems
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.rows import SHARES
from latent_tokens.progress import counting
from latent_tokens.tasks import Answerable, Examples, joined, signature
from latent_tokens.tasks.base import check_tokens, scores_of
from latent_tokens.tasks.examples import as_array
from latent_tokens.tasks.readers import lines_of

NUM_PROBLEMS = 1_000
MOST_ANSWERS = 1_000  # to a problem
MOST_PROBLEMS = 1_000_000  # that are kept in memory
SEED = 0  # of the list

Answer: TypeAlias = str | list[int]


@dataclass(frozen=True)
class AnswerScore:
    """Scored answers.

    Attributes:
        task: The name of the task.
        shares: The mean of each share that the task scores, over all problems, the main one first.
            A problem without a well-formed answer counts as 0.
        num_problems: The number of problems.
        unanswered: How many have no answer.
        format_errors: Why an answer could not be read, by the number of its problem.
        problems_sha256: A hash of the list. Scores of equal lists can be compared.
        encoding: How a model of this package reads the problems.
        solved: The numbers of the problems whose main share is 1.
    """

    task: str
    shares: dict[str, float]
    num_problems: int
    unanswered: int
    format_errors: dict[int, str] = field(repr=False)
    problems_sha256: str
    encoding: str
    solved: tuple[int, ...] = ()

    def interval(self, name: str) -> tuple[float, float]:
        """Return Wilson's 95% interval of a share."""
        return wilson(self.shares[name], self.num_problems)


def list_of_problems(task: Answerable, count: int = NUM_PROBLEMS) -> Examples:
    """Return the first `count` problems of the test split of seed 0. `evaluate` measures on the same ones.

    Raises:
        ValueError: The task has fewer, or there are more than MOST_PROBLEMS.
    """
    check_int("num_problems", count, 1, MOST_PROBLEMS)
    with counting(f"making {count:,} problems", count) as report:
        problems = make_problems(task, count, SEED, report)
    if len(problems) < count:
        raise ValueError(
            f"num_problems={count}: {task.name} has {len(problems)}. Use at most {len(problems)}."
        )
    return problems


def template(task: Answerable, problems: Examples) -> Iterator[str]:
    """Yield a JSON line per problem: its number, its text for `solve` and in words, an empty answer."""
    pad = getattr(task, "pad", None)
    blank = task.vocab_size if pad is None else pad
    for number in range(len(problems)):
        problem = problems.take(slice(number, number + 1))
        tokens = problem.tokens.astype(np.uint32)  # the blank may be beyond their type
        shown = np.where(problem.known, tokens, blank)[0, : problem.lengths[0]]
        entries = {
            "problem": number,
            "prompt": task.prompt(problem),
            "in_words": task.decode(shown),
            "answer": "",
        }
        yield json.dumps(entries)


def read_answers(
    path: Path, task: Answerable, problems: Examples, most: int = 1
) -> list[dict[int, Answer]]:
    """Return the first answers of a file by the numbers of their problems, the second ones, and so on.

    Each line is JSON: `problem` is a number in the list or the text of `prompt`, and `answer` a text
    or tokens. Other entries are ignored.

    Args:
        path: the file.
        task: the task of the problems.
        problems: the list.
        most: the largest number of answers to a problem.

    Raises:
        ValueError: The file has no answers, a line is not of this form, or a problem is not in the list
            or has more answers.
    """
    # A list of boards has the same problem, without a given cell, at each number.
    numbers_of: dict[str, deque[int]] = {}
    for number in range(len(problems)):
        prompt = task.prompt(problems.take(slice(number, number + 1)))
        numbers_of.setdefault(prompt, deque()).append(number)

    rounds: list[dict[int, Answer]] = [{} for _ in range(most)]
    num_answers: Counter[int] = Counter()
    for line_number, line in lines_of(path):
        where = f"{path}, {line_number}"
        try:
            entries = json.loads(line)
            named: float | str = entries["problem"]
            answer: Answer = entries["answer"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{where}: must be JSON with problem and answer") from None
        numbers = deque([int(named)]) if is_number(named) and float(named).is_integer() else None
        if isinstance(named, str):
            try:
                numbers = numbers_of.get(task.prompt(task.encode(named)))
            except ValueError as error:
                fix = ". Write a number without quotes" if named.isdecimal() else ""
                raise ValueError(f"{where}: {first_line(error)}{fix}") from None
        problem = f"{where}: problem={one_line(str(named), 80)}"
        if numbers is None or numbers[0] not in range(len(problems)):
            fix = f"Use a number below {len(problems)} or a prompt of --template."
            raise ValueError(f"{problem} is not in the list. {fix}")
        number = numbers[0]
        if num_answers[number] == most:
            fix = ". Use --pass-at for several" if most == 1 else ""
            raise ValueError(f"{problem} has an answer in an earlier line{fix}")
        rounds[num_answers[number]][number] = answer
        num_answers[number] += 1
        numbers.rotate(-1)
    if not num_answers:
        raise ValueError(f"{path}: has no answers. Print the problems with --template.")
    return [answers for answers in rounds if answers]


def with_answer(task: Answerable, problem: Examples, answer: Answer) -> Examples:
    """Return a problem of one example with its answer, a text or tokens.

    Raises:
        ValueError: It does not have the form of an answer, or answers another problem. Tokens must
            be all of the sequence, or those that are not given.
    """
    filled = filled_in(task, problem, answer)
    differs = problem.known & (filled.tokens != problem.tokens)
    if differs.any():
        position = int(differs[0].argmax())
        given, other = (int(each.tokens[0, position]) for each in (problem, filled))
        raise ValueError(f"position {position}: is token {other}, and the problem gives {given}")
    return filled


def filled_in(task: Answerable, problem: Examples, answer: Answer) -> Examples:
    """Return a problem of one example with the text or the tokens of its answer. Raise as `with_answer`."""
    if isinstance(answer, str):
        return task.answered(problem, answer)
    inside = np.arange(task.length) < problem.lengths[0]
    masked = inside & ~problem.known[0]
    positions = {int(where.sum()): where for where in (masked, inside, np.full(task.length, True))}
    is_tokens = isinstance(answer, list) and all(type(token) is int for token in answer)
    if not is_tokens or len(answer) not in positions:
        allowed = " or ".join(map(str, positions))
        raise ValueError(f"{one_line(str(answer), 80)}: must be a text or {allowed} tokens")
    tokens = problem.tokens.astype(np.uint32)
    tokens[0, positions[len(answer)]] = as_array(answer)
    check_tokens(task, tokens, inside[None], "answer", "Use tokens of the task")
    return Examples(tokens, problem.known, problem.lengths)


def score_answers(task: Answerable, problems: Examples, answers: dict[int, Answer]) -> AnswerScore:
    """Score answers by the numbers of their problems.

    Example:
        >>> task = TASKS["countdown-3"]
        >>> problems = list_of_problems(task, 2)
        >>> score_answers(task, problems, {0: "71-19=52,52-38=14"}).shares["strict"]
        0.5
    """
    filled: dict[int, Examples] = {}
    format_errors: dict[int, str] = {}
    unanswered = len(problems) - len(answers)
    for number, answer in sorted(answers.items()):
        if not answer:
            unanswered += 1
            continue
        try:
            filled[number] = with_answer(task, problems.take(slice(number, number + 1)), answer)
        except ValueError as error:
            format_errors[number] = first_line(error)

    shares = dict.fromkeys((task.metric,), 0.0)
    solved: tuple[int, ...] = ()
    if filled:
        truth = problems.take(np.array(list(filled)))
        scores = scores_of(task, joined(list(filled.values())).tokens, truth)
        names = [task.metric, *(name for name in scores if name in SHARES)]
        shares = {name: float(scores[name].sum()) / len(problems) for name in names}
        solved = tuple(
            n for n, share in zip(filled, scores[task.metric], strict=True) if share == 1
        )
    return AnswerScore(
        task.name,
        shares,
        len(problems),
        unanswered,
        format_errors,
        fingerprint(problems),
        signature(task),
        solved,
    )


def pass_at(k: int, scores: Sequence[AnswerScore]) -> float:
    """Return pass@k: the share of problems that one of k answers solves.

    Of n answers to a problem, c of them right, it is 1 - C(n - c, k) / C(n, k), the unbiased estimate
    of Chen et al. (2021, arXiv 2107.03374). A missing answer is wrong.

    Args:
        k: the number of answers that one may try.
        scores: the first answers to the problems, the second ones, and so on.

    Raises:
        ValueError: no problem has k answers.
    """
    n = len(scores)
    if k > n:
        refuse(f"pass_at={k}", f"no problem has more than {n} answers", f"1 to {n}")
    right = Counter(number for score in scores for number in score.solved)
    solved = sum(1 - math.comb(n - c, k) / math.comb(n, k) for c in right.values())
    return solved / scores[0].num_problems
