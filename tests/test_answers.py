"""Scoring the answers of any model."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from helpers.refusals import refused, refused_command
from latent_tokens import TASKS, TaskBase
from latent_tokens.cli import main
from latent_tokens.evaluation.answers import list_of_problems, pass_at, read_answers, score_answers, template
from latent_tokens.tasks import Examples, readers

ANSWERED = ("sudoku-4", "sudoku-6-puzzle", "countdown-3", "zebra-3", "zebra-compact-3")


class Repeat(TaskBase):
    length = 5
    vocab = ("red", "blue", "end")

    def generate(self, count, seed, first=0):
        numbers = range(first, first + count)
        rows = [[i % 2, i // 2 % 2] * 2 + [2] * (i // 4 % 2) for i in numbers]
        return Examples.padded(rows, 2, self.length)

    def verify(self, tokens):
        return [] if (tokens[:2] == tokens[2:4]).all() else ["is not repeated"]

    def splits(self, examples):
        return super().splits(examples) * 0 + 2


TASK_OF = {**TASKS, "own": Repeat()}


def written(task, tokens):
    """Return the answer of a sequence as a person writes it, from `decode`."""
    text = task.decode(tokens)
    if task.name.startswith("countdown"):
        return text.split("\n", 1)[1]
    if task.name.startswith("zebra"):
        return text.split("\nhouse")[1].split("\n", 1)[1]
    if task.name.endswith("puzzle"):
        return "\n".join(line.split("     ")[1] for line in text.splitlines())
    return text


class Numbers(Repeat):
    """Tokens that need two bytes, of which the problems have none."""

    length = 4
    vocab = tuple(map(str, range(300)))

    def generate(self, count, seed, first=0):
        return Examples.padded([[i, i, 7, 7] for i in range(first, first + count)], 2, self.length)

    def verify(self, tokens):
        return [] if tokens[2:].tolist() == [299, 299] else ["is not 299 299"]


def test_answers_may_have_larger_tokens_than_the_problems():
    task = Numbers()
    problems = list_of_problems(task, 3)
    assert problems.tokens.dtype == np.uint8
    score = score_answers(task, problems, {0: "299 299", 1: [299, 299], 2: "43 43"})
    assert (score.solved, score.shares["valid"]) == ((0, 1), 2 / 3)
    shown = [json.loads(line)["in_words"] for line in template(task, problems)]
    assert shown == ["0 0 . .", "1 1 . .", "2 2 . ."]


@pytest.mark.parametrize("name", [*ANSWERED, "own"])
def test_true_answers_are_right_as_text_and_as_tokens(name):
    task = TASK_OF[name]
    problems = list_of_problems(task, 4)
    boards = task.generate(4, seed=0) if name == "sudoku-4" else problems
    rows = [row[:length] for row, length in zip(boards.tokens, boards.lengths, strict=True)]
    as_text = score_answers(task, problems, {i: written(task, row) for i, row in enumerate(rows)})
    as_tokens = score_answers(task, problems, {i: row.tolist() for i, row in enumerate(rows)})
    assert as_text == as_tokens
    assert set(as_text.shares.values()) == {1.0}
    assert (as_text.unanswered, as_text.format_errors) == (0, {})
    for number in range(4):
        problem = problems.take([number])
        encoded = task.encode(task.prompt(problem))
        assert (encoded.known == problem.known)[0, : problem.lengths[0]].all()
        assert (encoded.tokens == problem.tokens)[problem.known].all()


@pytest.mark.parametrize(
    ("name", "wrong", "unreadable"),
    [
        ("sudoku-4", "1234 3412 2143 4322", "1234 3412 2143 432."),
        ("sudoku-6-puzzle", "123456" * 6, "123457" * 6),
        ("countdown-3", "19+71=90,90-38=52", "19+71=90,90-38"),
        ("zebra-3", "A1 A1 A2 B1 B2 B3 C1 C2 C3", "A1 A2 A3"),
        ("zebra-compact-3", "112 213 123", "A1 A2 A4 B1 B2 B3 C1 C2 C3"),
        ("own", "red", "green"),
    ],
)
def test_a_wrong_answer_is_not_a_format_error(name, wrong, unreadable):
    task = TASK_OF[name]
    problems = list_of_problems(task, 4)
    if name == "own":
        wrong = "red red blue red"
        problems = problems.take(problems.lengths == 4)
    score = score_answers(task, problems, {0: wrong, 1: unreadable, 2: ""})
    assert score.shares[task.metric] == 0
    assert list(score.format_errors) == [1]
    assert score.unanswered == len(problems) - 2


@pytest.mark.parametrize("name", [*ANSWERED[1:], "own"])
def test_an_answer_to_another_problem_is_a_format_error(name):
    task = TASK_OF[name]
    problems = list_of_problems(task, 8)
    of_another = problems.tokens[1, : problems.lengths[0]].tolist()
    answers = [of_another, task.decode(of_another)] if name == "own" else [of_another]
    for answer in answers:
        score = score_answers(task, problems.take([0]), {0: answer})
        assert score.shares[task.metric] == 0
        assert list(score.format_errors) == [0]


@pytest.mark.parametrize("name", ["zebra-3", "zebra-compact-3"])
def test_values_are_placed_by_their_letters(name):
    task = TASKS[name]
    problems = list_of_problems(task, 1)
    values = written(task, problems.tokens[0]).split()
    by_house = " / ".join(" ".join(values[house::3]) for house in range(3))
    last_attribute_first = " ".join([*values[6:], *values[3:6], *values[:3]])
    for answer in (by_house, last_attribute_first.lower()):
        assert score_answers(task, problems, {0: answer}).shares["exact"] == 1
    for answer in (" ".join(["B1", *values[1:]]), " ".join(["1", *values[1:]])):
        assert list(score_answers(task, problems, {0: answer}).format_errors) == [0]


def test_a_table_that_lacks_a_value_is_wrong_in_the_compact_encoding():
    """By hand: if no house has A3, the token of its house must not become 0, the first house."""
    task = TASKS["zebra-compact-3"]
    problems = list_of_problems(task, 1)
    truth = written(task, problems.tokens[0])
    assert truth.split()[0] == "A3"
    score = score_answers(task, problems, {0: truth.replace("A3", "A1")})
    assert (score.shares["exact"], score.shares["valid"]) == (0, 0)


def test_counts_of_shares_by_hand(tmp_path):
    task = TASKS["countdown-3"]
    problems = list_of_problems(task, 4)
    lines = [json.loads(line) for line in template(task, problems)]
    assert lines[0]["prompt"] == "19,71,38,14"
    assert lines[0]["in_words"] == "make 14 of 19, 71, 38"
    lines = [
        {"problem": "19, 71, 38, 14", "answer": "71 - 19 = 52\n52 - 38 = 14", "model": "a person"},
        {"problem": 1, "answer": "no idea"},
        {"problem": 2, "answer": "1+1=2"},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n\n".join(map(json.dumps, lines)))
    score = score_answers(task, problems, *read_answers(path, task, problems))
    assert (score.shares["strict"], score.num_problems, score.unanswered) == (0.25, 4, 1)
    assert list(score.format_errors) == [1]
    assert score.interval("strict") == pytest.approx((0.0456, 0.6994), abs=1e-4)


def test_answer_of_a_sudoku_is_described_with_its_own_digits():
    for name in ("sudoku-6", "sudoku-6-puzzle"):
        assert TASKS[name].answer_format == "the 36 cells row by row, as 1-6"
    assert TASKS["sudoku-16"].answer_format.endswith("1-9, then A-Z")


def test_a_line_that_names_no_problem_is_refused(tmp_path):
    task = TASKS["countdown-3"]
    path = tmp_path / "answers.jsonl"
    prompt = task.prompt(list_of_problems(task, 2).take(slice(1)))
    for line, named in (
        ("19,71", "line 1"),
        ("[" * 100_000, "line 1: must be JSON"),
        ('{"problem": 0}', "line 1"),
        ('{"problem": 7, "answer": "1"}', "problem=7"),
        ('{"problem": "1,2,3,14", "answer": "1"}', "1,2,3,14"),
        ('{"problem": "1", "answer": "1"}', "Write a number without quotes"),
        ('{"problem": 0, "answer": "1"}\n{"problem": 0, "answer": "1"}', "line 2"),
        ('{"problem": "PROMPT", "answer": "1"}\n' * 2, "line 2: problem=PROMPT has an answer in an"),
    ):
        path.write_text(line.replace("PROMPT", prompt))
        with refused(named.replace("PROMPT", prompt)):
            read_answers(path, task, list_of_problems(task, 2))


def test_answers_may_have_a_mark_and_separators_of_unicode(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('\ufeff{"problem": 0, "answer": "1\u20282"}\n', encoding="utf-8")
    task = TASKS["countdown-3"]
    assert read_answers(path, task, list_of_problems(task, 1)) == [{0: "1\u20282"}]


def test_command_prints_a_template_and_its_score(tmp_path, capsys):
    command = ["score", "zebra-3", "--num-problems", "2"]
    assert main([*command, "--template"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    task = TASKS["zebra-3"]
    answers = [written(task, list_of_problems(task, 2).tokens[0]), "1 2"]
    path = tmp_path / "answers.jsonl"
    rows = ({**line, "answer": answer} for line, answer in zip(lines, answers, strict=True))
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main([*command, str(path)]) == 0
    out = capsys.readouterr().out
    assert "50.0%" in out
    assert "format errors  1" in out
    assert main([*command, str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shares"]["exact"] == 0.5
    refused_command(capsys, "score zebra-3", "--template")
    refused_command(capsys, "score zebra-3 --template --num-problems 10000000000", "at most 1,000,000")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_file_without_an_end_is_refused(capsys, monkeypatch, tmp_path):
    refused_command(capsys, "score zebra-3 /dev/zero --num-problems 1", "line 1: longer than")
    monkeypatch.setattr(readers, "MOST_LINES", 9)
    (tmp_path / "blank").write_text("\n" * 20)
    refused_command(capsys, f"score zebra-3 {tmp_path / 'blank'} --num-problems 1", "9 lines or more")


def test_pass_at_k_counts_all_choices_of_k_answers(tmp_path, capsys):
    """Against every choice of k of the four answers. A missing one is wrong."""
    task = TASKS["countdown-3"]
    problems = list_of_problems(task, 3)
    right = [written(task, row) for row in problems.tokens]
    given = {0: [True, False, False, True], 1: [False, True], 2: [False] * 4}
    path = tmp_path / "answers.jsonl"
    answers = [
        {"problem": number, "answer": right[number] if is_right else "1+1=2,2+2=4"}
        for number, outcomes in given.items()
        for is_right in outcomes
    ]
    path.write_text("".join(f"{json.dumps(entries)}\n" for entries in answers))
    scores = [score_answers(task, problems, each) for each in read_answers(path, task, problems, most=9)]
    padded = [outcomes + [False] * (4 - len(outcomes)) for outcomes in given.values()]
    for k in (1, 2, 4):
        expected = np.mean([np.mean([any(c) for c in combinations(row, k)]) for row in padded])
        assert pass_at(k, scores) == pytest.approx(expected)
    command = ["score", "countdown-3", str(path), "--num-problems", "3", "--pass-at"]
    assert main([*command, "1", "4"]) == 0
    assert "pass@4          66.7%" in capsys.readouterr().out
    refused_command(capsys, [*command, "5"], "pass-at 5", "1 to 4")
    refused_command(capsys, command[:-1], "answer in an earlier line", "--pass-at")
