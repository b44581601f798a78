"""Puzzles as solve takes them."""

import os

from faults.commands import command
from faults.first_checks import parses
from latent_tokens import TASKS
from latent_tokens.tasks.sudoku.grid import symbols_of

PUZZLES = {
    "sudoku-4": (
        "1...............",
        "1234341221434321",
        "1 . | . .\n. . | . .\n----+----\n. . | . .\n. . | . 4",
    ),
    "sudoku-6": ("." * 35 + "1", "12....34....5...............1......."),
    "sudoku-9": ("003020600900305001001806400008102900700000008006708200002609500800203009005010300",),
    "sudoku-16": ("1" + "." * 255, "." * 200 + "123456789ABCDEFG" + "." * 40),
    "sudoku-36": ("1" + "." * 1_295,),
    "zebra-3": (
        "ends LHS c 1 1 RHS CLUE_END left-of LHS c 2 0 RHS c 2 1 CLUE_END nbr LHS c 1 1 RHS c 0 2 CLUE_END "
        "= LHS c 0 0 RHS c 2 1 CLUE_END 0 1 2",
    ),
    "countdown-3": ("3,5,7,15", "10,20,30,60"),
}
LONG = ("sudoku-16", "sudoku-36")  # too long to decode here


def puzzle_seeds(fixtures):
    for name in set(PUZZLES) - set(LONG):
        fixtures.made(f"model/scdm-{name}")
    pairs = [(name, text) for name, texts in PUZZLES.items() for text in texts]
    return [{"task": name.encode(), "puzzle.txt": text.encode()} for name, text in pairs]


def read_puzzle(folder, fixtures):
    name = (folder / "task").read_text()
    text = os.fsdecode((folder / "puzzle.txt").read_bytes())
    if name in LONG:
        return TASKS[name].count_solutions(TASKS[name].encode(text), most=1)
    run = f"--run={fixtures.made(f'model/scdm-{name}')}"
    return command("solve", run, "--", text) if text.startswith("-") else command("solve", text, run)


def is_puzzle(folder):
    name = (folder / "task").read_text()
    text = os.fsdecode((folder / "puzzle.txt").read_bytes())
    if name.startswith("sudoku"):
        return parses(lambda: symbols_of(text, {TASKS[name].length})) and bool(text)
    return "CLUE_END" in text if name.startswith("zebra") else text.count(",") == 3
