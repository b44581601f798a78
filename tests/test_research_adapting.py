"""The script of research/adapting, which measures adapted models, and its tables."""

import json
import sys

import pytest

from helpers.documentation import ROOT
from helpers.tiny_models import tiny_model
from latent_tokens import DataConfig, TrainConfig, fit, make_data

sys.path.append(str(ROOT / "research" / "adapting"))
import adapting

WORDS = ["cats", "dogs", "birds"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model of transformers, a data set, and a run that kept its checkpoints."""
    folder = tmp_path_factory.mktemp("adapting")
    for number in range(120):
        (folder / f"{number}.txt").write_text(f"{number} {WORDS[number % 3]} ran.")
    source = {"source": str(folder), "length": 12, "tokenizer": "bytes"}
    data = make_data(DataConfig("text", folder / "data", **source))
    tiny_model("llama", vocab_size=257).save_pretrained(folder / "base")
    training = {"steps": 4, "batch_size": 2, "evaluate_every": 2, "save_every": 2, "warmup": 1}
    run = fit(
        TrainConfig(
            "text", "ar-latents", folder / "run", data=data, start=folder / "base", lora=2, lr=1e-2,
            precision="fp32", **training,
        )
    )  # fmt: skip
    return folder / "base", data, run


@pytest.fixture
def run_script(tmp_path, monkeypatch, capsys):
    """Run the script with rows of its own, and four sequences, or two at a checkpoint. Return its output."""
    for name, value in {"ROWS": tmp_path / "rows.jsonl", "SEQUENCES": 4, "FEW": 2}.items():
        monkeypatch.setattr(adapting, name, value)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["adapting.py", *map(str, arguments)])
        adapting.main()
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_adapted_models_are_measured_once_and_rendered(made, run_script):
    base, data, run = made
    for arguments in ([base, data], [base, data, run], [base, data, run]):
        text = run_script(*arguments)

    rows = [json.loads(line) for line in adapting.ROWS.read_text().splitlines()]
    of_run = [(row["step"], row["latents"], len(row["nats"])) for row in rows[1:]]
    at_checkpoints = [(2, 0, 2), (2, 8, 2), (4, 0, 2), (4, 8, 2)]
    assert of_run == [*at_checkpoints, (4, 0, 4), (4, 8, 4), (4, 64, 4), (4, "all", 4)]
    assert (rows[0]["model"], rows[0]["method"]) == ("base", "arm")
    assert rows[1]["weights_sha256"] != rows[3]["weights_sha256"]
    assert rows[4]["nats"] != rows[3]["nats"]
    assert text.count("| run | ar-latents | 4 |") == 4
    assert f"{sum(rows[0]['nats']) / sum(rows[0]['tokens']):.3f} ± " in text


def fit_without_cache(made, method, out):
    base, data, _ = made
    settings = {"steps": 2, "batch_size": 2, "evaluate_every": 1, "save_every": 1, "warmup": 1}
    return fit("text", method, out=out, data=data, start=base, lora=2, precision="fp32", **settings)


@pytest.mark.slow
def test_scdm_is_measured_at_its_end(made, tmp_path):
    run = fit_without_cache(made, "scdm", tmp_path / "run")
    (part,) = adapting.parts_of(made[0], run)
    assert (part.step, part.sequences, part.latents) == (2, adapting.SEQUENCES, (0, 8, "all"))


@pytest.mark.slow
def test_runs_of_mdm_are_compared_on_the_same_tokens(made, tmp_path, run_script):
    for method in ("mdm", "mdm-left"):
        text = run_script(*made[:2], fit_without_cache(made, method, tmp_path / method))

    rows = [json.loads(line) for line in adapting.ROWS.read_text().splitlines()]
    assert [(row["method"], row["latents"], row["tokens"]) for row in rows] == [
        ("mdm", "all", [11, 11]),
        ("mdm-left", "all", [11, 11]),
    ]
    assert all(list(row["validation"]) == ["1", "2"] for row in rows)
    lines = text[text.index("| model | method | loss") :].splitlines()
    assert lines[0].startswith("| model | method | loss, 1 steps | loss, 2 steps | nats per token |")
    apart, _ = adapting.difference(rows[1], rows[0])
    assert f"| {apart:+.3f} ± " in lines[3]
