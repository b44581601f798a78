"""Every command and line of Python in the README runs, shortened if it takes minutes."""

import json
import re

import pytest

from helpers.documentation import ROOT, blocks, commands, run

README = (ROOT / "README.md").read_text()
COMMANDS = [command.split("#")[0].strip() for command in commands(README)]
PYTHON = blocks(README, "python")
SHORTER = {
    "train": "--steps 4 --num-train 64 --num-validation 8 --save-every 2",
    "evaluate": "--num-samples 4",
    "data": "--num-train 64",
    "reproduce": "--scale smoke",
    "bench": "--sizes nano --lengths 6 --train nano:4x6 --rounds 1",
}
SETTING = ("sudoku-6", "scdm", "top_prob", 4)
SAMPLES = "num_samples=100"


def test_the_readme_has_what_it_promises():
    assert any(command.startswith("make demo") for command in COMMANDS)
    assert any(command.startswith("make test") for command in COMMANDS)
    assert len(PYTHON) == 1
    assert len(PYTHON[0].strip().splitlines()) <= 12
    assert 6_000 <= len(README.encode()) <= 8_192


def test_readme_table_holds_the_bundled_results():
    results = [
        json.loads(line)
        for line in (ROOT / "src/latent_tokens/bundled/results.jsonl").read_text().splitlines()
    ]
    shown = re.findall(r"^\| (\d+|all) \| ([\d.]+)% \| ([\d.]+)-([\d.]+) \| ([\d.]+)x \|$", README, re.M)
    assert len(shown) == 4
    for n, *numbers in shown:
        (row,) = [
            row
            for row in results
            if (row["task"], row["method"], row["order"], row["candidates"], str(row["latents"]))
            == (*SETTING, n)
        ]
        measured = [
            f"{row['valid']:.1f}",
            *(f"{end:.1f}" for end in row["ci95"]),
            f"{row['relative_cost']:.2f}",
        ]
        assert numbers == measured


@pytest.mark.slow
def test_the_commands_for_make_run(tmp_path):
    """The make targets that run tests or checks are left out."""
    demonstrations = [
        command
        for command in COMMANDS
        if command.startswith("make") and command.split()[1] not in ("test", "check", "setup")
    ]
    assert demonstrations
    run([f"{command} DEMO=smoke OUT={tmp_path / command.split()[1]}" for command in demonstrations], ROOT)


@pytest.mark.slow
@pytest.mark.usefixtures("brief_look")
def test_the_commands_run(tmp_path):
    (tmp_path / "README.md").write_text(README)
    ours = [command for command in COMMANDS if command.startswith("latent-tokens")]
    others = {command.split()[0] for command in COMMANDS} - {"latent-tokens"}
    assert others == {"git", "cd", "python3", "source", "pip", "make"}
    assert len(ours) >= 5
    run([f"{command} {SHORTER.get(command.split()[1], '')}" for command in ours], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON)
def test_the_python_runs(block, tmp_path, monkeypatch, capsys):
    assert SAMPLES in block
    monkeypatch.chdir(tmp_path)
    exec(compile(block.replace(SAMPLES, "num_samples=4"), "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out
