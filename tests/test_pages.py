"""Every command of the pages in docs runs."""

import json
import shutil
import subprocess
import sys

import pytest

from helpers.documentation import ENVIRONMENT, ROOT, blocks, commands, run
from latent_tokens import TASKS

# The board of the large GIF, and the same with 8 masked cells: 8 steps to draw instead of 45.
HERO = ".942....51...34..9.2..9..8..429...13..5.6.89.9..3.....839.25.4...74.9.3.45..7..2."
NEARLY_SOLVED = ".942....51...34279523796481642958713375162894918347652839625147267419538451873926"
# Shorter sequences and texts than a reader has, in the same commands.
SHORTER = {
    "bench --sizes nano --lengths 16": "bench --sizes nano --lengths 6",
    "--text README.md": "--text start.md",
}
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}


@pytest.mark.slow
@pytest.mark.usefixtures("brief_look")
@pytest.mark.parametrize(
    ("page", "written"),
    [
        ("choose.md", ""),
        ("cost.md", ""),
        ("hugging-face.md", "models/sudoku-9/README.md"),
        ("index.md", ""),
        ("performance.md", ""),
        ("results.md", ""),
        ("text.md", "runs/tasks"),
    ],
)
def test_the_commands_of_a_page_run(tmp_path, page, written):
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "results" / "cpu").mkdir(parents=True)
    shutil.copy(ROOT / "results" / "cpu" / "rows.jsonl", tmp_path / "results" / "cpu")
    (tmp_path / "start.md").write_text((ROOT / "README.md").read_text()[:500])
    asked = [shortened(command) for command in commands(PAGES[page])]
    assert len(asked) >= 2
    run(asked, tmp_path)
    assert (tmp_path / written).exists()


@pytest.mark.slow
def test_the_python_of_a_page_runs(tmp_path):
    pytest.importorskip("peft")
    lines = blocks(PAGES["hugging-face.md"], "python")
    assert len(lines) == 9
    command, environment = (
        [sys.executable, "-c", "".join(lines)],
        ENVIRONMENT | {"HF_HOME": str(tmp_path / "home")},
    )
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 36, 7])" in done.stdout
    assert "torch.Size([2, 36]) 35 [" in done.stdout


@pytest.mark.slow
def test_the_commands_of_the_page_on_watching_run(tmp_path, monkeypatch, capsys):
    assert HERO in PAGES["watching.md"]
    asked = [command.replace(HERO, NEARLY_SOLVED) for command in commands(PAGES["watching.md"])]
    assert len(asked) >= 5
    run(asked, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "latent-tokens.html",
        "page.html",
        "trace.html",
        "decode.png",
        "hero.html",
    }
    (block,) = blocks(PAGES["watching.md"], "python")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    exec(compile(block, "watching.md", "exec"), {"__name__": "watching"})
    assert capsys.readouterr().out


@pytest.mark.slow
def test_the_commands_of_the_manual_run(tmp_path):
    manual = PAGES["tasks.md"]
    assert len(commands(manual)) > 20
    run(commands(manual), tmp_path)
    splits = json.loads((tmp_path / "data" / "small" / "manifest.json").read_text())["splits"]
    assert [splits[split]["examples"] for split in ("train", "validation", "test")] == [247, 23, 18]
    shown = TASKS["sudoku-6-puzzle"].generate(1, seed=0).tokens[0].tolist()
    assert f"puzzle   {spaced(shown[1:37])}" in manual
    assert f"solution {spaced(shown[38:])}" in manual


def shortened(command):
    """The command on shorter sequences and texts."""
    for long, short in SHORTER.items():
        command = command.replace(long, short)
    return command


def test_each_shortened_command_is_on_a_page():
    every = "\n".join(command for page in PAGES.values() for command in commands(page))
    assert all(long in every for long in SHORTER)


def spaced(cells):
    """36 numbers in the format of the manual."""
    return "   ".join(" ".join(map(str, cells[start : start + 6])) for start in range(0, 36, 6))
