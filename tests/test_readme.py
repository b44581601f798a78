"""Every command and every line of Python in the README runs, shortened where it would take minutes; so does every command of the manual."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from latent_tokens import TASKS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = {language: re.findall(rf"```{language}\n(.*?)```", README, re.S) for language in ("bash", "python")}
COMMANDS = [line.split("#")[0].strip() for block in BLOCKS["bash"] for line in block.splitlines() if line]
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
SHORTER = {
    "train": "--steps 4 --num-train 64 --num-validation 8 --save-every 2",
    "evaluate": "--num-samples 4",
    "data": "--num-train 64",
    "reproduce": "--scale smoke",
    "bench": "--sizes nano --lengths 12 --train nano:4x12 --rounds 1",
}


def test_the_readme_has_what_it_promises():
    assert any(command.startswith("make demo") for command in COMMANDS)
    assert any(command.startswith("make test") for command in COMMANDS)
    assert len(BLOCKS["python"]) == 1
    assert len(BLOCKS["python"][0].strip().splitlines()) <= 12
    for place in re.findall(r"\]\(((?!http)[^)#]+)\)|src=\"((?!http)[^\"]+)\"", README):
        assert (ROOT / "".join(place)).exists(), place


def test_the_commands_run(tmp_path):
    """In their order, in one folder, as a newcomer types them; git and make test are not run again inside a test."""
    seen = 0
    (tmp_path / "README.md").write_text(README)
    for command in COMMANDS:
        words = command.split()
        if words[0] in ("git", "cd", "pip") or words[:2] in (["make", "test"], ["make", "check"], ["make", "setup"]):
            continue
        if words[0] == "make":
            run, folder = f"{command} DEMO=smoke OUT={tmp_path / words[1]}", ROOT
        else:
            run, folder = f"{command} {SHORTER.get(words[1], '')}", tmp_path
        done = subprocess.run(run, shell=True, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{run}\n{done.stdout}\n{done.stderr}"
        seen += 1
    assert seen >= 5


@pytest.mark.parametrize(("page", "written"), [("performance.md", "runs/growth/growth.png"), ("results.md", ""), ("text.md", "runs/readme")])
def test_the_commands_of_a_page_run(tmp_path, page, written):
    text = (ROOT / "docs" / page).read_text()
    (tmp_path / "README.md").write_text("\n\n".join([README, *(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))]))
    commands = [line for block in re.findall(r"```bash\n(.*?)```", text, re.S) for line in block.splitlines()]
    assert len(commands) >= 2
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}"
    assert (tmp_path / written).exists()
    for place in re.findall(r"\]\(((?!http)[^)#]+)\)|src=\"((?!http)[^\"]+)\"", text):
        assert (ROOT / "docs" / "".join(place)).exists(), place


def test_the_commands_of_the_manual_run(tmp_path):
    """In their order, in one empty folder;"""
    manual = (ROOT / "docs" / "tasks.md").read_text()
    commands = [line for block in re.findall(r"```bash\n(.*?)```", manual, re.S) for line in block.splitlines()]
    assert len(commands) > 20
    script = "\n".join(["set -e", *(f"echo '>' {shlex.quote(command)}\n{command}" for command in commands)])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}"
    splits = json.loads((tmp_path / "data" / "small" / "manifest.json").read_text())["splits"]
    assert [splits[split]["examples"] for split in ("train", "validation", "test")] == [247, 23, 18]
    shown = TASKS["sudoku-6-puzzle"].generate(1, seed=0).tokens[0].tolist()
    assert f"puzzle   {spaced(shown[1:37])}" in manual
    assert f"solution {spaced(shown[38:])}" in manual
    for place in re.findall(r"\]\(((?!http)[^)#]+)\)", manual):
        assert (ROOT / "docs" / place).exists(), place


def spaced(cells):
    """36 numbers as the manual writes them."""
    return "   ".join(" ".join(map(str, cells[start : start + 6])) for start in range(0, 36, 6))


@pytest.mark.parametrize("block", BLOCKS["python"])
def test_the_python_runs(block, tmp_path):
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
