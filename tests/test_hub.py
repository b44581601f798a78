"""A model is equal after upload and download, its card is complete, and the bundled ones are up to date."""

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
import yaml

from helpers.documentation import ROOT
from helpers.hub import serving
from helpers.refusals import refused
from helpers.runs import tiny_run
from latent_tokens import METHODS, EvalConfig, evaluate, fit, from_pretrained, load, save_pretrained
from latent_tokens.checkpoints.files import BUNDLED, bundled_names, find, tensors_sha256
from latent_tokens.evaluation.rows import read_results, trained_run
from latent_tokens.hf.export import MODULE, RESULTS, export_model
from latent_tokens.hf.model_card import CARD, card
from latent_tokens.storage import append_line, read_description, read_lines
from latent_tokens.tasks import TASKS, described


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run with a result."""
    folder = fit(tiny_run(tmp_path_factory.mktemp("runs") / "mine", steps=3, method="scdm"))
    (row,) = evaluate(from_pretrained(folder), TASKS["sudoku-4"], EvalConfig(latents=(3,), num_samples=5))
    append_line(folder / RESULTS, row)
    return folder


def same(one, other):
    """Return whether two networks have the same weights and method."""
    weights = {tensors_sha256(net.state_dict()) for net in (one, other)}
    return one.method == other.method and len(weights) == 1


def front(text):
    """Return the YAML header of a model card."""
    return yaml.safe_load(text.split("---\n")[1])


PUSH_AND_FETCH = """
import sys
import torch
from latent_tokens import from_pretrained
from latent_tokens.core.method import name_of
from latent_tokens.hf.export import push_to_hub
from latent_tokens.hf.modeling_latent_tokens import LatentTokensForMaskedLM
from transformers import AutoModelForMaskedLM, GenerationConfig
net = from_pretrained(sys.argv[1])
print(push_to_hub(net, "someone/mine", license="mit"))
back = from_pretrained("someone/mine")
assert back.method == net.method
assert all(map(torch.equal, net.state_dict().values(), back.state_dict().values()))
for options in ({}, {"local_files_only": True}):
    model = AutoModelForMaskedLM.from_pretrained("someone/all", subfolder="small/mine", **options)
    print(name_of(model.net.method))
model.generation_config = GenerationConfig(latents=3)
model.push_to_hub("someone/three")
print(LatentTokensForMaskedLM.from_pretrained("someone/three").generation_config.latents)
for read in (from_pretrained, LatentTokensForMaskedLM.from_pretrained):
    try:
        read("someone/nothing")
    except ValueError as error:
        print(error)
"""
AGAIN = """
from latent_tokens import from_pretrained
print(from_pretrained("someone/mine").folder)
try:
    from_pretrained("someone/nothing")
except ValueError as error:
    print(error)
from latent_tokens.cli import main
assert main(["sample", "someone/nothing"]) == 2
assert main(["evaluate", "someone/mine", "--num-samples", "2"]) == 0
"""


def output_of(script, address, home, *arguments):
    """Return the output of a process that uses the address as its hub."""
    hub = {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", "HF_TOKEN": "none"}
    settings = {"env": os.environ | hub, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", script, *arguments], **settings, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
def test_uploaded_model_is_fetched_and_cached_without_the_hub(run, tmp_path):
    """So is one in a subfolder, next to another model."""
    export_model(from_pretrained(run), tmp_path / "saved")
    with serving() as (address, repositories, asked):
        files = {f"small/mine/{path.name}": path.read_bytes() for path in (tmp_path / "saved").iterdir()}
        repositories["someone/all"] = {**files, "model.safetensors": b"another model"}
        said, _ = output_of(PUSH_AND_FETCH, address, tmp_path, str(run))
    commit, *methods, latents, refused, other = said.splitlines()
    assert (methods, latents) == (["scdm", "scdm"], "3")
    assert not any(re.fullmatch(r"/someone/all/resolve/[^/]*/model.safetensors", path) for _, path in asked)
    assert commit.startswith(f"{address}/someone/mine/commit/")
    assert "'someone/nothing' not found: not a run directory, not a bundled model" in refused
    for error in (refused, other):
        assert "there is no such model, or you may not read it: 404" in error
    files = repositories["someone/mine"]
    text = files["README.md"].decode()
    about = front(text)
    assert {"library_name": "latent-tokens", "license": "mit"}.items() <= about.items()
    assert {"latent-tokens", "scdm", "sudoku-4"} <= set(about["tags"])
    assert 'from_pretrained("someone/mine")' in text
    fetched = {path.rpartition("/")[2] for way, path in asked if way == "GET" and "/resolve/" in path}
    names = {"config.json", "model.safetensors", "results.jsonl", "tokenizer.json", "tokenizer_config.json"}
    assert fetched == {*names, "generation_config.json"}  # nothing that could be executed
    assert set(files) == {*names, "README.md", f"{MODULE}.py"}
    said, wrong = output_of(AGAIN, address, tmp_path)
    kept, not_fetched, *_ = said.splitlines()
    assert Path(kept).parents[1] == tmp_path / "hub" / "models--someone--mine"
    assert "it cannot be reached: [Errno 111] Connection refused" in not_fetched
    (line,) = [line for line in wrong.splitlines() if line.startswith("latent-tokens:")]
    assert "'someone/nothing' not found: not a run directory" in line
    # Rows of a model of someone else are printed and not stored.
    assert len(read_results(Path(kept) / "results.jsonl")) == 1


def test_bundled_model_and_name_that_no_hub_has_need_no_network():
    assert find("sudoku-6-scdm") == BUNDLED / "sudoku-6-scdm"
    for name in ("a/b/c", "/a/b", "../b", "a b/c", "hub:a/b", "a/"):
        with pytest.raises(ValueError, match=r"not a bundled model \([^)]*\)$"):
            from_pretrained(name)


def test_a_saved_model_carries_all_that_its_run_says(run, tmp_path):
    net = from_pretrained(run)
    export_model(net, tmp_path / "given")
    back = from_pretrained(tmp_path / "given")
    assert same(net, back)
    before, after = (read_description(folder, "config.json", "model") for folder in (run, tmp_path / "given"))
    assert before.items() <= after.items()
    text = (tmp_path / "given" / CARD).read_text()
    assert "of the task `sudoku-4` by the method `scdm`: 2 layers of width 16, 2 heads, 6,885 param" in text
    assert '"steps": 3,' in text
    assert before["data_sha256"]["train"] in text
    (row,) = read_results(run / RESULTS)
    assert f"| sudoku-4 | top-prob | 8 | 3 | valid | {row['valid']:.1f}% |" in text
    export_model(back, tmp_path / "again")
    shutil.copytree(run, tmp_path / "four")
    config = (run / "config.json").read_text()
    (tmp_path / "four/config.json").write_text(config.replace('"steps": 3', '"steps": 4'))
    export_model(from_pretrained(tmp_path / "four"), tmp_path / "stopped")  # after 3 of 4 steps
    stopped = from_pretrained(tmp_path / "stopped")
    assert trained_run(stopped)["train_steps"] == 3
    assert '"trained_steps": 3' in (stopped.folder / CARD).read_text()
    assert read_results(tmp_path / "stopped" / RESULTS) == [row]
    export_model(stopped, stopped.folder)
    assert read_results(tmp_path / "stopped" / RESULTS) == [row]
    append_line(tmp_path / "four/metrics.jsonl", {"step": 4, "validation_loss": 1.0})
    export_model(from_pretrained(tmp_path / "four"), tmp_path / "extended")
    assert "None were measured" in (tmp_path / "extended" / CARD).read_text()
    for save in (export_model, save_pretrained):
        with refused("four: is the directory of a run, which could not be resumed"):
            save(stopped, tmp_path / "four")
    given, again = (
        {file.name: file.read_bytes() for file in (tmp_path / folder).iterdir() if file.name != CARD}
        for folder in ("given", "again")
    )
    assert given == again
    with refused("no model (config.json is missing)"):
        card(tmp_path, [])


@pytest.mark.parametrize("change", ["weights", "method"])
def test_changed_model_is_saved_without_old_results(run, tmp_path, change):
    export_model(from_pretrained(run), tmp_path / "given")
    net = from_pretrained(run)
    if change == "weights":
        net.head.bias.data[0] += 0.5
    else:
        net.method = METHODS["sidm"]
    (tmp_path / "given" / "chat_template.jinja").write_text("{{ messages }}")
    export_model(net, tmp_path / "given")  # over a model with results and a template
    assert not (tmp_path / "given" / "chat_template.jinja").exists()
    assert read_results(tmp_path / "given" / RESULTS) == []
    about = read_description(tmp_path / "given", "config.json", "model")
    assert about["name"] == ("scdm" if change == "weights" else "sidm")
    assert described(about["task"], tmp_path / "given") == TASKS["sudoku-4"]
    assert not {"training", "made_with", "data_sha256"} & set(about)
    text = (tmp_path / "given" / CARD).read_text()
    assert "It is not known how it was trained" in text
    assert "None were measured" in text
    assert same(from_pretrained(tmp_path / "given"), net)


def test_a_model_made_in_code_or_whose_folder_is_gone(nano, tmp_path):
    nano.method = METHODS["arm"]
    export_model(nano, tmp_path / "made", dtype=torch.bfloat16)
    about = front((tmp_path / "made" / CARD).read_text())
    assert (about["pipeline_tag"], about["tags"]) == ("text-generation", ["latent-tokens", "diffusion"])
    assert torch.equal(from_pretrained(tmp_path / "made").head.bias, nano.head.bias.bfloat16().float())
    export_model(nano, tmp_path / "made", task=TASKS["sudoku-6"])
    assert load(tmp_path / "made").task == TASKS["sudoku-6"]
    nano.folder = tmp_path / "nowhere"
    with refused("is missing, and ", "Set net.folder = None"):
        export_model(nano, tmp_path / "lost")
    nano.folder = None
    assert not (tmp_path / "lost").exists()


# The script that releases the bundled models, and their cards, which are up to date.


@pytest.fixture
def release(tmp_path, monkeypatch):
    """scripts/release_models.py, which writes to an empty package and measures 4 samples per row."""
    path = ROOT / "scripts" / "release_models.py"
    about = spec_from_file_location("release_models", path)
    release = module_from_spec(about)
    about.loader.exec_module(release)
    monkeypatch.setattr(release, "BUNDLED", tmp_path)
    monkeypatch.setattr(release, "RESULTS", tmp_path / "results.jsonl")
    few = partial(lambda few, **config: EvalConfig(**{**config, "num_samples": few}), 4)
    monkeypatch.setattr(release, "EvalConfig", few)
    return release


def test_release_writes_the_models_their_rows_readme_and_figure(tmp_path, release, monkeypatch, capsys):
    """A run is measured, and a directory with a card is copied with its rows. Both replace earlier rows."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    old = [{"task": "sudoku-4", "method": method} for method in ("mdm", "sidm")]
    stored = read_lines(BUNDLED / "results.jsonl")
    for row in [*stored, *old]:
        append_line(tmp_path / "results.jsonl", row)
    readme = (ROOT / "README.md").read_text()
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / "docs").mkdir()
    run = fit(tiny_run(tmp_path / "runs" / "sudoku-4-mdm", method="mdm", steps=1))

    # A directory with a card, of which one row of the table of README.md has changed.
    copied = shutil.copytree(BUNDLED / "sudoku-6-scdm", tmp_path / "made" / "sudoku-6-scdm")
    own = [row for row in stored if (row["task"], row["method"]) == ("sudoku-6", "scdm")]
    for row in own:
        if (row["candidates"], row["latents"], row["order"]) == (4, 4, "top_prob"):
            row |= {"valid": 12.34, "ci95": [10.0, 15.06], "relative_cost": 0.127}
        append_line(tmp_path / "made" / "results.jsonl", row)

    release.main([run, copied])
    others = [row for row in stored if row not in own]
    rows = read_lines(tmp_path / "results.jsonl")
    measured = rows[len(others) + 1 : -len(own)]
    assert rows == [*others, old[1], *measured, *own]
    assert [(row["order"], row["precision"]) for row in measured] == [
        ("top_prob", "fp32"),
        ("uniform", "fp32"),
    ]
    written = (tmp_path / "sudoku-4-mdm" / "README.md").read_text()
    assert written == card(tmp_path / "sudoku-4-mdm", measured, license="apache-2.0", name="sudoku-4-mdm")
    assert from_pretrained(tmp_path / "sudoku-4-mdm").method == METHODS["mdm"]
    before, after = (text.splitlines() for text in (readme, (tmp_path / "README.md").read_text()))
    different = [line for line, unchanged in zip(after, before, strict=True) if line != unchanged]
    assert different == ["| `scdm` | 4 | top-prob | 12.3% | 10.0-15.1 | 0.13x |"]
    paths = [
        tmp_path / name
        for name in ("README.md", "docs/latents.png", "docs/latents.svg", "docs/latents-dark.svg")
    ]
    assert capsys.readouterr().out.split() == list(map(str, paths))
    assert all(path.is_file() for path in paths)
    with refused("is not a directory"):
        release.main([tmp_path / "runs" / "nowhere"])


def test_release_keeps_its_source_and_no_rows_of_other_weights(tmp_path, release):
    """A bundled directory would be deleted before it is copied. Without new rows the old ones would stay."""
    bundled, elsewhere = (
        shutil.copytree(BUNDLED / "sudoku-6-scdm", folder / "sudoku-6-scdm")
        for folder in (tmp_path, tmp_path / "made")
    )
    with refused(str(bundled), "is a bundled model"):
        release.main([bundled])
    with refused(str(elsewhere.parent / "results.jsonl"), "has no row of sudoku-6 scdm"):
        release.main([elsewhere])
    assert (bundled / "model.safetensors").is_file()


def test_the_readme_has_the_numbers_of_the_bundled_rows(release):
    readme = (ROOT / "README.md").read_text()
    stored = read_lines(BUNDLED / "results.jsonl")
    assert len(release.README_ROW.findall(readme)) == 7
    assert release.with_results(readme, stored) == readme
    with refused("scdm, 0, top-prob"):
        release.with_results(readme, stored[:0])


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_model_has_its_card(name):
    about = read_description(BUNDLED / name, "config.json", "model")
    rows = read_lines(BUNDLED / "results.jsonl")
    own = [row for row in rows if (row["task"], row["method"]) == (about["task"]["name"], about["name"])]
    assert own
    text = card(BUNDLED / name, own, license="apache-2.0", name=name)
    assert (BUNDLED / name / "README.md").read_text() == text
    assert ("num_train" in text) == (about["training"]["data"] is None)  # a data set has its own number
