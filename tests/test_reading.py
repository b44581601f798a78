"""How to read the code: CONTRIBUTING.md lists the files that are executed, and its answers exist."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "latent_tokens"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def listed(name):
    """Return the files that an item of the list names."""
    return re.findall(r"`([\w/]+\.py)`", re.search(rf"^\* \*\*{name}\*\*: (.*)$", TEXT, re.M)[1])


def table(heading):
    """Return the lines of a table, without its heading."""
    return TEXT.split(f"{heading}\n|---|---|\n")[1].split("\n\n")[0].splitlines()


@pytest.mark.slow
def test_reading_paths_are_the_files_executed():
    command = [sys.executable, str(ROOT / "scripts" / "size.py"), "--files"]
    traced = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    reference = listed("A reference decoding step")
    assert sorted(listed("A training step")) == traced["training"]
    assert sorted(reference) == traced["reference"]
    assert sorted([*reference, *listed("An optimized decoding step")]) == traced["optimized"]
    files = re.findall(r"`([\w/]+\.py)`", "".join(table("| package | files |")))
    assert sorted(files) == traced["cell"]


def test_reading_paths_are_short():
    reference = listed("A reference decoding step")
    assert len(listed("A training step")) <= 18
    assert len(reference) <= 14
    assert len(reference) + len(listed("An optimized decoding step")) <= 18


def test_answers_to_twelve_questions_exist():
    answers = [line.split(" | ")[1] for line in table("| to find | open |")]
    assert len(answers) == 12
    for answer in answers:
        files = set(re.findall(r"`([\w/]+\.py)`", answer))
        defined = set()
        for file in files:
            for node in ast.parse((SOURCE / file).read_text()).body:
                targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
                defined |= {getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)}
        assert 1 <= len(files) <= 5
        assert set(re.findall(r"`(\w+)`", answer)) <= defined
