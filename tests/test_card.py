"""The script that releases the bundled models, and their cards, which are up to date."""

import shutil
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from helpers.documentation import ROOT
from helpers.refusals import refused
from helpers.runs import tiny_run
from latent_tokens import METHODS, EvalConfig, fit, from_pretrained
from latent_tokens.checkpoints.files import BUNDLED, bundled_names
from latent_tokens.sharing.card import card
from latent_tokens.storage import append_line, read_description, read_lines


@pytest.fixture
def script(tmp_path, monkeypatch):
    """scripts/release_models.py, which writes to an empty package and measures 4 samples per row."""
    path = ROOT / "scripts" / "release_models.py"
    about = spec_from_file_location("release_models", path)
    script = module_from_spec(about)
    about.loader.exec_module(script)
    monkeypatch.setattr(script, "BUNDLED", tmp_path)
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results.jsonl")
    few = partial(lambda few, **config: EvalConfig(**{**config, "num_samples": few}), 4)
    monkeypatch.setattr(script, "EvalConfig", few)
    return script


def test_a_model_is_put_into_the_package_with_its_rows(tmp_path, script):
    """Its earlier rows are replaced, and those of other models stay. A directory with a card is copied."""
    old = [{"task": "sudoku-4", "method": method} for method in ("mdm", "sidm")]
    for row in old:
        append_line(tmp_path / "results.jsonl", row)
    run = fit(tiny_run(tmp_path / "runs" / "sudoku-4-mdm", method="mdm"))
    rows = script.bundle(run, tmp_path / "beside" / "sudoku-4-mdm")
    assert [(row["order"], row["precision"]) for row in rows] == [("top_prob", "fp32"), ("uniform", "fp32")]
    script.put(tmp_path / "beside" / "sudoku-4-mdm", rows)
    assert read_lines(tmp_path / "results.jsonl") == [old[1], *rows]
    written = (tmp_path / "sudoku-4-mdm" / "README.md").read_text()
    assert written == card(tmp_path / "sudoku-4-mdm", rows, license="apache-2.0")
    assert from_pretrained(tmp_path / "sudoku-4-mdm").method == METHODS["mdm"]


def test_release_writes_the_models_their_rows_readme_and_figure(tmp_path, script, monkeypatch, capsys):
    """A directory with a card is copied with its rows. Bundled models replace newly trained ones here."""
    monkeypatch.setattr(script, "ROOT", tmp_path)
    stored = read_lines(BUNDLED / "results.jsonl")
    changed = [
        {**row, "valid": 12.34, "ci95": [10.0, 15.06], "relative_cost": 0.127}
        if (row["method"], row["candidates"], row["latents"], row["order"]) == ("scdm", 4, 4, "top_prob")
        else row
        for row in stored
    ]
    made = tmp_path / "made"
    shutil.copytree(BUNDLED / "sudoku-6-scdm", made / "sudoku-6-scdm")
    for row in changed:
        append_line(made / "results.jsonl", row)
    readme = (ROOT / "README.md").read_text()
    (tmp_path / "README.md").write_text(readme)
    for row in stored:
        append_line(tmp_path / "results.jsonl", row)
    (tmp_path / "docs").mkdir()
    script.main([made / "sudoku-6-scdm"])
    own = [row for row in changed if (row["task"], row["method"]) == ("sudoku-6", "scdm")]
    assert read_lines(tmp_path / "results.jsonl")[-len(own) :] == own
    before, after = (text.splitlines() for text in (readme, (tmp_path / "README.md").read_text()))
    different = [line for line, old in zip(after, before, strict=True) if line != old]
    assert different == ["| `scdm` | 4 | top-prob | 12.3% | 10.0-15.1 | 0.13x |"]
    paths = [tmp_path / name for name in ("README.md", "docs/latents.png", "docs/latents.svg")]
    assert capsys.readouterr().out.split() == list(map(str, paths))
    assert all(path.is_file() for path in paths)
    with refused("is not a directory"):
        script.main([tmp_path / "nowhere"])


def test_the_readme_has_the_numbers_of_the_bundled_rows(script):
    readme = (ROOT / "README.md").read_text()
    stored = read_lines(BUNDLED / "results.jsonl")
    assert len(script.README_ROW.findall(readme)) == 7
    assert script.with_results(readme, stored) == readme
    with refused("scdm, 0, top-prob"):
        script.with_results(readme, stored[:0])


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_model_has_its_card(name):
    about = read_description(BUNDLED / name, "config.json", "model")
    rows = read_lines(BUNDLED / "results.jsonl")
    own = [row for row in rows if (row["task"], row["method"]) == (about["task"]["name"], about["name"])]
    assert own
    assert (BUNDLED / name / "README.md").read_text() == card(BUNDLED / name, own, license="apache-2.0")
