"""A hostile model directory causes no traceback, copies no local file and injects nothing into a card."""

import json
import re
import shutil

import pytest
import yaml

from helpers.runs import tiny_run
from latent_tokens import DataConfig, fit, from_pretrained, make_data
from latent_tokens.checkpoints.hub import check_links
from latent_tokens.cli import main
from latent_tokens.sharing.card import card
from latent_tokens.sharing.hub import RESULTS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(tiny_run(tmp_path_factory.mktemp("runs") / "mine", steps=2))


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    place = tmp_path_factory.mktemp("text")
    (place / "text.txt").write_text(
        "\n".join(f"The {i}th of many lines that are all different, {i * i}." for i in range(400))
    )
    data = make_data(
        DataConfig(
            "text", place / "data", str(place / "text.txt"), tokenizer="bpe:300", length=16, processes=1
        )
    )
    config = tiny_run(place / "run", steps=1, data=data)
    return fit(type(config)(**{**vars(config), "task": "text"}))


@pytest.fixture
def model(run, tmp_path):
    shutil.copytree(run, tmp_path / "model")
    return tmp_path / "model"


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def exported(folder, capsys):
    """Return (the exit code of export, its last line)."""
    capsys.readouterr()
    code = main(["export", str(folder), str(folder.parent / "exported")])
    lines = capsys.readouterr().err.splitlines()
    return code, lines[-1] if lines else ""


@pytest.mark.parametrize("name", ["tokenizer.json", RESULTS, "config.json", "model.safetensors"])
def test_export_refuses_a_link_that_leaves_the_directory(model, tmp_path, capsys, name):
    if (model / name).is_file():
        (model / name).rename(tmp_path / "secret")
    else:
        (tmp_path / "secret").write_text("{}")
    (model / name).symlink_to(tmp_path / "secret")
    code, line = exported(model, capsys)
    assert code == 2
    assert f"{model / name}: is a link to {tmp_path / 'secret'}, outside of the directory" in line


def test_export_copies_no_tokenizer_of_a_task_without_text(model, capsys):
    (model / "tokenizer.json").write_text("a secret")
    assert exported(model, capsys)[0] == 0
    assert "a secret" not in (model.parent / "exported" / "tokenizer.json").read_text()


def test_export_writes_the_tokenizer_that_was_read(text_run, tmp_path, capsys):
    shutil.copytree(text_run, tmp_path / "model")
    assert exported(tmp_path / "model", capsys)[0] == 0
    assert (tmp_path / "exported" / "tokenizer.json").read_bytes() == (
        text_run / "tokenizer.json"
    ).read_bytes()
    assert from_pretrained(tmp_path / "exported").vocab_size == 300


def test_links_of_the_hub_cache_are_followed(tmp_path):
    snapshot, blob = tmp_path / "models--a--b" / "snapshots" / "0", tmp_path / "models--a--b" / "blobs" / "f"
    for path in (snapshot, blob.parent):
        path.mkdir(parents=True)
    blob.write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/f")
    check_links(snapshot, ["config.json"])
    (snapshot / RESULTS).symlink_to("../../../secret")
    with pytest.raises(ValueError, match="outside of the directory"):
        check_links(snapshot, [RESULTS])


WRONG = {"task": [], "name": {"a": 1}, "training": "x", "data_sha256": ["x"], "made_with": 3}
WRONG_INSIDE = {"task": {"name": ["sudoku-4"]}, "data_sha256": {"train": 1}}


def test_export_refuses_a_field_of_a_wrong_type_in_one_line(model, capsys):
    config = (model / "config.json").read_text()
    for name, value in (*WRONG.items(), *WRONG_INSIDE.items()):
        edit(model, **{name: value})
        code, line = exported(model, capsys)
        assert code == 2
        assert re.search(rf"config.json: corrupt \({name}\S* is a \w+, must be a \w+\)", line)
        (model / "config.json").write_text(config)


def test_export_refuses_a_result_without_keys_in_one_line(model, capsys):
    (model / RESULTS).write_text('{"task": "sudoku-4"}\n')
    code, line = exported(model, capsys)
    assert (code, "row 1: has no method, order" in line) == (2, True)


HOSTILE = (
    "x`\n---\nlicense: evil\n---\n<script>alert(1)</script> | a | [b](javascript:c) **d** $(e) "
    '\u202e "; import os'
)


def test_hostile_names_inject_nothing_into_a_card(model):
    config = json.loads((model / "config.json").read_text())
    training = {
        **config["training"],
        **dict.fromkeys(("size", "schedule", "precision", "data", "seed"), HOSTILE),
    }
    made = dict.fromkeys(("latent_tokens", "commit", "torch"), HOSTILE)
    edit(
        model,
        task={"name": HOSTILE},
        name=HOSTILE,
        training=training,
        made_with=made,
        data_sha256={"train": HOSTILE},
    )
    hostile_row = dict.fromkeys(
        ("task", "method", "order", "candidates", "latents", "metric", "problems", "judge"), HOSTILE
    )
    row = {**hostile_row, HOSTILE: 1.0, "ci95": None, "num_samples": 1, "relative_cost": 1.0}
    text = card(model, [row], name=HOSTILE)
    lines = text.splitlines()
    front, body = lines[1 : lines.index("---", 1)], lines[lines.index("---", 1) + 1 :]
    about = yaml.safe_load("\n".join(front))
    assert set(about) == {"library_name", "pipeline_tag", "tags"}
    assert "---" not in body
    assert not any(line.startswith("license:") for line in body)
    outside_code = re.sub(r"`[^`]*`", "", re.sub(r"```.*?```", "", "\n".join(body), flags=re.S))
    assert "<" not in outside_code
    assert not re.search(r"(?<!\\)\]\(", outside_code)
    assert "\u202e" not in text
    widths = {line.count("|") for line in body if line.startswith("|")}
    assert len(widths) == 1  # no value makes another cell
    (python, *_) = re.findall(r"```python\n(.*?)```", text, re.S)
    compile(python, "card", "exec")  # the name is one string of it
    assert len(python.splitlines()) == 3
