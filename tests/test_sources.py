"""Published files are read, and refused with a row and a reason if they are wrong."""

import io
import json
import os
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from helpers.hostile import Call
from helpers.refusals import refused
from latent_tokens import TASKS, DataConfig, load_data, make_data
from latent_tokens.tasks.readers import read_source
from latent_tokens.tasks.zebra.puzzles import WORDS, answered_table, read_prompt

PROTOCOLS = (0, 2, pickle.HIGHEST_PROTOCOL)
PUZZLE, BOARDS, ZEBRA, FOUR = TASKS["sudoku-puzzle"], TASKS["sudoku-9"], TASKS["zebra"], TASKS["countdown-4"]


def shah_rows(count):
    """Return records as Shah et al. write them: number of givens, then (row, column, value, strategy)."""
    examples, rng, rows = PUZZLE.generate(count, seed=1), np.random.default_rng(0), []
    for givens, board in zip(PUZZLE.givens(examples.tokens), PUZZLE.answers(examples.tokens), strict=True):
        shown = rng.permutation(np.flatnonzero(givens >= 0))
        empty = rng.permutation(np.flatnonzero(givens < 0))
        strategies = [0] * len(shown) + [2] * len(empty)
        cells = [
            (cell // 9, cell % 9, board[cell] + 1, strategy)
            for cell, strategy in zip([*shown, *empty], strategies, strict=True)
        ]
        rows.append([len(shown), *np.array(cells).ravel()])
    return np.array(rows), examples


def shah_zebras(count):
    """Return records as Shah et al. write them, [tokens, table, order], and the examples in them."""
    examples, records = ZEBRA.generate(count, seed=1), []
    for row in examples.tokens:
        _, houses, attributes = read_prompt(row)
        words = [WORDS[token] for token in row]
        table = [list(range(houses)), *answered_table(row, houses, attributes).tolist()]
        order = np.array([(r, c) for r in range(attributes) for c in range(houses)], np.int16)
        solved = [str(number) for r, c in order.tolist() for number in (r, c, table[r + 1][c])]
        records.append([[*words[1 : words.index("<SEP>") - houses], "ANSWER", *solved], table, order])
    return records, examples


def extreme_csv(examples):
    """Return a file in the format of Sudoku-Extreme, of generated puzzles."""
    sources = ("puzzles0_kaggle", '"puzzles, quoted"')
    rows = "source,question,answer,rating\n"
    cells = zip(PUZZLE.givens(examples.tokens), PUZZLE.answers(examples.tokens), strict=True)
    for i, (shown, board) in enumerate(cells):
        question, answer = ("".join(map(str, digits + 1)).replace("0", ".") for digits in (shown, board))
        rows += f"{sources[i % 2]},{question},{answer},{7 * i}\n"
    return rows


@pytest.mark.parametrize("name", ["test.csv", "train.npy"])
def test_sudoku_files_are_read_as_puzzles_and_as_boards(tmp_path, name):
    rows, made = shah_rows(20)
    np.save(tmp_path / "train.npy", rows)
    (tmp_path / "test.csv").write_text(extreme_csv(made))
    puzzles, bad = read_source(PUZZLE, tmp_path / name, skip_bad=False)
    assert bad == []
    assert all((a == b).all() for a, b in zip(puzzles, made, strict=True))
    boards, _ = read_source(BOARDS, tmp_path / name, skip_bad=False)
    assert (boards.tokens == PUZZLE.answers(made.tokens)).all()
    assert (boards.known == (PUZZLE.givens(made.tokens) >= 0)).all()


@pytest.mark.parametrize("count", [1, 7])
def test_source_is_read_no_further_than_one_split_needs(tmp_path, count):
    made = PUZZLE.generate(7, seed=1)
    source = tmp_path / "test.csv"
    source.write_text(extreme_csv(made) + "a row that cannot be\n")
    config = DataConfig("sudoku-puzzle", tmp_path / "data", str(source), split="test", num_test=count)
    _, splits = load_data(make_data(config))
    assert (splits["test"].tokens == made.tokens[:count]).all()
    for changes in ({"num_test": count + 7}, {"apart_from": (tmp_path / "data",)}):
        with refused("line 9: puzzle of 0 cells"):
            make_data(replace(config, out=tmp_path / "more", **changes))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shahs_zebra_is_read(tmp_path, protocol):
    records, made = shah_zebras(8)
    scalars = [
        [words, [[np.int64(value) for value in row] for row in table], _] for words, table, _ in records
    ]
    for content in (records, scalars):
        (tmp_path / "train.pkl").write_bytes(pickle.dumps(content, protocol))
        read, bad = read_source(ZEBRA, tmp_path / "train.pkl", skip_bad=False)
        assert bad == []
        assert (read.tokens == made.tokens).all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pickle_executes_nothing(tmp_path, protocol):
    mark = str(tmp_path / "mark.npy")
    for call, name in (
        (Call(os.system, f"touch {mark}"), "system"),
        (Call(eval, f"open('{mark}', 'w')"), "eval"),
        (Call(np.save, mark, "1"), "numpy.save"),
        (Call(getattr, "x", "y"), "getattr"),
        (Call(io.FileIO, mark, "w"), "FileIO"),
    ):
        for content in (call, [["= LHS", [[1]], call]], np.array([call], dtype=object)):
            (tmp_path / "evil.pkl").write_bytes(pickle.dumps(content, protocol))
            with refused("pickle refused (it names ", f"{name}, and only lists, numbers and strings"):
                read_source(ZEBRA, tmp_path / "evil.pkl", skip_bad=True)
    assert not os.path.exists(mark)


WRONG_SOLUTION = "the solution given is wrong in row"
SUDOKU_FAULTS = {  # entries of a row, their new values from the old row, and the problem
    "row": (1, lambda row: 99, "IndexError: index"),
    "value": (3, lambda row: 0, "solution given is wrong|several"),
    "all given": (0, lambda row: 82, "puzzle has nothing to solve"),
    "a cell twice": ([-4, -3], lambda row: row[[-8, -7]], WRONG_SOLUTION),
    "a wrong solution": (-2, lambda row: row[-2] % 9 + 1, WRONG_SOLUTION),
    "a wrong given": (3, lambda row: row[3] % 9 + 1, "no solution|solution given is wrong|several"),
}


@pytest.mark.parametrize(("at", "change", "message"), SUDOKU_FAULTS.values(), ids=SUDOKU_FAULTS)
def test_a_bad_row_of_an_array_is_named(tmp_path, at, change, message):
    rows, _ = shah_rows(3)
    rows[1, at] = change(rows[1])
    path = tmp_path / "train.npy"
    np.save(path, rows)
    with pytest.raises(ValueError, match=rf"train.npy, row 1 \(from 0\): .*({message}).*Use --skip-bad"):
        read_source(PUZZLE, path, skip_bad=False)
    read, (bad,) = read_source(PUZZLE, path, skip_bad=True)
    assert len(read.tokens) == 2
    assert re.match(rf"train.npy, row 1 \(from 0\): .*({message})", bad)


QUIZ = "080050060460907108005000029970006500000872031300049000004025003010000480603100007"
SOLUTION = "789251364462937158135468729978316542546872931321549876894725613217693485653184297"
CLUES = (
    "= LHS c 1 1 RHS c 0 2 CLUE_END = LHS c 2 0 RHS c 1 1 CLUE_END immediate-left LHS c 0 0 "
    "RHS c 2 0 CLUE_END = LHS c 2 2 RHS n 0 1 CLUE_END nbr LHS c 1 0 RHS c 0 0 CLUE_END"
)
TABLE = "[[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0]]"
GOOD_ZEBRA = f'{{"clues": {json.dumps(CLUES.split())}, "solution": {TABLE}}}'
GOOD_COUNTDOWN = '{"input": "86,28,13,31,96", "output": "86+28=114,31-13=18,114-18=96"}'

COUNT, ZEBRAS = f"{GOOD_COUNTDOWN}\n{{bad}}\n", f"{GOOD_ZEBRA}\n{{bad}}\n"
CSV = f"quizzes,solutions\n{QUIZ},{SOLUTION}\n{{bad}}\n"
DOTS = QUIZ.replace("0", ".")
EXTREME = f"source,question,answer,rating\nmine,{DOTS},{SOLUTION},3\n{{bad}}\n"

TEXTS = {
    "a csv": (PUZZLE, "x.csv", CSV, f"{QUIZ},{SOLUTION[:-1]}1", 3,
        "puzzle contradicts itself: 1 twice in row 9"),
    "a csv without its solution": (PUZZLE, "x.csv", CSV, QUIZ, 3, "puzzle of 0 cells: must have 81"),
    "extreme, a hole in it": (BOARDS, "x.csv", EXTREME, f"mine,{DOTS},.{SOLUTION[1:]},3", 3,
        "the solution given is wrong in row 1 column 1"),
    "extreme, a quote that does not end": (PUZZLE, "x.csv", EXTREME, f'"mine,{DOTS},{SOLUTION},3', 3,
        "puzzle of 0 cells"),
    "lines": (PUZZLE, "x.txt", f"{QUIZ}\n\n{{bad}}\n", QUIZ[:-1], 3, "puzzle of 80 cells: must have 81"),
    "zebra": (ZEBRA, "x.jsonl", ZEBRAS, GOOD_ZEBRA.replace("[1, 2, 0]", "[2, 1, 0]"), 2,
        "the answer is wrong: not true"),
    "a zebra's houses": (ZEBRA, "x.jsonl", ZEBRAS, GOOD_ZEBRA.replace("[0, 1, 2]", "[0, 2, 1]"), 2,
        "it must number the houses"),
    "a zebra's part of a house": (ZEBRA, "x.jsonl", ZEBRAS,
        GOOD_ZEBRA.replace("[1, 0, 2]", "[1.9, 0.2, 2]"), 2, "TypeError"),
    "a zebra's clues": (ZEBRA, "x.jsonl", ZEBRAS, '{"clues": [1, 2], "solution": [[]]}', 2,
        "1 is not a word of a puzzle"),
    "deep brackets": (ZEBRA, "x.jsonl", ZEBRAS, "[" * 100_000, 2, "RecursionError"),
    "countdown": (FOUR, "x.jsonl", COUNT, GOOD_COUNTDOWN.replace("=18", "=19"), 2,
        "is wrong: 31-13=19 is not true"),
    "a broken line": (FOUR, "x.jsonl", COUNT, GOOD_COUNTDOWN[:-5], 2, "Unterminated string"),
    "a field": (FOUR, "x.jsonl", COUNT, '{"input": "1,2"}', 2, "KeyError: 'output'"),
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


def test_a_header_of_python_2_is_read_without_a_warning(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, shah_rows(1)[0])
    path.write_bytes(path.read_bytes().replace(b"325), } ", b"325L), }"))
    assert len(read_source(PUZZLE, path, skip_bad=False)[0]) == 1


def test_files_that_are_no_source_are_refused(tmp_path):
    contents = {
        "x.csv": b"puzzle,answer\n",
        "x.bin": b"\xff\xfe\x00",
        "empty.txt": b"\n",
        "a.npy": b"nothing",
        "b.npy": b"",
        "text.pkl": b"no pickle",
        "cut.pkl": pickle.dumps([1, 2, 3])[:-2],
        "dict.pkl": pickle.dumps({"a": 1}),
        "objects.pkl": pickle.dumps(np.array([{}, 1], dtype=object)),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "narrow.npy", np.zeros((3, 324), int))
    np.save(tmp_path / "float.npy", np.zeros((3, 325)))
    for task, name, message in (
        (PUZZLE, "x.csv", "its first line is 'puzzle,answer', must be quizzes,solutions or source,question"),
        (PUZZLE, "x.bin", "not text in UTF-8"),
        (PUZZLE, "empty.txt", "no example in it"),
        *((PUZZLE, f"{name}.npy", "no complete array in it") for name in "ab"),
        *((PUZZLE, f"{name}.npy", "no example in it") for name in ("narrow", "float")),
        (PUZZLE, "missing.txt", "not found. Name a file of sudoku-puzzle"),
        *((ZEBRA, f"{name}.pkl", "pickle refused") for name in ("text", "cut")),
        (ZEBRA, "dict.pkl", "is a dict, must be a list of"),
        (ZEBRA, "objects.pkl", "is a Ignored, must be a list of"),
        (ZEBRA, "x.csv", "zebra is read from files that end in .pkl, .jsonl"),
        (FOUR, "x.csv", "countdown-4 is read from files that end in .jsonl"),
    ):
        with refused(message):
            read_source(task, tmp_path / name, skip_bad=True)
