"""`load`, `train` and the methods of `Model` equal the functions underneath, which take many forms."""

import pkgutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import latent_tokens as lt
from helpers.documentation import ROOT
from helpers.own_network import Tied
from helpers.refusals import refused
from latent_tokens.cli import main

TASK = lt.TASKS["sudoku-4"]
SCDM = lt.METHODS["scdm"]
KNOWN = torch.arange(16)[None] < torch.tensor([[3], [5]])
TOKENS = torch.arange(16).expand(2, -1) % 4
PUZZLE = "1.....3............2................"
BUDGET = {"size": "pico", "steps": 2, "batch_size": 8, "num_train": 64, "num_validation": 16, "threads": 1}


@pytest.fixture(scope="module")
def bundled():
    torch.set_num_threads(1)
    return lt.load("sudoku-6-scdm")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.set_num_threads(1)
    return lt.fit(lt.TrainConfig("sudoku-4", "scdm", tmp_path_factory.mktemp("runs") / "four", **BUDGET))


@pytest.fixture(scope="module")
def small(run):
    return lt.load(run)


def test_load_returns_the_task_and_the_method(bundled):
    assert bundled.task == lt.TASKS["sudoku-6"]
    assert bundled.method == lt.METHODS["scdm"] == bundled.net.method
    assert bundled.directory.name == "sudoku-6-scdm"


def test_model_prints_its_size_and_moves(bundled):
    directory = bundled.directory
    assert repr(bundled) == f"Model(scdm of sudoku-6, 128x4x4, 0.8M parameters, {directory})"
    assert bundled.num_parameters() == sum(weight.numel() for weight in bundled.net.parameters())
    assert bundled.to("cpu") is bundled
    assert bundled.device == torch.device("cpu")


def test_generate_takes_a_puzzle_as_text(bundled):
    samples = bundled.generate(PUZZLE, latents=4)
    tokens, known, _ = lt.as_tensors(bundled.task.encode(PUZZLE))
    expected = lt.generate(bundled.net, bundled.method, tokens, known, lt.Decoding(8, 4), 0)
    assert samples.tokens.tolist() == expected.tokens.tolist()
    assert samples.tokens_processed.tolist() == expected.tokens_processed.tolist()
    assert samples.order.tolist() == expected.order.tolist()
    assert samples.forward_passes == expected.forward_passes == 33
    assert samples.text == [bundled.task.decode(samples.tokens[0])]
    assert samples.valid.tolist() == [not bundled.task.verify(samples.tokens[0])]
    assert samples.valid.dtype == bool


@pytest.fixture(scope="module")
def board():
    """Return the first row of a board, as tokens and as text."""
    tokens = np.zeros((1, 16), np.int64)
    tokens[0, :4] = [0, 1, 2, 3]
    return tokens, np.arange(16)[None] < 4, "1234............"


@pytest.mark.parametrize(
    "form", ["numpy", "stored", "torch", "one row", "lists", "MASK", "examples", "texts", "item", "items"]
)
def test_generate_takes_prompts_in_every_form(small, board, form):
    tokens, known, text = board
    stored = tokens.astype(np.uint16)
    stored.setflags(write=False)
    prompts = {
        "numpy": (tokens, known),
        "stored": (stored, np.broadcast_to(known, (1, 16))),  # read-only, as those of a data set of text
        "torch": (torch.tensor(tokens), torch.tensor(known)),
        "one row": (tokens[0], known[0]),
        "lists": (tokens.tolist(), known.tolist()),
        "MASK": (np.where(known, tokens, 4),),
        "examples": (small.task.encode(text),),
        "texts": ([text],),
        "item": (small.task.encode(text)[0],),
        "items": ([small.task.encode(text)[0]],),
    }
    expected = small.generate(text)
    assert small.generate(*prompts[form]).tokens.tolist() == expected.tokens.tolist()
    assert expected.tokens[0, :4].tolist() == [0, 1, 2, 3]


def test_generate_repeats_one_prompt(small, board):
    samples = small.generate(board[2], num_samples=5)
    assert len({tuple(row) for row in samples.tokens.tolist()}) > 1
    assert samples.tokens[0].tolist() == small.generate(board[2]).tokens[0].tolist()


def test_generate_without_a_prompt_draws_samples(small):
    samples = small.generate(num_samples=3, seed=1)
    known = torch.zeros(3, 16, dtype=torch.bool)
    expected = lt.generate(small.net, small.method, known.long(), known, lt.Decoding(8), 1)
    assert samples.tokens.tolist() == expected.tokens.tolist()
    assert len(samples.text) == len(samples.valid) == 3


@pytest.mark.parametrize(
    ("settings", "decoding"),
    [
        ({"order": "uniform", "temperature": 0.5}, lt.Decoding(1, temperature=0.5)),
        ({"candidates": lt.growing}, lt.Decoding(lt.growing)),
        ({"confidence": lt.margin, "latents": lambda masked: masked // 2}, None),
        ({"order": lt.given(list(range(16)))}, lt.Decoding(1, order=lt.given(list(range(16))))),
        ({"latent_policy": lt.random, "latents": 2}, lt.Decoding(8, 2, latent_policy=lt.random)),
    ],
    ids=["names", "rule of candidates", "confidence", "order", "latent policy"],
)
def test_generate_takes_every_setting_of_decoding(small, settings, decoding):
    decoding = decoding or lt.Decoding(8, settings["latents"], confidence=lt.margin)
    known = torch.zeros(2, 16, dtype=torch.bool)
    expected = lt.generate(small.net, small.method, known.long(), known, decoding, 0)
    assert small.generate(num_samples=2, **settings).tokens.tolist() == expected.tokens.tolist()


def test_samples_are_rows_of_a_frame(small):
    samples = small.generate(num_samples=3)
    frame = samples.to_pandas()
    assert len(frame) == len(samples) == len(list(samples)) == 3
    for number in range(3):
        sample = samples[number]
        assert sample["tokens"].tolist() == samples.tokens[number].tolist()
        assert (sample["text"], sample["valid"]) == (samples.text[number], samples.valid[number])
        assert frame.tokens_processed[number] == samples.tokens_processed[number]
        assert frame.order[number].tolist() == samples.order[number].tolist()
    with pytest.raises(IndexError):
        samples[3]


def test_samples_of_text_end_at_the_end_of_the_document():
    model = lt.load("novels-scdm")
    samples = model.generate(num_samples=2, latents=4)
    known = model.task.encode("").known[0]
    assert samples.text == [model.task.document(tokens, known) for tokens in samples.tokens]
    assert "<|endoftext|>" in model.task.decode(samples.tokens[0])
    assert "<|endoftext|>" not in "".join(samples.text)
    assert [sample["valid"] for sample in samples] == [None, None]


def test_generate_calls_a_function_with_every_step(small):
    steps = []
    samples = small.generate(num_samples=2, latents=2, on_step=steps.append)
    assert len(steps) == samples.forward_passes == 16
    assert [len(positions) for positions in steps[0].latents] == [2, 2]


# Rows that tests/test_mistakes.py does not have.
MISTAKES = {
    "confidence=unsure: must be one of top_prob, margin, entropy": {"confidence": "unsure"},
    "num_samples=0: must be a whole number from 1": {"num_samples": 0},
    "num_samples=2: there are 3 prompts": {"prompt": ["1" + "." * 15] * 3, "num_samples": 2},
    "known=None: every token is given": {"prompt": [0] * 16},
    "tokens (1, 9), known (1, 9) of torch.bool: must be (N, 16)": {"prompt": [4] * 9},
    "of torch.int64: must be": {"prompt": [0] * 16, "known": [1] * 16},
    "prompt of torch.float32": {"prompt": [0.5] * 16},
    "prompt with token 7: sudoku-4 has the tokens 0-3. Use 4, MASK": {"prompt": [7] + [4] * 15},
    "prompt with token -1: sudoku-4 has": {"prompt": [-1] + [4] * 15},
    "prompt of 36 positions: sudoku-4 has 16": {"prompt": lt.TASKS["sudoku-6"].generate(1, 0)},
    "prompt: is empty": {"prompt": []},
    "known: is for token ids": {"prompt": "1" + "." * 15, "known": [True] * 16},
    "known: there is no prompt": {"known": [True] * 16},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_generate_refuses_a_mistake_in_one_line(small, message):
    with refused(message):
        small.generate(**MISTAKES[message])


def test_ids_of_a_task_of_varying_lengths_are_refused(tmp_path):
    """All positions of ids would be decoded, also those after the end of an example."""
    task = lt.TASKS["countdown-3"]
    problems = task.generate(3, seed=0)
    assert len(set(problems.lengths.tolist())) > 1
    model = lt.train("countdown-3", "scdm", out=tmp_path / "run", **BUDGET)
    assert model.generate(problems, latents=0).tokens.shape == (3, task.length)
    with refused("different lengths", "Examples"):
        model.generate(problems.tokens, problems.known)


def test_evaluate_returns_the_rows_of_the_function(small, capsys, tmp_path):
    results = small.evaluate(latents=(0, "all"), num_samples=8, out=tmp_path / "kept")
    assert lt.results(tmp_path / "kept").latents.tolist() == [0, 16]
    own = {"order": "uniform", "tokens_per_step": lt.equal_parts(4), "out": tmp_path / "parts"}
    assert small.evaluate(num_samples=2, **own).rows[0]["tokens_per_step"] == "equal_parts(4)"
    assert lt.results(tmp_path / "parts").tokens_per_step.tolist() == ["equal_parts(4)"]
    rows = lt.evaluate(small.net, small.task, lt.EvalConfig(latents=(0, "all"), num_samples=8))
    timed = ("seconds", "samples_per_second")
    assert (len(results), results[0], [*results]) == (len(rows), results.rows[0], results.rows)
    for row, expected in zip(results.rows, rows, strict=True):
        assert {**row, **dict.fromkeys(timed)} == {**expected, **dict.fromkeys(timed)}

    command = ["evaluate", str(small.directory), "--latents", "0", "all", "--num-samples", "8"]
    assert main([*command, "--out", str(tmp_path / "rows")]) == 0
    tables = str(results), capsys.readouterr().out
    by_python, by_command = ([line.split()[:-1] for line in text.splitlines()[1:]] for text in tables)
    assert by_python == by_command


def test_evaluate_refuses_a_mistake_in_one_line(small, monkeypatch):
    with refused("likelihood: the model learned sudoku-4. Use a text model."):
        small.likelihood("1234")
    results = small.evaluate(num_samples=1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused("pip install pandas"):
        results.to_pandas()


def test_train_returns_the_model_of_fit(run, tmp_path):
    model = lt.train("sudoku-4", "scdm", out=str(tmp_path / "four"), **BUDGET)
    weights = lt.from_pretrained(run).state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.net.state_dict().items())
    assert model.directory == tmp_path / "four"


@pytest.mark.parametrize("net", [None, Tied(4, 16)], ids=["Transformer", "own"])
def test_train_takes_a_task_method_and_network_of_your_own(tmp_path, net):
    method = replace(lt.METHODS["scdm"], window=2)
    budget = BUDGET if net is None else {name: value for name, value in BUDGET.items() if name != "size"}
    model = lt.train(lt.TASKS["sudoku-4"], method, net=net, out=tmp_path / "own", **budget)
    assert model.method == method
    assert model.task is lt.TASKS["sudoku-4"]
    assert net is None or model.net is net
    assert model.generate(num_samples=2, latents=1).tokens.shape == (2, 16)
    rows = model.evaluate(latents=(0, "all"), candidates=1, num_samples=2).rows
    assert [row["latents"] for row in rows] == [0, 1]  # a window of two tokens
    model.save_pretrained(tmp_path / "saved")
    saved = lt.load(tmp_path / "saved") if net is None else lt.from_pretrained(tmp_path / "saved", net=net)
    assert saved.method == method


def test_size_is_a_name_or_width_heads_and_layers(tmp_path):
    model = lt.train("sudoku-4", "scdm", out=tmp_path / "small", **{**BUDGET, "size": "24x2x3"})
    assert model.net.size == lt.Size(width=24, heads=2, layers=3)
    assert lt.load(tmp_path / "small").net.size == model.net.size


def test_own_network_has_the_task_of_its_data_set(tmp_path):
    counts = {"num_train": 8, "num_validation": 2, "num_test": 2}
    data = lt.make_data(lt.DataConfig("sudoku-4", tmp_path / "data", padding="paper", **counts))
    task, _ = lt.load_data(data)
    net = lt.Transformer(lt.SIZES["pico"], task.vocab_size, task.length)
    model = lt.train("sudoku-4", "scdm", net=net, out=tmp_path / "own", data=data, steps=1, threads=1)
    assert model.task == task


# The functions underneath: calls that a PyTorch user may guess.


@pytest.fixture
def untrained():
    torch.manual_seed(0)
    net = lt.Transformer("pico", TASK.vocab_size, TASK.length).eval()
    net.method = SCDM
    return net


def test_transformer_takes_a_size_by_name_and_names_what_load_has(untrained):
    assert lt.Transformer("nano", 4, 16).size == lt.SIZES["nano"]
    assert untrained.device == torch.device("cpu")
    assert untrained.to("meta").device.type == "meta"
    for name, fix in (("generate", "generate(net, ...)"), ("task", "load(NAME).task")):
        assert not hasattr(untrained, name)
        with pytest.raises(AttributeError) as error:
            getattr(untrained, name)
        assert fix in str(error.value)


def test_generate_has_defaults_and_takes_fields_of_decoding_by_name(untrained):
    expected = lt.generate(untrained, SCDM, TOKENS, KNOWN, lt.Decoding(8), 0)
    assert torch.equal(lt.generate(untrained, untrained.method, TOKENS, KNOWN).tokens, expected.tokens)
    assert torch.equal(lt.generate(untrained, tokens=TOKENS, known=KNOWN).tokens, expected.tokens)
    expected = lt.generate(untrained, SCDM, TOKENS, KNOWN, lt.Decoding(candidates=2, latents=4), 0)
    sample = lt.generate(untrained, SCDM, TOKENS, KNOWN, lt.Decoding(candidates=2), latents=4)
    assert torch.equal(sample.tokens, expected.tokens)
    assert torch.equal(sample.tokens_processed, expected.tokens_processed)
    with refused("method=None: the net has no method. Use one of METHODS"):
        lt.generate(lt.Transformer("pico", 4, 16), tokens=TOKENS, known=KNOWN)


def test_loss_without_a_generator_draws_from_that_of_torch(untrained):
    expected = lt.loss(untrained, SCDM, TOKENS, KNOWN, torch.Generator().manual_seed(3))
    torch.manual_seed(3)
    assert lt.loss(untrained, SCDM, TOKENS, KNOWN) == expected
    assert lt.loss(untrained, SCDM, TOKENS, KNOWN) != expected


def test_evaluate_has_a_default_config_and_takes_its_fields_and_a_task_by_name(untrained):
    rows = lt.evaluate(untrained, TASK, latents=(0, 4), num_samples=2)
    assert [row["latents"] for row in rows] == [0, 4]
    by_name = lt.evaluate(untrained, "sudoku-4", latents=[0, 4], num_samples=2)
    assert [row["valid"] for row in by_name] == [row["valid"] for row in rows]
    assert lt.evaluate(untrained, TASK, lt.EvalConfig(num_samples=2))[0]["valid"] == rows[0]["valid"]


def test_results_without_rows_have_a_title(bundled, monkeypatch):
    """As on ranks other than 0, where texts are not scored."""
    monkeypatch.setattr("latent_tokens.model.evaluate", lambda *args, **settings: [])
    results = bundled.evaluate(num_samples=1)
    assert (len(results), results.title) == (0, "sudoku-6-scdm")


def test_configs_take_latents_in_every_form_and_paths_as_text():
    for latents, expected in (([0, 4], (0, 4)), (4, (4,)), ("all", ("all",)), ((0, "all"), (0, "all"))):
        assert lt.EvalConfig(latents=latents).latents == expected
    assert lt.TrainConfig("sudoku-4", "scdm", out="runs/x", data="data/x").folder == Path("runs/x")
    assert lt.EvalConfig(data="data/x").data == Path("data/x")
    config = lt.DataConfig("sudoku-4", out="data/x", apart_from=["data/y"])
    assert (config.folder, config.apart_from) == (Path("data/x"), (Path("data/y"),))
    with refused("out=5: must be a path"):
        lt.TrainConfig("sudoku-4", "scdm", out=5)


def test_data_sets_are_taken_by_a_path_and_a_task_as_text(tmp_path):
    counts = {"num_train": 8, "num_validation": 2, "num_test": 2}
    folder = lt.make_data(lt.DataConfig("sudoku-4", out=str(tmp_path / "four"), processes=1, **counts))
    task, splits = lt.load_data(str(folder))
    assert task == TASK
    assert np.array_equal(splits["train"].tokens, lt.load_data(folder)[1]["train"].tokens)
    assert len(lt.dataset("sudoku-4", "train", 8)) == 8
    with refused("Use Text(length=256)"):
        lt.TASKS["text"]


def test_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert lt.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_no_public_name_is_a_module():
    """Importing a module sets it as an attribute of its package, where it would hide the name."""
    modules = {module.name for module in pkgutil.iter_modules(lt.__path__)}
    assert "model" in modules
    assert not modules & set(lt.__all__)
