"""Tables fit a terminal and are complete in a pipe, bars end at their end, and training with its result."""

import io
import re

import pytest
from rich.console import Console

from helpers.runs import tiny_run
from latent_tokens import fit, progress
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.cli import main
from latent_tokens.commands import results, shared
from latent_tokens.commands.train import ending
from latent_tokens.evaluation.report import table
from latent_tokens.evaluation.rows import read_results
from latent_tokens.tables import Sheet, blocks

ROWS = [row for row in read_results(BUNDLED / "results.jsonl") if "samples_per_second" in row][:6]


class Terminal(io.StringIO):
    """Standard output of a terminal."""

    def isatty(self):
        return True


def printed(sheet, width):
    """Return the lines of a table in a terminal."""
    console = Console(file=io.StringIO(), width=width)
    sheet.print_to(console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_results_fit_a_terminal_with_k_and_interval(width):
    wide = [{**row, "entropy": 1.0, "threshold": 0.5, "forward_passes_mean": 36.0} for row in ROWS]
    lines = printed(table(wide, "A title"), width)
    assert max(map(len, lines)) <= width
    heads = lines[1]
    kept = ("method", "order", "k", "latents n", "95% interval")
    assert all(name in heads for name in kept)
    assert ("samples/s" in heads) == (width == 132)
    assert "..." not in "\n".join(lines)
    assert ("Left out at this width" in "\n".join(lines)) == (width < 132)
    assert sum("30.9" in line for line in lines) == 1


def test_a_pipe_has_every_column_on_one_line(capsys):
    sheet = table(ROWS, "A title")
    shared.print_table(sheet)
    title, heads, *lines = capsys.readouterr().out.splitlines()
    assert (title, len(lines)) == ("A title", len(ROWS))
    assert all(name in heads for name in sheet.columns)
    for number, line in enumerate(lines):
        assert line.split() == " ".join(cells[number] for cells in sheet.columns.values()).split()
    assert str(sheet).splitlines() == [title, heads, *lines]


CLAIMS = (
    "| claim | yes | no |\n| --- | --- | --- |\n| a > b | x +1; y +2 |  |\n| b > c |  | z -1 |\n\nA note.\n"
)


def test_lists_of_a_markdown_table_are_lines_in_a_terminal(monkeypatch, capsys):
    listed, *others = blocks(CLAIMS.splitlines(), ())
    lines = list(zip(*listed.columns.values(), strict=True))
    assert lines == [("a > b", "x +1", "yes"), ("", "y +2", "yes"), ("b > c", "z -1", "no")]
    assert others == ["", "A note."]
    shared.print_markdown(CLAIMS, ())
    assert capsys.readouterr().out == CLAIMS
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    paper = (BUNDLED.parents[2] / "results" / "cpu" / "table-1.md").read_text()
    shared.print_markdown(paper, results.OPTIONAL_OF_PAPER)
    text = re.sub(r"\x1b\[[\d;]*m", "", shared.sys.stdout.getvalue())
    assert max(map(len, text.splitlines())) <= 80
    assert "95% interval" in text


def test_empty_columns_leave_first():
    sheet = Sheet({"run": ["", ""], "k": ["1", "8"], "passes": ["36.0", "9.0"]}, optional=("passes",))
    assert sheet.fitting(12) == ["k", "passes"]
    assert sheet.fitting(8) == ["k"]


def test_a_bar_ends_at_its_end(monkeypatch):
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    monkeypatch.setattr(progress, "CONSOLE", console)
    with progress.counting("making 20 problems", 20):
        pass
    with progress.progress("generating", 66) as advance:
        advance(58, "")
    assert "20/20" in console.file.getvalue()
    assert "58/58" in console.file.getvalue()


def test_solve_marks_the_given_digits_in_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    puzzle = ".....1.1.5..45.162..23....1.2.6.541."
    assert main(["solve", puzzle]) == 0
    text = shared.sys.stdout.getvalue()
    givens = [part.partition("\x1b")[0] for part in text.split("\x1b[1m")[1:]]
    assert "".join(givens).replace("given  ", "") == puzzle.replace(".", "")


def test_training_ends_with_its_loss_and_the_next_command(tmp_path, capsys):
    config = tiny_run(tmp_path / "a run", steps=2)
    fit(config)
    first, command = ending(config, 65.2).splitlines()
    assert first.startswith("validation loss ")
    assert first.endswith(" at step 2, 1 min 5 s. Next:")
    assert command == f"  latent-tokens evaluate '{tmp_path / 'a run'}'"
    arguments = (
        f"train sudoku-4 scdm --size pico --steps 2 --num-train 50 --num-validation 16 --out {tmp_path / 'b'}"
    )
    assert main(arguments.split()) == 0
    assert f"Next:\n  latent-tokens evaluate {tmp_path / 'b'}\n" in capsys.readouterr().err
