"""A language model of transformers, trained with the ordinary command as a model with latent tokens."""

import json
import shutil
import sys
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from safetensors.torch import load_file
from torch.optim.swa_utils import AveragedModel
from transformers import AutoModelForCausalLM, AutoTokenizer

import latent_tokens as lt
from helpers.refusals import refused, refused_command
from helpers.runs import checkpoints, description, stop_at, tiny_run
from helpers.tiny_models import tiny_model
from latent_tokens.cli import main
from latent_tokens.harness.text_model import open_model
from latent_tokens.hf.adapting import add_lora, merged
from latent_tokens.hf.language_models import FAMILIES, Adapter
from latent_tokens.tasks.text.tokenizer import learn_bpe
from latent_tokens.training.step import ema_update, place_ema

BYTES = 257  # tokens, the last ends a document
TIED = pytest.param("gpt2", marks=pytest.mark.slow)
MASK = {"llama": BYTES + 3, "gpt2": BYTES}  # the number of tokens of each model; GPT-2's head is tied


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences of 12 bytes."""
    folder = tmp_path_factory.mktemp("text")
    for number in range(200):
        (folder / f"{number}.txt").write_text(f"{number} cats and {number + 1} dogs ran.")
    return lt.make_data(
        lt.DataConfig("text", folder / "data", source=str(folder), length=12, tokenizer="bytes")
    )


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A directory of transformers of each family."""
    folder = tmp_path_factory.mktemp("bases")
    for family, vocab_size in MASK.items():
        tiny_model(family, vocab_size=vocab_size).save_pretrained(folder / family)
    tiny_model("llama", vocab_size=100).save_pretrained(folder / "small")
    shutil.copytree(folder / "llama", folder / "other")
    (folder / "other" / "tokenizer.json").write_bytes(learn_bpe(iter(["ab"]), 257).to_json())
    return folder


@pytest.fixture(scope="module")
def whole(data, bases, tmp_path_factory):
    """Return a function that returns the run of a family, which nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    return cache(lambda family: lt.fit(config_of(folder / family, data, bases / family)))


def config_of(out, data, start, method="esolm", **changes):
    settings = {"size": None, "warmup": 1, "lr": 1e-2}
    settings |= {"steps": 6, "batch_size": 4, "evaluate_every": 3, "save_every": 2}
    return tiny_run(out, method, "text", data=data, start=start, **{**settings, **changes})


def resumed(config, **changes):
    """Interrupt a run, and return it resumed."""
    with pytest.raises(KeyboardInterrupt):
        lt.fit(config, observe=stop_at(3))
    return lt.fit(replace(config, resume="yes", **changes))


close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)


def logits_of(net):
    """The logits of a prompt with two MASKs, the second before the first."""
    ids = torch.tensor([[5, 6, 7, net.mask_id, net.mask_id]])
    mask = torch.ones(1, 5, 5, dtype=torch.bool).tril()
    with torch.no_grad():
        return net(ids, torch.tensor([[0, 1, 2, 4, 3]]), mask)


def check_in_transformers(folder, net):
    """Check that transformers opens a directory to the logits of a network, as this package does."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[5, 6, 7, net.mask_id]])
    mask = torch.ones(1, 4, 4, dtype=torch.bool).tril()
    with torch.no_grad():
        close(model(ids).logits[..., :BYTES], net(ids, torch.arange(4)[None], mask)[..., :BYTES])
    close(logits_of(lt.from_pretrained(folder))[..., :BYTES], logits_of(net)[..., :BYTES])


@pytest.mark.parametrize("family", ["llama", TIED])
def test_run_opens_without_the_directory_it_started_from(whole, family):
    model = lt.load(whole(family))
    assert isinstance(model.net, lt.HuggingFaceDenoiser)
    assert (model.method, model.net.mask_id, model.net.training) == (lt.METHODS["esolm"], MASK[family], False)
    assert (model.net.vocab_size, model.net.max_length) == (BYTES, 12)
    stored = load_file(whole(family) / "model.safetensors")
    assert all(torch.equal(tensor, stored[name]) for name, tensor in model.net.state_dict().items())
    assert model.generate("3 cats", latents=2).tokens.shape == (1, 12)
    assert description(whole(family))["training"]["start"].endswith(family)


@pytest.mark.parametrize("family", ["llama", TIED])
def test_run_of_a_transformers_model_resumes_bit_equal(whole, data, bases, tmp_path, family):
    run = resumed(config_of(tmp_path / "cut", data, bases / family))
    assert checkpoints(run) == checkpoints(whole(family))


def test_given_transformers_model_is_trained_and_opened(whole, data, tmp_path):
    net, other = (lt.HuggingFaceDenoiser(tiny_model("llama", vocab_size=BYTES + 3), BYTES) for _ in range(2))
    run = lt.fit(config_of(tmp_path / "run", data, None, steps=1), net=net)
    assert (net.mask_id, net.max_length) == (BYTES, 12)
    assert torch.equal(logits_of(lt.from_pretrained(run, net=other)), logits_of(lt.from_pretrained(run)))
    for changes in (
        {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}},
        {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4},
        {"hidden_act": "gelu"},
    ):
        net = lt.HuggingFaceDenoiser(tiny_model("llama", vocab_size=BYTES + 3, **changes), BYTES)
        with refused(f"net.{next(iter(changes))}=", f"was trained with {next(iter(changes))}="):
            lt.from_pretrained(run, net=net)


def test_likelihood_of_a_text_with_mask_is_refused(data, bases, tmp_path, capsys):
    run = lt.fit(config_of(tmp_path / "run", data, bases / "llama", steps=1, mask=ord("@")))
    (tmp_path / "mail.txt").write_text("a@b")
    problem = "has token 64, which is MASK of the model, so it is never predicted. Remove it."
    command = f"likelihood {run} --text {tmp_path / 'mail.txt'}"
    refused_command(capsys, command, f"--text {tmp_path / 'mail.txt'}: {problem}")


def test_run_starts_from_an_adapted_run(whole, data, tmp_path):
    run = lt.fit(config_of(tmp_path / "run", data, whole("llama"), "mdm", steps=1, lr=1e-9, ema=0))
    close(logits_of(lt.from_pretrained(run)), logits_of(lt.from_pretrained(whole("llama"))))


@pytest.mark.parametrize("family", ["llama", TIED])
def test_run_from_an_autoregressive_one_gets_a_mask_row(data, bases, tmp_path, family):
    base = lt.fit(config_of(tmp_path / "arm", data, bases / family, "arm", steps=1))
    net = lt.from_pretrained(base)
    num_tokens = MASK[family]
    assert (net.readout, net.model.config.vocab_size) == ("shifted", num_tokens)
    assert lt.load(base).generate("3 cats").tokens.shape == (1, 12)
    net = lt.from_pretrained(lt.fit(config_of(tmp_path / "run", data, base, steps=1)))
    assert (net.readout, net.bos_id, net.mask_id) == ("in_place", None, num_tokens)
    assert net.model.config.vocab_size == num_tokens + 1


REFUSED = [  # the base, changes of the config, and what the error names
    ("llama", {"mask": 97}, "mask=97: is a token of the data set. Use a reserved one, or mask=new"),
    ("llama", {"mask": 2}, "mask=2: is the eos token of the model"),
    ("llama", {"mask": "<mask>"}, "Use the id of a token, or mask='new'"),
    ("llama", {"mask": 5, "method": "arm"}, "mask=5: arm has the BOS token for MASK. Leave mask out"),
    ("llama", {"size": "tiny"}, "size=tiny: is not for "),
    ("llama", {"dropout": 0.1}, "dropout=0.1: is not for "),
    ("nowhere", {}, "not found"),
    ("small", {}, "net.vocab_size=100: must be at least 257 for text"),
    ("other", {}, "has another tokenizer"),
    (None, {"mask": 0}, "mask=0: is for a model of transformers. Name one with start=FOLDER"),
]


def test_adaptation_that_is_not_possible_is_refused(data, bases, tmp_path, monkeypatch):
    for family, changes, part in REFUSED:
        start = None if family is None else bases / family
        with refused(part):
            lt.fit(config_of(tmp_path / "run", data, start, **changes))
        assert not (tmp_path / "run" / "config.json").exists()
    net = lt.HuggingFaceDenoiser(tiny_model("llama", vocab_size=MASK["llama"]), None, readout="shifted")
    with refused("it has no MASK, and esolm needs one. Use readout=in_place"):
        lt.fit(config_of(tmp_path / "run", data, None), net=net)
    monkeypatch.setitem(sys.modules, "peft", None)
    with refused("lora=2: peft is not installed. Install it (pip install 'latent-tokens[lora]')"):
        lt.fit(lora_config(tmp_path / "run", data, bases / "llama"))


def test_corrupt_adapted_run_is_refused_in_one_line(whole, tmp_path):
    (tmp_path / "model.safetensors").write_bytes((whole("llama") / "model.safetensors").read_bytes())
    entries = description(whole("llama"))
    for name, value in {"model_type": "other", "num_hidden_layers": 9}.items():
        model = {**entries["model"], "config": {**entries["model"]["config"], name: value}}
        (tmp_path / "config.json").write_text(json.dumps({**entries, "model": model}))
        with refused("model_type=other" if name == "model_type" else "corrupt"):
            lt.from_pretrained(tmp_path)


@pytest.mark.parametrize("family", ["llama", TIED])
def test_exported_model_opens_in_transformers(whole, data, tmp_path, capsys, family):
    assert main(["export", str(whole(family)), str(tmp_path / "model")]) == 0
    net = lt.from_pretrained(whole(family))
    check_in_transformers(tmp_path / "model", net)
    again = lt.load(tmp_path / "model")
    assert torch.equal(logits_of(again.net), logits_of(net))
    assert (again.method, again.task.length) == (net.method, 12)
    assert "2 layers of width 16, 2 heads" in (tmp_path / "model" / "README.md").read_text()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer("cat").input_ids == [99, 97, 116]
    assert tokenizer.mask_token_id == (BYTES if family == "gpt2" else None)
    run = lt.fit(config_of(tmp_path / "run", data, tmp_path / "model", steps=1))
    assert lt.from_pretrained(run).mask_id == net.mask_id


@pytest.mark.parametrize("family", ["llama", TIED])
def test_exported_model_saved_again_is_the_same(whole, tmp_path, family):
    lt.load(whole(family)).save_pretrained(tmp_path / "first")
    lt.load(tmp_path / "first").save_pretrained(tmp_path / "second")
    for name in ("config.json", "model.safetensors", "tokenizer_config.json"):
        assert (tmp_path / "second" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
    assert "training" in description(tmp_path / "second")

    changed = lt.load(tmp_path / "second")
    with torch.no_grad():
        changed.net.model.get_input_embeddings().weight[0] += 1
    changed.save_pretrained(tmp_path / "third")
    assert not {"training", "start", "made_with", "data_sha256"} & description(tmp_path / "third").keys()
    assert lt.load(tmp_path / "third").method == changed.method


@pytest.fixture(scope="module")
def adapted(data, bases, tmp_path_factory):
    """Return a function that returns the run of a family with a LoRA adapter."""
    folder = tmp_path_factory.mktemp("adapted")
    return cache(lambda family: lt.fit(lora_config(folder / family, data, bases / family)))


def lora_config(out, data, start, **changes):
    return config_of(out, data, start, **{"lora": 2, "ema": 0, **changes})


@pytest.mark.parametrize("family", ["llama", TIED])
def test_lora_trains_the_adapter_and_the_mask_row_alone(adapted, bases, family):
    stored = load_file(adapted(family) / "model.safetensors")
    assert all(".lora_" in name or name == "mask_row" for name in stored)
    assert len(stored) == {"llama": 17, "gpt2": 9}[family]  # two of each projection, and the row
    assert all(tensor.any() for tensor in stored.values())

    net = lt.from_pretrained(adapted(family))
    base = lt.from_transformers(bases / family, "new")
    weights = {name.replace(".base_layer", ""): tensor for name, tensor in net.named_parameters()}
    assert all(torch.equal(weights[name], tensor) for name, tensor in base.named_parameters())
    mean = base.model.get_input_embeddings().weight[net.mask_id]
    assert not torch.equal(net.mask_row, mean)
    assert (logits_of(net) - logits_of(base)).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["llama", TIED])
def test_lora_run_resumes_bit_equal_with_its_base_elsewhere(adapted, data, bases, tmp_path, family):
    base = shutil.copytree(bases / family, tmp_path / "base")
    config = lora_config(tmp_path / "cut", data, base, gradient_checkpointing=True)
    with pytest.raises(KeyboardInterrupt):
        lt.fit(config, observe=stop_at(3))
    moved = base.rename(tmp_path / "moved")
    config = replace(config, resume="yes", gradient_checkpointing=False)
    with refused("adapts ", "not found", "or start=DIR to resume it"):
        lt.fit(config)
    run = lt.fit(replace(config, start=moved))
    assert checkpoints(run) == checkpoints(adapted(family))
    assert description(run)["training"]["start"] == str(base)
    with refused("adapts ", "base with SHA-256 ", "small has"):
        lt.fit(replace(config, resume="extend", steps=7, start=bases / "small"))


@pytest.mark.parametrize("family", ["llama", TIED])
def test_export_merges_the_adapter(adapted, tmp_path, family):
    assert main(["export", str(adapted(family)), str(tmp_path / "model")]) == 0
    check_in_transformers(tmp_path / "model", lt.from_pretrained(adapted(family)))
    assert lt.from_pretrained(tmp_path / "model").adapter is None


def test_adapter_is_refused_with_another_base(adapted, data, bases, tmp_path):
    run = adapted("llama")
    moved = tmp_path / "moved"
    other = tiny_model("llama", vocab_size=MASK["llama"])
    other.lm_head.weight.data[0, 0] += 1
    other.save_pretrained(moved)
    with refused(f"{run}: adapts {bases / 'llama'} with SHA-256 "):
        lt.from_pretrained(run, base=moved)
    with refused("Leave net out, and use base=DIR"):
        lt.from_pretrained(run, net=lt.from_transformers(bases / "llama", "new"))
    with refused("Name its directory with base=DIR"):
        lt.from_pretrained(run, base=tmp_path / "nowhere")
    with refused("is a run whose weights are not merged. Export"):
        lt.fit(lora_config(tmp_path / "run", data, run))
    with refused(f"Open it with load('{run}')"):
        lt.from_transformers(run, "new")


@pytest.mark.slow
def test_adapter_of_a_run_needs_an_exported_model(whole, data, tmp_path):
    with refused("is a run, and an adapter needs a model directory. Export"):
        lt.fit(lora_config(tmp_path / "run", data, whole("gpt2")))


def test_commands_take_the_place_of_a_base_that_moved(adapted, data, bases, tmp_path, monkeypatch, capsys):
    run = shutil.copytree(adapted("llama"), tmp_path / "run")
    moved = shutil.copytree(bases / "llama", tmp_path / "moved")
    config = json.loads((run / "config.json").read_text())
    config["model"]["adapter"]["base"] = "gone"
    (run / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a text")
    commands = (
        f"sample {run} --prompt a",
        f"evaluate {run} --data {data} --num-samples 2 --out rows",
        f"likelihood {run} --text a.txt",
        f"export {run} merged",
    )
    for command in commands:
        refused_command(capsys, command, "adapts gone. ", "Name its directory with --base DIR")
        assert main([*command.split(), "--base", str(moved)]) == 0, capsys.readouterr().err
    for net in (lt.load(run, base=moved).net, open_model(run, None, moved).net):
        assert torch.equal(logits_of(net), logits_of(lt.from_pretrained(adapted("llama"))))
    with refused("has no LoRA adapter. Leave base out"):
        open_model(moved, None, bases / "llama")
    refused_command(capsys, "sample sudoku-6-scdm --num-samples 1 --base x", "--base x: ")


def test_adapter_adds_the_product_of_its_matrices():
    """W x + s B A x with s = alpha / rank. The trained embedding of MASK is scaled as those of Gemma are."""
    base = lt.HuggingFaceDenoiser(tiny_model("gemma3_text"), None)
    net = lt.HuggingFaceDenoiser(tiny_model("gemma3_text"), None)
    add_lora(net, Adapter(2, "attention", "base", ""))
    tokens = torch.tensor([[5, net.mask_id]])
    torch.testing.assert_close(net.embed(tokens), base.model.get_input_embeddings()(tokens))
    layer = next(layer for layer in net.modules() if hasattr(layer, "lora_B"))
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    with torch.no_grad():
        up.normal_()
    x = torch.randn(3, down.shape[1])
    close(layer(x), x @ layer.base_layer.weight.T + x @ down.T @ up.T)

    # An alpha, and layers by name.
    other = lt.HuggingFaceDenoiser(tiny_model("gemma3_text"), None)
    add_lora(other, Adapter(2, "q_proj,mlp.up_proj", "base", "", alpha=3))
    adapted = {name: layer for name, layer in other.named_modules() if hasattr(layer, "lora_B")}
    assert {name.rpartition(".")[2] for name in adapted} == {"q_proj", "up_proj"}
    layer = next(iter(adapted.values()))
    with torch.no_grad():
        layer.lora_B["default"].weight.copy_(up)
        layer.lora_A["default"].weight.copy_(down)
    close(layer(x), x @ layer.base_layer.weight.T + 1.5 * x @ down.T @ up.T)
    with refused("lora_targets=q_prog: must be one of attention, all, q_proj"):
        add_lora(lt.HuggingFaceDenoiser(tiny_model("gemma3_text"), None), Adapter(2, "q_prog", "base", ""))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_adapter_of_every_family_starts_as_its_base(family):
    for targets in ("attention", "all"):
        base = lt.HuggingFaceDenoiser(tiny_model(family), None)
        net = lt.HuggingFaceDenoiser(tiny_model(family), None)
        add_lora(net, Adapter(2, targets, "base", ""))
        tokens = torch.tensor([[5, 6, net.mask_id]])
        inputs = (tokens, torch.arange(3)[None], torch.ones(1, 3, 3, dtype=torch.bool))
        close(net(*inputs), base(*inputs))
        net(*inputs)[..., : net.mask_id].sum().backward()
        trained = {name for name, weight in net.named_parameters() if weight.grad is not None}
        assert trained == {name for name in net.state_dict() if "lora" in name or name == "mask_row"}
        assert not [name for name, _ in merged(net).named_modules() if "lora" in name]


@pytest.mark.slow
def test_frozen_embeddings_train_the_mask_row(data, bases, tmp_path):
    config = config_of(tmp_path / "run", data, bases / "gpt2", freeze_embeddings=True, ema=0)
    net = lt.from_pretrained(resumed(config))
    base = lt.from_transformers(bases / "gpt2", "new")
    frozen = base.model.transformer.wte.weight
    assert torch.equal(net.model.transformer.wte.weight, frozen)
    trained, first = (each.model.transformer.h[0].mlp.c_fc.weight for each in (net, base))
    assert not torch.equal(trained, first)
    assert not torch.equal(net.mask_row, frozen[net.mask_id])
    with refused("is a run whose weights are not merged. Export"):
        lt.fit(config_of(tmp_path / "next", data, config.out))
    given = lt.HuggingFaceDenoiser(tiny_model("gpt2", vocab_size=BYTES), None)
    assert torch.equal(logits_of(lt.from_pretrained(config.out, net=given)), logits_of(net))
    assert main(["export", str(config.out), str(tmp_path / "model")]) == 0
    check_in_transformers(tmp_path / "model", net)


@pytest.mark.slow
def test_train_command_adapts_a_model(data, bases, tmp_path):
    run = str(tmp_path / "run")
    base = ["--from", str(bases / "llama"), "--mask", "258", "--lora", "2", "--lora-targets", "all"]
    command = ["train", "text", "scdm", *base, "--data", str(data), "--steps", "2", "--batch-size", "2"]
    assert main([*command, "--first", "esolm:1", "--out", run]) == 0
    net = lt.load(run).net
    assert (net.mask_id, net.adapter.targets, net.method) == (258, "all", lt.METHODS["scdm"])
    stored = description(tmp_path / "run")["training"]
    assert (stored["lora"], stored["lora_targets"], stored["first"]) == (2, "all", "esolm:1")
    assert main(["export", run, str(tmp_path / "model")]) == 0
    assert '"lora": 2,' in (tmp_path / "model" / "README.md").read_text()


def test_frozen_ema_weights_are_those_of_the_network():
    net = torch.nn.Linear(2, 2)
    net.bias.requires_grad_(False)
    ema = AveragedModel(net, multi_avg_fn=ema_update(0.5))
    place_ema(ema, net, torch.device("cpu"))
    assert ema.module.bias.data_ptr() == net.bias.data_ptr()
    bias = net.bias.clone()
    ema.update_parameters(net)
    with torch.no_grad():
        net.weight += 1
    ema.update_parameters(net)
    assert torch.equal(net.bias, bias)
    behind = net.weight - ema.module.weight  # 1, less the share of the ramped decay
    torch.testing.assert_close(behind, torch.full((2, 2), 2 / 11))


@pytest.mark.slow
def test_text_is_learned_with_the_readout_left(data, bases, tmp_path, capsys):
    """The first token of a sequence, an end of document, is given."""
    run = lt.fit(config_of(tmp_path / "whole", data, bases / "llama", "mdm-left"))
    cut = config_of(tmp_path / "cut", data, bases / "llama", "mdm-left")
    assert checkpoints(resumed(cut)) == checkpoints(run)
    model = lt.load(run)
    assert (model.method, model.net.readout) == (lt.METHODS["mdm-left"], "left")
    assert model.generate("4 cats").tokens.shape == (1, 12)
    assert main(["likelihood", str(run), "--data", str(data), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["tokens"] == 11 * row["sequences"]
    with refused("position 0 is masked, and readout=left reads no prediction"):
        lt.fit("sudoku-4", "mdm-left", out=tmp_path / "boards", size="pico", steps=1, num_train=20)
