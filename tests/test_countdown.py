"""Countdown: its tokens, its search, and its two verifiers."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers.refusals import refused
from latent_tokens import TASKS
from latent_tokens.tasks import configured, countdown, described, description
from latent_tokens.tasks.readers import read_source

OTHERS = Path(__file__).parents[2] / "shared" / "data" / "countdown" / "ye2025_cd4_train_head2000.jsonl"
FIVE, FOUR = TASKS["countdown"], TASKS["countdown-4"]


def first_answer(*numbers_and_target):
    *numbers, target = numbers_and_target
    steps = np.zeros((len(numbers) - 1, 4), np.int64)
    found = countdown.first_solution(countdown.stack_of(numbers), len(numbers), target, steps)
    return countdown.answer_text(steps.tolist()) if found else None


RECORDS = [  # from formats that others published: task, problem, answer, ids up to EOS
    ("countdown", "8,91,30,36,98,55", "98-91=7,36-30=6,8*6=48,7+48=55",
        "1 18 4 19 11 4 13 10 4 13 16 4 19 18 4 15 15 3 19 18 7 19 11 5 17 4 13 16 7 13 10 5 16 4 18 8 16 "
        "5 14 18 4 17 6 14 18 5 15 15 2"),
    ("countdown-4", "86,28,13,31,96", "86+28=114,31-13=18,114-18=96",
        "1 18 16 4 12 18 4 11 13 4 13 11 4 19 16 3 18 16 6 12 18 5 11 11 14 4 13 11 7 11 13 5 11 18 4 11 "
        "11 14 7 11 18 5 19 16 2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "problem", "answer", "ids"), RECORDS)
def test_ids_are_the_papers(name, problem, answer, ids):
    wanted = [int(number) for number in ids.split()]
    paper = configured(name, {"padding": "paper"}).example(problem, answer)
    assert paper.tokens[0].tolist() == wanted + [0] * (64 - len(wanted))
    assert paper.known[0].sum() == wanted.index(3) + 1
    none = TASKS[name].example(problem, answer)
    assert none.tokens[0, : len(wanted)].tolist() == wanted
    assert not none.tokens[0, len(wanted) :].any()
    assert none.lengths[0] == wanted.index(3) + 1 + TASKS[name].room


def test_the_search_gives_others_answers_exactly():
    assert first_answer(86, 28, 13, 31, 96) == "86+28=114,31-13=18,114-18=96"
    if not OTHERS.is_file():
        pytest.skip("the records that others made are missing")
    records = [json.loads(line) for line in OTHERS.read_text().splitlines()]
    assert len(records) == 2_000
    for record in records:
        assert first_answer(*map(int, record["input"].split(","))) == record["output"]
    examples, bad = read_source(FOUR, OTHERS, skip_bad=False)
    assert bad == []
    assert [countdown.texts(row) for row in examples.tokens] == [
        (row["input"], row["output"]) for row in records
    ]
    assert set(FOUR.splits(examples).tolist()) == {0, 1}  # none of its targets is held out


@pytest.mark.parametrize(
    ("name", "problem", "answer"),
    [
        ("countdown-3", "75,80,60,100", "75*80=6000,6000/60=100"),
        ("countdown-4", "75,81,75,60,100", "75*81=6075,6075-75=6000,6000/60=100"),
        ("countdown", "75,80,99,99,60,100", "75*80=6000,6000*99=594000,594000/99=6000,6000/60=100"),
    ],
)
def test_longest_answer_fits_exactly(name, problem, answer):
    task = TASKS[name]
    assert len(answer) == task.room - 1
    row = task.example(problem, answer)
    assert row.lengths[0] == task.length or len(problem) < 3 * task.numbers + 3
    assert row.tokens[0, row.lengths[0] - 1] == countdown.EOS


def test_answer_length_is_described_and_has_no_pad():
    task = configured("countdown-4", {"answer_length": 47})
    assert (task.length, task.room, task.pad) == (64, 47, None)
    assert described(description(task)) == task
    assert (FOUR.length, FOUR.pad) == (53, countdown.PAD)


def reachable(numbers):
    """Return every value of an expression that uses all numbers, by an independent recursion over pairs."""
    if len(numbers) == 1:
        return {numbers[0]}
    values = set()
    for i, j in permutations(range(len(numbers)), 2):
        a, b = numbers[i], numbers[j]
        rest = [number for k, number in enumerate(numbers) if k not in (i, j)]
        results = {a + b, a * b}
        results |= {a - b} if a >= b else set()
        results |= {a // b} if b and a % b == 0 else set()
        values |= set().union(*(reachable([*rest, result]) for result in results))
    return values


@given(numbers=st.lists(st.integers(1, 99), min_size=3, max_size=3), target=st.integers(10, 100))
def test_the_search_finds_a_solution_exactly_where_there_is_one(numbers, target):
    found = first_answer(*numbers, target)
    assert (found is not None) == (target in reachable(numbers))
    if found is not None:
        problem = ",".join(map(str, [*numbers, target]))
        assert TASKS["countdown-3"].verify(TASKS["countdown-3"].example(problem, found).tokens[0]) == []


VERDICTS = [  # the answer, whether it counts leniently, and the errors of the strict rules
    ("86+28=114,31-13=18,114-18=96", True, []),
    ("31-13=18,86+28=114,114-18=96", True, []),
    ("86+10=96", True, ["10 in 86+10=96 is not there to use", "28, 13, 31 not used"]),
    ("86+28=114,31-13=18,114-18=096", False, ["'114-18=096' is not an equation"]),
    ("86+28=114,114-18=96", True, ["18 in 114-18=96 is not there to use", "13, 31 not used"]),
    ("86+28=114,31-13=18,114-18=96,96+0=96", True, ["0 in 96+0=96 is not there to use"]),
    ("86+28=115,31-13=18,115-18=97", False, ["86+28=115 is not true", "the last result is 97, not 96"]),
    ("86+28=114,31-13=18,114+18=132", False, ["the last result is 132, not 96"]),
    ("86+28=114,31--13", False, ["'31--13' is not an equation"]),
    ("86/28=3,31-13=18,114-18=96", False, None),
    ("96/0=96", False, None),
    ("96", False, ["'96' is not an equation"]),
    ("", False, ["'' is not an equation"]),
]


@pytest.mark.parametrize(("answer", "lenient", "errors"), VERDICTS)
def test_lenient_and_strict_verdicts(answer, lenient, errors):
    tokens = FOUR.encode("86,28,13,31,96").tokens.copy()
    ids = [4 + countdown.CHARACTERS.index(character) for character in answer]
    tokens[0, 16 : 17 + len(ids)] = [*ids, countdown.EOS]
    scores = FOUR.score(tokens)
    assert (scores["lenient"][0], scores["strict"][0]) == (lenient, errors == [])
    faults = FOUR.verify(tokens[0])
    assert faults == errors if errors is not None else faults


def test_strict_needs_the_end_of_an_answer():
    tokens = FOUR.example("86,28,13,31,96", "86+28=114,31-13=18,114-18=96").tokens
    tokens[tokens == countdown.EOS] = countdown.PAD
    scores = FOUR.score(tokens)
    assert (scores["lenient"][0], scores["strict"][0]) == (1, 0)
    assert FOUR.verify(tokens[0]) == ["[EOS] does not follow the last result"]


@pytest.mark.parametrize("padding", ["none", "paper"])
@given(seed=st.integers(0, 2_000), data=st.data())
@settings(max_examples=20)
def test_one_changed_digit_is_always_caught(padding, seed, data):
    """Change a digit of an operand or a result. A changed operator can be right again, like 2+2 and 2*2."""
    task = replace(FOUR, padding=padding)
    examples = task.generate(1, seed)
    tokens = examples.tokens.copy()
    start = tokens[0].tolist().index(3) + 1
    digits = [at for at in range(start, task.length) if tokens[0, at] >= 10]
    at = data.draw(st.sampled_from(digits))
    tokens[0, at] = 10 + (tokens[0, at] - 10 + data.draw(st.integers(1, 9))) % 10
    assert task.verify(tokens[0])
    assert task.score(tokens, examples)["exact"] == 0


def test_held_out_targets_are_in_the_test_alone():
    examples = FIVE.generate(1_000, seed=0)
    targets = np.array([int(countdown.texts(row)[0].rsplit(",", 1)[1]) for row in examples.tokens])
    splits = FIVE.splits(examples)
    assert (np.isin(targets, countdown.HELD_OUT_TARGETS) == (splits == 2)).all()
    assert set(targets.tolist()) == set(range(10, 101))
    assert countdown.HELD_OUT_TARGETS == (14, 39, 41, 57, 62, 81, 87, 89, 96)


def test_the_order_of_numbers_does_not_matter_to_the_key():
    problems = ("86,28,13,31,96", "31,13,86,28,96", "86,28,13,96,31", "86,28,13,32,96")
    one, same, other, another = (int(FOUR.keys(FOUR.encode(problem))[0]) for problem in problems)
    assert one == same
    assert len({one, other, another}) == 3


def test_decoded_text_has_an_equation_per_line():
    tokens = FOUR.example(*RECORDS[1][1:3]).tokens[0]
    lines = ["make 96 of 86, 28, 13, 31", "  86 + 28 = 114", "  31 - 13 = 18", "  114 - 18 = 96"]
    assert FOUR.decode(tokens).splitlines() == lines
    assert FOUR.decode(FOUR.encode(" 86, 28,13 ,31,96 ").tokens[0]) == "make 96 of 86, 28, 13, 31"


def test_a_problem_that_cannot_be_read_says_why():
    for text, message in (
        ("86,28,13,x,96", "problem '86,28,13,x,96': must be 4 numbers and the target"),
        ("86,28,13,0,96", "must be 4 numbers and the target"),
        ("86,28,13,100,96", "number 100 in '86,28,13,100,96': must be 1 to 99"),
        ("86,28,13,31,9", "target 9 in '86,28,13,31,9': must be 10 to 100"),
    ):
        with refused(message):
            FOUR.encode(text)
