"""Directories of transformers, also as published: read without their code, with equal logits."""

import json
import sys
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

from helpers.published_layouts import CONFIGS, MASK, NATIVE, random_weights, reference, write
from helpers.refusals import refused, refused_command
from helpers.tiny_models import VOCAB, tiny_model
from latent_tokens import METHODS, HuggingFaceDenoiser, from_pretrained, from_transformers, load
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.cli import main
from latent_tokens.hf.export import export_model

LENGTH = 9


def logits_of(net):
    """Return the logits of slots in another order, of which each attends to some."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, MASK, (2, LENGTH), generator=generator)
    positions = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(2)])
    mask = torch.rand(2, LENGTH, LENGTH, generator=generator) < 0.6
    with torch.no_grad():
        return net(ids, positions, mask | torch.eye(LENGTH, dtype=torch.bool))


def check_logits(net, name, weights):
    """Compare the logits of a network with those of the published network with these weights."""
    weights = {key: tensor.float() for key, tensor in weights.items()}
    logits = logits_of(partial(reference, name, weights))
    assert logits.std() > 0.3
    torch.testing.assert_close(logits_of(net), logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "shards", "dtype"),
    [*((name, 1, torch.float32) for name in CONFIGS), ("LLaDA", 3, torch.bfloat16)],
)
def test_published_files_give_the_described_logits(name, shards, dtype, tmp_path):
    weights = {key: tensor.to(dtype) for key, tensor in random_weights(name).items()}
    write(tmp_path, name, weights, shards)
    net = from_transformers(tmp_path)
    native, _, method, readout = NATIVE[name]
    assert (type(net.model), net.model.dtype) == (native, torch.float32)
    assert (net.mask_id, net.readout, net.method.readout) == (MASK, readout, readout)
    assert (net.method.order, net.method.attention) == (METHODS[method].order, METHODS[method].attention)
    check_logits(net, name, weights)


def test_diffugpt_inside_the_module_of_its_authors_is_read(tmp_path):
    weights = random_weights("DiffuGPT")
    inside = {
        key.replace("transformer.wte.", "embed_tokens.").replace("transformer.", "denoise_model."): tensor
        for key, tensor in weights.items()
    }
    inside["denoise_model.h.0.attn.masked_bias"] = torch.zeros(1)  # a constant of old versions
    write(tmp_path, "DiffuGPT", inside)
    check_logits(from_transformers(tmp_path), "DiffuGPT", weights)


@pytest.mark.parametrize("kept", [("embed",), ("head",), ("embed", "head")])
def test_tied_embeddings_may_have_either_name_or_both(kept, tmp_path):
    names = {"embed": "model.embed_tokens.weight", "head": "lm_head.weight"}
    weights = random_weights("Tiny-A2D")
    table = weights.pop(names["embed"])
    write(tmp_path, "Tiny-A2D", {**weights, **{names[name]: table.clone() for name in kept}})
    net = from_transformers(tmp_path)
    assert torch.equal(net.model.lm_head.weight, table)
    assert net.model.lm_head.weight is net.model.model.embed_tokens.weight


def test_mask_of_the_tokenizer_is_found(tmp_path):
    write(tmp_path, "Open-dCoder", mask_token_id=None)
    write_tokenizer(tmp_path)
    for entries in (
        {"mask_token": "<|mask|>", "added_tokens_decoder": {"20": {"content": "<|mask|>"}}},
        {"mask_token": {"content": "<|mask|>"}},
    ):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(entries))
        net = from_transformers(tmp_path)
        assert (net.mask_id, net.readout) == (MASK, "left")


def test_mask_that_is_named_nowhere_is_that_of_the_layout(tmp_path):
    write(tmp_path, "LLaDA", mask_token_id=None)
    with refused("mask_id=126336: the vocabulary has 24 tokens"):
        from_transformers(tmp_path)
    assert from_transformers(tmp_path, 19).mask_id == 19
    write(tmp_path, "WeDLM-8B", mask_token_id=None)
    with refused("names no MASK. Set mask_token to its id or text"):
        from_transformers(tmp_path)
    write(tmp_path, "Open-dCoder", mask_token_id=None)
    with refused("is not a published masked diffusion model, and names no MASK"):
        from_transformers(tmp_path)
    assert from_transformers(tmp_path, 19).readout == "in_place"
    assert from_transformers(tmp_path, 19, "left").readout == "left"


GATE = "model.transformer.blocks.1.ff_proj.weight"
KEY_BIAS = "model.transformer.blocks.0.q_proj.bias"
WRONG = [  # a layout, a weight or a setting, its value, and the problem
    ("LLaDA", GATE, None, "missing keys of LlamaForCausalLM: model.layers.1.mlp.gate_proj.weight"),
    ("LLaDA", KEY_BIAS, torch.ones(16), "unexpected keys of LlamaForCausalLM: model.layers.0"),
    ("SDAR", "model.norm.weight", torch.ones(3), "config.json: not that of a Qwen3ForCausalLM"),
    ("LLaDA", "block_type", "sequential", "config.json: "),
    ("LLaDA", "include_qkv_bias", True, "config.json: "),
    ("LLaDA", "architectures", ["LLaDAMoEModelLM"], "config.json: "),
    ("LLaDA", "d_model", None, "config.json: "),
    ("Dream", "quantization_config", {"bits": 4}, "config.json: "),
    ("Dream", "use_sliding_window", True, "config.json: "),
    ("Dream", "rope_theta", None, "config.json: "),
    ("Dream", "num_hidden_layers", "two", "config.json: "),
    ("WeDLM-8B", "attention_bias", True, "config.json: "),
    ("SDAR", "block_size", None, "config.json: "),
]


@pytest.mark.parametrize(("name", "key", "value", "problem"), WRONG)
def test_wrong_weights_and_settings_are_refused_by_name(name, key, value, problem, tmp_path):
    weights = random_weights(name)
    if key.startswith("model."):
        weights[key] = value
        weights = {each: tensor for each, tensor in weights.items() if tensor is not None}
        write(tmp_path, name, weights)
    else:
        write(tmp_path, name, **{key: value})
    with refused(problem):
        from_transformers(tmp_path)


def write_tokenizer(folder):
    """Write a tokenizer.json of 22 words, fewer than the model has rows."""
    special = {"<|endoftext|>": 1, "<|mask|>": MASK}
    words = {f"w{number}": number for number in range(22) if number not in special.values()}
    tokenizer = Tokenizer(models.WordLevel({**words, **special}, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(
    "name",
    ["Dream", *(pytest.param(name, marks=pytest.mark.slow) for name in ("LLaDA", "SDAR", "ModernBERT-chat"))],
)
def test_imported_model_opens_in_every_command(name, tmp_path, capsys):
    source = tmp_path / "source"
    weights = {key: tensor.bfloat16() for key, tensor in random_weights(name).items()}
    write(source, name, weights, shards=2)
    write_tokenizer(source)
    (source / "tokenizer_config.json").write_text('{"mask_token": "<|mask|>", "auto_map": {"a": "b"}}')
    (tmp_path / "text").write_text("w3 w4 w5")
    out = tmp_path / "out"
    assert main(["import", str(source), str(out), "--length", str(LENGTH)]) == 0
    assert f"sequences of {LENGTH} over 22 tokens, MASK is {MASK}" in capsys.readouterr().out
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {torch.bfloat16}
    assert "auto_map" not in (out / "tokenizer_config.json").read_text()

    assert main(["sample", str(out), "--num-samples", "1", "--seed", "1"]) == 0
    assert main(["likelihood", str(out), "--text", str(tmp_path / "text"), "--orders", "1"]) == 0
    counted = 4 if NATIVE[name][3] == "left" else 5
    assert capsys.readouterr().out.rstrip().endswith(f" {counted}")  # the last column: tokens
    assert main(["export", str(out), str(tmp_path / "exported"), "--license", "mit"]) == 0
    assert "license: mit" in (tmp_path / "exported" / "README.md").read_text()

    net = from_transformers(source)
    for folder in (out, tmp_path / "exported"):
        model = load(folder)
        assert type(model.net.model) is type(net.model)
        assert type(from_transformers(folder, MASK).model) is type(net.model)  # transformers opens it, too
        assert (model.method, model.net.mask_id, model.net.readout) == (net.method, MASK, net.readout)
        assert torch.equal(logits_of(model.net), logits_of(net))
    assert model.generate(seed=1).tokens.shape == (1, LENGTH)


def test_import_refuses_what_is_not_for_the_source(tmp_path, capsys):
    source = tmp_path / "source"
    write(source, "LLaDA")
    for options, message in (
        (("--weights", "raw"), "--weights raw: is for Eso-LM and MDLM checkpoints"),
        (("--method", "scdm"), "--method scdm: is for Eso-LM and MDLM checkpoints"),
        (("--length", "65"), "--length 65: must be from 3 to 64, the positions of the model"),
        (("--tokenizer", "bytes"), "--tokenizer bytes: has 257 tokens"),
    ):
        refused_command(capsys, ["import", source, tmp_path / "out", *options], message)
    write(source, "Open-dCoder", mask_token_id=None)
    problem = "is not a published masked diffusion model"
    refused_command(capsys, ["import", source, tmp_path / "out"], problem)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_export_keeps_the_tokenizer_of_an_imported_model(tmp_path):
    source = tmp_path / "source"
    write(source, "SDAR")
    write_tokenizer(source)
    special = {"bos_token": "w2", "eos_token": "<|endoftext|>", "mask_token": "<|mask|>", "pad_token": "w3"}
    chat = {"chat_template": "{{ messages[0].content }}"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special, **chat}
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    assert main(["import", str(source), str(tmp_path / "out")]) == 0
    assert main(["export", str(tmp_path / "out"), str(tmp_path / "again"), "--precision", "bf16"]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert {name: getattr(tokenizer, name) for name in special} == special
    assert tokenizer.apply_chat_template([{"content": "w4"}], tokenize=False) == "w4"


@pytest.mark.parametrize("has_tokenizer", [False, True])
def test_imported_model_without_a_tokenizer_for_texts(has_tokenizer, tmp_path, capsys):
    source, out = tmp_path / "source", tmp_path / "out"
    write(source, "ModernBERT-chat")
    if has_tokenizer:
        Tokenizer(models.WordLevel({"w0": 0}, "w0")).save(str(source / "tokenizer.json"))
    assert main(["import", str(source), str(out)]) == 0
    problem = "is copied and not used: " if has_tokenizer else "without a tokenizer it cannot generate text"
    assert problem in capsys.readouterr().out
    assert (out / "tokenizer.json").exists() == has_tokenizer
    refused_command(capsys, ["sample", out], "was imported without a tokenizer")
    net = from_pretrained(out)
    assert (net.max_length, net.vocab_size, net.folder) == (64, 24, out)
    config = json.loads((out / "config.json").read_text())
    for key, value in (("mask_id", 99), ("readout", "right"), ("vocab_size", "many"), ("max_length", None)):
        changed = {**config, "model": {**config["model"], key: value}}
        (out / "config.json").write_text(json.dumps(changed))
        with refused(f"{key}=", str(value)):
            from_pretrained(out)


def test_exported_model_is_not_taken_for_a_published_one(tmp_path, capsys):
    """A Qwen2 whose tokenizer names MASK could be an Open-dCoder, which is an mdm-left."""
    net = HuggingFaceDenoiser(tiny_model("qwen2"), None)
    net.method = METHODS["esolm"]
    export_model(net, tmp_path / "exported")
    with refused(f"Open it with load('{tmp_path / 'exported'}')"):
        from_transformers(tmp_path / "exported")
    assert from_pretrained(tmp_path / "exported").method == METHODS["esolm"]
    with refused("Leave net out"):
        from_pretrained(tmp_path / "exported", net=net)
    for source in (tmp_path / "exported", BUNDLED / "sudoku-6-scdm"):
        problem = "was written by latent-tokens. Use it without an import."
        refused_command(capsys, ["import", source, tmp_path / "out"], problem)


def test_generation_config_of_a_language_model_is_its_own_or_none(tmp_path):
    net = HuggingFaceDenoiser(tiny_model("qwen2"), None)
    net.method = METHODS["esolm"]
    net.model.generation_config.max_new_tokens = 7
    export_model(net, tmp_path)
    again = from_pretrained(tmp_path)
    again.model.generation_config.max_new_tokens = 9
    export_model(again, tmp_path)
    file = tmp_path / "generation_config.json"
    assert json.loads(file.read_text())["max_new_tokens"] == 9
    export_model(again, tmp_path, generation_config=None)
    assert not file.exists()
    with refused("generation_config=none: must be one of keep"):
        export_model(again, tmp_path, generation_config="none")


# Directories of transformers that are not published masked diffusion models.


@pytest.fixture
def folder(tmp_path):
    """A directory with the weights in several shards."""
    tiny_model("llama").save_pretrained(tmp_path, max_shard_size="4KB")
    words = {f"<{number}>": number for number in range(VOCAB)}
    Tokenizer(models.WordLevel(words, "<0>")).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("mask_token", [11, "<11>", "new"])
def test_directory_gives_the_logits_of_its_model(folder, mask_token):
    tokens = torch.arange(3, 9)[None]
    net = from_transformers(folder, mask_token)
    assert net.mask_id == (VOCAB if mask_token == "new" else 11)
    assert not net.training
    mask = torch.ones(1, 6, 6, dtype=torch.bool).tril()
    logits = net(tokens, torch.arange(6)[None], mask)[..., :VOCAB]
    torch.testing.assert_close(logits, tiny_model("llama")(input_ids=tokens).logits)


def test_masked_language_model_keeps_its_head(tmp_path):
    tiny_model("modernbert").save_pretrained(tmp_path)
    assert type(from_transformers(tmp_path, 11).model).__name__ == "ModernBertForMaskedLM"


def test_token_that_the_tokenizer_lacks_is_refused(folder):
    file = folder / "tokenizer.json"
    with refused(f"mask_token=<mask>: not a token of {file}. Use the id of a token, or mask_token='new'"):
        from_transformers(folder, "<mask>")
    file.unlink()
    with refused(f"mask_token=<11>: {file} cannot be read ("):
        from_transformers(folder, "<11>")


def test_missing_shard_and_weight_are_named(folder):
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    index = folder / "model.safetensors.index.json"
    names = json.loads(index.read_text())
    kept = {name: file for name, file in names["weight_map"].items() if file != shard.name}
    shard.unlink()
    with refused(shard.name):
        from_transformers(folder, 11)
    index.write_text(json.dumps({**names, "weight_map": kept}))
    with refused("incomplete, ", "weight is missing. Download it again"):
        from_transformers(folder, 11)


@pytest.mark.parametrize("kind", ["llama", "of_its_own"])
def test_code_of_a_directory_is_never_run(folder, kind):
    (folder / "modeling.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    config = json.loads((folder / "config.json").read_text())
    maps = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": kind, "auto_map": maps}))
    if kind == "llama":
        assert type(from_transformers(folder, 11).model).__module__.startswith("transformers.")
    else:
        with refused("cannot be read"):
            from_transformers(folder, 11)
    assert not (folder / "ran").exists()


def test_wrong_opener_of_a_directory_is_refused(folder, monkeypatch):
    for reader in (from_pretrained, load):
        with refused("is a transformers model. Open it with from_transformers('", "', 'new'), or train"):
            reader(folder)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refused("transformers is not installed. Install it ", "latent-tokens[text]"):
        from_transformers(folder, 11)
