"""Published files are read, and refused with a row and a reason if they are wrong."""

import io
import os
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from latent_tokens import TASKS, DataConfig, load_data, make_data
from latent_tokens.tasks.readers import read_source
from latent_tokens.tasks.zebra.puzzles import read_prompt

PUZZLE, BOARDS, ZEBRA, FOUR = TASKS["sudoku-puzzle"], TASKS["sudoku-9"], TASKS["zebra"], TASKS["countdown-4"]


def shah_rows(count):
    """Return records as Shah et al. write them: number of givens, then (row, column, value, strategy)."""
    examples, rng, rows = PUZZLE.generate(count, seed=1), np.random.default_rng(0), []
    for givens, board in zip(PUZZLE.givens(examples.tokens), PUZZLE.answers(examples.tokens), strict=True):
        shown = rng.permutation(np.flatnonzero(givens >= 0))
        empty = rng.permutation(np.flatnonzero(givens < 0))
        cells = [(cell // 9, cell % 9, board[cell] + 1, 0) for cell in shown]
        cells += [(cell // 9, cell % 9, board[cell] + 1, 2) for cell in empty]
        rows.append([len(shown), *np.array(cells).ravel()])
    return np.array(rows), examples


def shah_zebras(count):
    """Zebra records as Shah et al. write them, of puzzles made here: [tokens, table, order]."""
    from latent_tokens.tasks.zebra.puzzles import WORDS, answer

    examples, records = ZEBRA.generate(count, seed=1), []
    for row in examples.tokens:
        _, houses, attributes = read_prompt(row)
        words = [WORDS[token] for token in row]
        table = [list(range(houses)), *answer(row, houses, attributes).tolist()]
        order = np.array([(r, c) for r in range(attributes) for c in range(houses)], np.int16)
        solved = [str(number) for r, c in order.tolist() for number in (r, c, table[r + 1][c])]
        records.append([[*words[1 : words.index("<SEP>") - houses], "ANSWER", *solved], table, order])
    return records, examples


def test_shahs_sudoku_is_read(tmp_path):
    rows, made = shah_rows(30)
    np.save(tmp_path / "train.npy", rows)
    read, bad = read_source(PUZZLE, tmp_path / "train.npy", skip_bad=False)
    assert bad == []
    assert (read.tokens == made.tokens).all()
    boards, _ = read_source(BOARDS, tmp_path / "train.npy", skip_bad=False)
    assert (boards.tokens == PUZZLE.answers(made.tokens)).all()
    assert (boards.known == (PUZZLE.givens(made.tokens) >= 0)).all()


def extreme_csv(examples, sources=("puzzles0_kaggle", '"puzzles, quoted"')):
    """Return a file in the format of Sudoku-Extreme, of generated puzzles."""
    rows = ""
    cells = zip(PUZZLE.givens(examples.tokens), PUZZLE.answers(examples.tokens), strict=True)
    for i, (shown, board) in enumerate(cells):
        question = "".join("." if digit < 0 else str(digit + 1) for digit in shown)
        answer = "".join(str(digit + 1) for digit in board)
        rows += f"{sources[i % len(sources)]},{question},{answer},{7 * i}\n"
    return "source,question,answer,rating\n" + rows


def test_sudoku_extreme_is_read_as_puzzles_and_as_boards(tmp_path):
    made = PUZZLE.generate(30, seed=1)
    (tmp_path / "test.csv").write_text(extreme_csv(made))
    read, bad = read_source(PUZZLE, tmp_path / "test.csv", skip_bad=False)
    assert bad == []
    assert all((a == b).all() for a, b in zip(read, made, strict=True))
    boards, _ = read_source(BOARDS, tmp_path / "test.csv", skip_bad=False)
    assert (boards.tokens == PUZZLE.answers(made.tokens)).all()
    assert (boards.known == (PUZZLE.givens(made.tokens) >= 0)).all()


@pytest.mark.parametrize("count", [1, 7])
def test_source_is_read_no_further_than_one_split_needs(tmp_path, count):
    made = PUZZLE.generate(7, seed=1)
    (tmp_path / "test.csv").write_text(extreme_csv(made) + "a row that cannot be\n")
    source = str(tmp_path / "test.csv")
    asked = DataConfig("sudoku-puzzle", tmp_path / "data", source, split="test", num_test=count)
    _, splits = load_data(make_data(asked))
    assert (splits["test"].tokens == made.tokens[:count]).all()
    with pytest.raises(ValueError, match="line 9: puzzle of 0 cells"):
        make_data(replace(asked, out=tmp_path / "more", num_test=count + 7))
    with pytest.raises(ValueError, match="line 9: puzzle of 0 cells"):
        make_data(replace(asked, out=tmp_path / "apart", apart_from=(tmp_path / "data",)))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_shahs_zebra_is_read(tmp_path, protocol):
    records, made = shah_zebras(8)
    (tmp_path / "train.pkl").write_bytes(pickle.dumps(records, protocol))
    read, bad = read_source(ZEBRA, tmp_path / "train.pkl", skip_bad=False)
    assert bad == []
    assert (read.tokens == made.tokens).all()
    scalars = [
        [words, [[np.int64(value) for value in row] for row in table], _] for words, table, _ in records
    ]
    (tmp_path / "scalars.pkl").write_bytes(pickle.dumps(scalars, protocol))
    assert (read_source(ZEBRA, tmp_path / "scalars.pkl", skip_bad=False)[0].tokens == made.tokens).all()


class Command:
    """An object of a malicious pickle: a call that is made when it is read."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ["touch {mark}"], "system"),
        (eval, ["open('{mark}', 'w')"], "eval"),
        (np.save, ["{mark}", "1"], "numpy.save"),
        (getattr, ["x", "y"], "getattr"),
        (io.FileIO, ["{mark}", "w"], "FileIO"),
    ],
)
def test_pickle_executes_nothing(tmp_path, function, arguments, name, protocol):
    mark = tmp_path / "mark.npy"
    evil = Command(function, *(argument.format(mark=mark) for argument in arguments))
    for content in (evil, [["= LHS", [[1]], evil]], np.array([evil], dtype=object)):
        (tmp_path / "evil.pkl").write_bytes(pickle.dumps(content, protocol))
        message = rf"pickle refused \(it names .*{name}, and only lists, numbers and strings are read"
        with pytest.raises(ValueError, match=message):
            read_source(ZEBRA, tmp_path / "evil.pkl", skip_bad=True)
        assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "pickle refused"),
        (b"no pickle", "pickle refused"),
        (pickle.dumps([1, 2, 3])[:-2], "pickle refused"),
        (pickle.dumps({"a": 1}), "is a dict, must be a list of"),
        (pickle.dumps(np.array([{}, 1], dtype=object)), "is a Ignored, must be a list of"),
        (pickle.dumps(3), "must be a list of"),
    ],
)
def test_a_damaged_or_other_pickle_is_refused(tmp_path, content, message):
    (tmp_path / "x.pkl").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_source(ZEBRA, tmp_path / "x.pkl", skip_bad=False)


def spoilt(row, at, value):
    row = row.copy()
    row[at] = value
    return row


SUDOKU_FAULTS = {
    "row": (lambda row: spoilt(row, 1, 99), "IndexError: index"),
    "value": (lambda row: spoilt(row, 3, 0), "solution given is wrong|several"),
    "all given": (lambda row: spoilt(row, 0, 82), "puzzle has nothing to solve"),
    "a cell twice": (lambda row: spoilt(row, [-4, -3], row[[-8, -7]]), "the solution given is wrong in row"),
    "a wrong solution": (lambda row: spoilt(row, -2, row[-2] % 9 + 1), "the solution given is wrong in row"),
    "a wrong given": (
        lambda row: spoilt(row, 3, row[3] % 9 + 1),
        "no solution|solution given is wrong|several",
    ),
}


@pytest.mark.parametrize(("change", "message"), SUDOKU_FAULTS.values(), ids=SUDOKU_FAULTS)
def test_a_bad_row_of_an_array_is_named(tmp_path, change, message):
    rows, _ = shah_rows(3)
    rows[1] = change(rows[1])
    path = tmp_path / "train.npy"
    np.save(path, rows)
    with pytest.raises(ValueError, match=rf"train.npy, row 1 \(from 0\): .*({message}).*Use --skip-bad"):
        read_source(PUZZLE, path, skip_bad=False)
    read, (bad,) = read_source(PUZZLE, path, skip_bad=True)
    assert len(read.tokens) == 2
    assert re.match(rf"train.npy, row 1 \(from 0\): .*({message})", bad)


def test_arrays_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "x.npy"
    for content in (b"nothing", b"PK\x03\x04 no archive", b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no complete array in it"):
            read_source(PUZZLE, path, skip_bad=True)
    for array in (np.zeros((3, 324), int), np.zeros((3, 325))):
        np.save(path, array)
        with pytest.raises(ValueError, match="no example in it"):
            read_source(PUZZLE, path, skip_bad=True)


QUIZ = "080050060460907108005000029970006500000872031300049000004025003010000480603100007"
SOLUTION = "789251364462937158135468729978316542546872931321549876894725613217693485653184297"
A = (
    "= LHS c 1 1 RHS c 0 2 CLUE_END = LHS c 2 0 RHS c 1 1 CLUE_END immediate-left LHS c 0 0 "
    "RHS c 2 0 CLUE_END = LHS c 2 2 RHS n 0 1 CLUE_END"
)
A += " nbr LHS c 1 0 RHS c 0 0 CLUE_END"
CLUES = str(A.split()).replace("'", '"')
TABLE = "[[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0]]"
GOOD_ZEBRA = f'{{"clues": {CLUES}, "solution": {TABLE}}}'
GOOD_COUNTDOWN = '{"input": "86,28,13,31,96", "output": "86+28=114,31-13=18,114-18=96"}'

COUNT, ZEBRAS = f"{GOOD_COUNTDOWN}\n{{bad}}\n", f"{GOOD_ZEBRA}\n{{bad}}\n"
CSV = f"quizzes,solutions\n{QUIZ},{SOLUTION}\n{{bad}}\n"
DOTS = QUIZ.replace("0", ".")
EXTREME = f"source,question,answer,rating\nmine,{DOTS},{SOLUTION},3\n{{bad}}\n"

TEXTS = {
    "a csv": (PUZZLE, "x.csv", CSV, f"{QUIZ},{SOLUTION[:-1]}1", 3,
        "puzzle contradicts itself: 1 twice in row 9"),
    "a csv without its solution": (PUZZLE, "x.csv", CSV, QUIZ, 3, "puzzle of 0 cells: must have 81"),
    "extreme, another solution": (PUZZLE, "x.csv", EXTREME, f"mine,{DOTS},{SOLUTION[:-1]}1,3", 3,
        "puzzle contradicts itself: 1 twice in row 9"),
    "extreme, a hole in it": (BOARDS, "x.csv", EXTREME, f"mine,{DOTS},.{SOLUTION[1:]},3", 3,
        "the solution given is wrong in row 1 column 1"),
    "extreme, a quote that does not end": (PUZZLE, "x.csv", EXTREME, f'"mine,{DOTS},{SOLUTION},3', 3,
        "puzzle of 0 cells"),
    "lines": (PUZZLE, "x.txt", f"{QUIZ}\n\n{{bad}}\n", QUIZ[:-1], 3, "puzzle of 80 cells: must have 81"),
    "lines of boards": (BOARDS, "x.txt", f"{QUIZ}\n{{bad}}", QUIZ.replace("8", "x"), 2,
        "'x' in row 1 column 2"),
    "zebra": (ZEBRA, "x.jsonl", ZEBRAS, GOOD_ZEBRA.replace("[1, 2, 0]", "[2, 1, 0]"), 2,
        "the answer is wrong: not true"),
    "a zebra's houses": (ZEBRA, "x.jsonl", ZEBRAS, GOOD_ZEBRA.replace("[0, 1, 2]", "[0, 2, 1]"), 2,
        "it must number the houses"),
    "a zebra's part of a house": (ZEBRA, "x.jsonl", ZEBRAS,
        GOOD_ZEBRA.replace("[1, 0, 2]", "[1.9, 0.2, 2]"), 2, "TypeError"),
    "a zebra's text": (ZEBRA, "x.jsonl", ZEBRAS, GOOD_ZEBRA.replace("[1, 0, 2]", '"102"'), 2, "TypeError"),
    "a zebra's clues": (ZEBRA, "x.jsonl", ZEBRAS, '{"clues": [1, 2], "solution": [[]]}', 2,
        "1 is not a word of a puzzle"),
    "deep brackets": (ZEBRA, "x.jsonl", ZEBRAS, "[" * 100_000, 2, "RecursionError"),
    "countdown": (FOUR, "x.jsonl", COUNT, GOOD_COUNTDOWN.replace("=18", "=19"), 2,
        "is wrong: 31-13=19 is not true"),
    "a broken line": (FOUR, "x.jsonl", COUNT, GOOD_COUNTDOWN[:-5], 2, "Unterminated string"),
    "a number": (FOUR, "x.jsonl", COUNT, "7", 2, "TypeError"),
    "a field": (FOUR, "x.jsonl", COUNT, '{"input": "1,2"}', 2, "KeyError: 'output'"),
    "other numbers": (FOUR, "x.jsonl", COUNT, '{"input": "1,2,3,4", "output": "1+2=3"}', 2,
        "must be 4 numbers .*countdown-3, countdown-4 and"),
}  # fmt: skip


@pytest.mark.parametrize(("task", "name", "text", "bad", "line", "message"), TEXTS.values(), ids=TEXTS)
def test_a_bad_line_is_named(tmp_path, task, name, text, bad, line, message):
    path = tmp_path / name
    path.write_text(text.replace("{bad}\n", "").replace("{bad}", ""))
    assert len(read_source(task, path, skip_bad=False)[0].tokens) == 1
    path.write_text(text.replace("{bad}", bad))
    with pytest.raises(ValueError, match=rf"{name}, line {line}: .*{message}.*Use --skip-bad"):
        read_source(task, path, skip_bad=False)
    read, (fault,) = read_source(task, path, skip_bad=True)
    assert len(read.tokens) == 1
    assert f"{name}, line {line}: " in fault


def test_files_that_are_no_source_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("puzzle,answer\n")
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.txt").write_text("\n")
    for task, name, message in (
        (PUZZLE, "x.csv", "its first line is 'puzzle,answer', must be quizzes,solutions or source,question"),
        (PUZZLE, "x.bin", "not text in UTF-8"),
        (PUZZLE, "empty.txt", "no example in it"),
        (PUZZLE, "missing.txt", "not found. Name a file of sudoku-puzzle"),
        (ZEBRA, "x.csv", "zebra is read from files that end in .pkl, .jsonl"),
        (FOUR, "x.csv", "countdown-4 is read from files that end in .jsonl"),
    ):
        with pytest.raises(ValueError, match=message):
            read_source(task, tmp_path / name, skip_bad=True)
