"""Values that no refactoring changes: losses, samples and recipe hashes."""

import json
import sys
from pathlib import Path

import pytest

from latent_tokens import TASKS

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts"))

import fingerprints  # noqa: E402
from fingerprints import differences  # noqa: E402

STORED = json.loads(fingerprints.STORED.read_text())
RECIPES = json.loads(fingerprints.RECIPES.read_text())
TASKS_BY_NAME = {task.name: task for task in TASKS.values()}
SMALLEST = "sudoku-4"  # the task that every method is tried on
OTHER_PARTS = [part for part in fingerprints.PARTS if part != "methods on tasks"]  # those are by task


@pytest.fixture(scope="module")
def every_recipe_hash():
    return fingerprints.every_recipe_hash()


def methods_to_try(name):
    """Every method on the smallest task, and one on each other one. The script compares all of them."""
    number = list(TASKS_BY_NAME).index(name)
    one = fingerprints.ALL_METHODS[number % len(fingerprints.ALL_METHODS)]
    return fingerprints.ALL_METHODS if name == SMALLEST else [one]


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS_BY_NAME)
def test_losses_and_samples_of_a_task_are_those_stored(name):
    methods = methods_to_try(name)
    stored = {key: STORED["methods on tasks"][key] for key in (f"{method} on {name}" for method in methods)}
    assert differences(stored, fingerprints.methods_on(TASKS_BY_NAME[name], methods)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", OTHER_PARTS)
def test_fingerprints_are_those_that_are_stored(part):
    found = json.loads(json.dumps(fingerprints.PARTS[part]()))
    assert differences(STORED[part], found) == []


def test_every_stored_fingerprint_and_method_belongs_to_a_test():
    names = {f"{method} on {name}" for method in fingerprints.ALL_METHODS for name in TASKS_BY_NAME}
    assert STORED.keys() == fingerprints.PARTS.keys()
    assert STORED["methods on tasks"].keys() == names
    on_others = {method for name in TASKS_BY_NAME if name != SMALLEST for method in methods_to_try(name)}
    assert on_others == set(fingerprints.ALL_METHODS)


def test_check_of_fingerprints_fails_when_one_differs(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fingerprints.py", "--check"])
    for found, exit_code in ((STORED, 0), (STORED | {"examples": {}}, 1)):
        monkeypatch.setattr(fingerprints, "fingerprints", lambda found=found: found)
        assert fingerprints.main() == exit_code
    equal, *different = capsys.readouterr().out.strip().splitlines()
    assert equal.endswith(" fingerprints are equal")
    frozen = json.loads(fingerprints.FROZEN.read_text())
    assert len(different) == len(STORED["examples"]) + len(frozen["examples"]) + 1


def test_stored_fingerprints_are_those_of_version_0_2():
    """The tests above compare today's code with the stored ones, so this compares it with version 0.2."""
    assert fingerprints.differences_from_frozen(STORED) == []


def test_gone_fingerprints_need_a_key_of_version_0_2(monkeypatch, tmp_path):
    monkeypatch.setattr(fingerprints, "GONE", tmp_path / "gone.txt")
    frozen = json.loads(fingerprints.FROZEN.read_text())
    changed = {**frozen, "new": 1, "examples": {**frozen["examples"], "zebra, padding none": "0"}}
    del changed["reproduce"], changed["files of version 0.1"]
    changed["likelihoods"] = {**frozen["likelihoods"], "influence, mdm": "0"}
    gone = "reproduce | in other files\nfiles of version 0.1 | converted\n"
    for text, count in (("", 2), ("examples | other clues\n", 1), ("examples / z | no such key\n", 3)):
        fingerprints.GONE.write_text(gone + text)
        assert len(fingerprints.differences_from_frozen(changed)) == count


@pytest.mark.parametrize("name", RECIPES)
def test_hashes_of_all_recipes_are_those_of_version_0_2(name, every_recipe_hash):
    """After a change of a budget: python scripts/fingerprints.py --freeze-recipes "SCALE, TASK"."""
    found, stored = every_recipe_hash[name], RECIPES[name]
    assert differences(stored["recipes"], found["recipes"]) == []
    assert stored["rows"] == found["rows"]


def test_every_stored_row_is_found_by_its_recipe(every_recipe_hash):
    """A row of a budget that changed goes with the budget."""
    assert every_recipe_hash.keys() == RECIPES.keys()
    assert sum(entry["rows"] for entry in every_recipe_hash.values()) == len(fingerprints.stored_recipes())


def test_recipes_of_one_task_are_frozen_again(monkeypatch, tmp_path, capsys, every_recipe_hash):
    monkeypatch.setattr(fingerprints, "every_recipe_hash", lambda: every_recipe_hash)
    monkeypatch.setattr(fingerprints, "RECIPES", tmp_path / "recipes.json")
    fingerprints.RECIPES.write_text(json.dumps(RECIPES | {"cpu, zebra": {"rows": 0, "recipes": {}}}))
    monkeypatch.setattr("sys.argv", ["fingerprints.py", "--freeze-recipes", "cpu, zebra"])
    assert fingerprints.main() == 0
    assert json.loads(fingerprints.RECIPES.read_text()) == RECIPES
    num_rows = len(fingerprints.stored_recipes())
    assert f"recipes, which find {num_rows} of {num_rows} rows in cpu" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^cpu, zebr: unknown\. .*; cpu, zebra;"):
        fingerprints.freeze_recipes(["cpu, zebr"])


def test_differences_of_fingerprints_are_listed_by_name():
    stored = {"mdm": {"losses": ["0x1.0000000000000p+0", "0x1.8p+1"], "sample": "a"}, "gone": 1}
    found = {"mdm": {"losses": ["0x1.0000001000000p+0", "0x1.9p+1"], "sample": "b"}, "new": [2]}
    assert differences(stored, stored) == []
    assert differences(stored, found) == [
        "gone: 1 before, nothing now",
        "mdm / losses / 1: 0x1.8p+1 before, 0x1.9p+1 now",
        "mdm / sample: a before, b now",
        "new / 0: nothing before, 2 now",
    ]
