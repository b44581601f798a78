"""Published masked diffusion models: their files are read into classes of transformers, with equal logits."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

from helpers.published_layouts import CONFIGS, MASK, random_weights, reference, write
from helpers.refusals import refused
from helpers.tiny_models import tiny_model
from latent_tokens import METHODS, HuggingFaceDenoiser, from_pretrained, from_transformers, load
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.cli import main
from latent_tokens.sharing.hub import save_pretrained

torch.set_num_threads(1)
LENGTH = 9
CLASSES = {
    "LLaDA": ("LlamaForCausalLM", "mdm", "in_place"),
    "Dream": ("Qwen2ForCausalLM", "mdm", "left"),
    "Open-dCoder": ("Qwen2ForCausalLM", "mdm", "left"),
    "WeDLM-7B": ("Qwen2ForCausalLM", "esolm", "in_place"),
    "WeDLM-8B": ("Qwen3ForCausalLM", "esolm", "in_place"),
    "SDAR": ("Qwen3ForCausalLM", "block-mdm-4", "in_place"),
    "Tiny-A2D": ("Qwen3ForCausalLM", "mdm", "in_place"),
    "DiffuGPT": ("GPT2LMHeadModel", "mdm", "left"),
    "ModernBERT-chat": ("ModernBertForMaskedLM", "mdm", "in_place"),
}


def inputs():
    """Return ids, positions and a mask of slots in another order, of which each attends to some."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, MASK, (2, LENGTH), generator=generator)
    positions = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(2)])
    mask = torch.rand(2, LENGTH, LENGTH, generator=generator) < 0.6
    return ids, positions, mask | torch.eye(LENGTH, dtype=torch.bool)


def difference(first, second):
    return (first.float() - second.float()).abs().max().item()


@pytest.mark.parametrize(("name", "shards"), [*((name, 1) for name in CONFIGS), ("LLaDA", 3)])
def test_published_files_give_the_described_logits(name, shards, tmp_path):
    weights = write(tmp_path, name, shards=shards)
    net = from_transformers(tmp_path)
    class_name, method, readout = CLASSES[name]
    assert type(net.model).__name__ == class_name
    assert type(net.model).__module__.startswith("transformers.models.")
    assert (net.mask_id, net.readout, net.method.readout) == (MASK, readout, readout)
    assert (net.method.order, net.method.attention) == (METHODS[method].order, METHODS[method].attention)
    logits = reference(name, weights, *inputs())
    assert logits.std() > 0.3
    with torch.no_grad():
        assert difference(net(*inputs()), logits) < 1e-5


def test_weights_in_bf16_are_read_as_rounded_numbers(tmp_path):
    weights = random_weights("LLaDA")
    write(tmp_path, "LLaDA", {key: tensor.bfloat16() for key, tensor in weights.items()})
    rounded = {key: tensor.bfloat16().float() for key, tensor in weights.items()}
    net = from_transformers(tmp_path)
    assert net.model.dtype == torch.float32
    with torch.no_grad():
        assert difference(net(*inputs()), reference("LLaDA", rounded, *inputs())) < 1e-5


def test_diffugpt_inside_the_module_of_its_authors_is_read(tmp_path):
    weights = random_weights("DiffuGPT")
    inside = {
        key.replace("transformer.wte.", "embed_tokens.").replace("transformer.", "denoise_model."): tensor
        for key, tensor in weights.items()
    }
    inside["denoise_model.h.0.attn.masked_bias"] = torch.zeros(1)  # a constant of old versions
    write(tmp_path, "DiffuGPT", inside)
    with torch.no_grad():
        logits = from_transformers(tmp_path)(*inputs())
    assert difference(logits, reference("DiffuGPT", weights, *inputs())) < 1e-5


@pytest.mark.parametrize("kept", [("embed",), ("head",), ("embed", "head")])
def test_tied_embeddings_may_have_either_name_or_both(kept, tmp_path):
    names = {"embed": "model.embed_tokens.weight", "head": "lm_head.weight"}
    weights = random_weights("Tiny-A2D")
    table = weights.pop(names["embed"])
    write(tmp_path, "Tiny-A2D", {**weights, **{names[name]: table.clone() for name in kept}})
    net = from_transformers(tmp_path)
    assert torch.equal(net.model.lm_head.weight, table)
    assert net.model.lm_head.weight is net.model.model.embed_tokens.weight


MASK_FILES = {
    "a text": {"mask_token": "<|mask|>", "added_tokens_decoder": {"20": {"content": "<|mask|>"}}},
    "an entry": {"mask_token": {"content": "<|mask|>"}},
}


@pytest.mark.parametrize("entries", MASK_FILES.values(), ids=MASK_FILES)
def test_mask_of_the_tokenizer_is_found(entries, tmp_path):
    write(tmp_path, "Open-dCoder", mask_token_id=None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(entries))
    write_tokenizer(tmp_path)
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
WRONG_WEIGHTS = {  # the layout, weights that are replaced, and what the error names
    "missing": (
        "LLaDA",
        {GATE: None},
        "missing keys of LlamaForCausalLM: model.layers.1.mlp.gate_proj.weight",
    ),
    "unknown": ("LLaDA", {KEY_BIAS: torch.ones(16)}, "unexpected keys of LlamaForCausalLM: model.layers.0"),
    "shape": ("SDAR", {"model.norm.weight": torch.ones(3)}, "config.json: not that of a Qwen3ForCausalLM"),
}
WRONG_SETTINGS = {
    "block_type": ("LLaDA", "sequential"),
    "include_qkv_bias": ("LLaDA", True),
    "architectures": ("LLaDA", ["LLaDAMoEModelLM"]),
    "d_model": ("LLaDA", None),
    "quantization_config": ("Dream", {"bits": 4}),
    "use_sliding_window": ("Dream", True),
    "rope_theta": ("Dream", None),
    "num_hidden_layers": ("Dream", "two"),
    "attention_bias": ("WeDLM-8B", True),
    "block_size": ("SDAR", None),
}


@pytest.mark.parametrize(("name", "changes", "part"), WRONG_WEIGHTS.values(), ids=WRONG_WEIGHTS)
def test_wrong_weights_are_refused_by_name(name, changes, part, tmp_path):
    weights = {**random_weights(name), **changes}
    write(tmp_path, name, {key: tensor for key, tensor in weights.items() if tensor is not None})
    with refused(part):
        from_transformers(tmp_path)


@pytest.mark.parametrize("key", WRONG_SETTINGS)
def test_unsupported_settings_are_refused_by_name(key, tmp_path):
    name, value = WRONG_SETTINGS[key]
    write(tmp_path, name, **{key: value})
    with refused("config.json: "):
        from_transformers(tmp_path)


def test_missing_shard_is_refused_by_name(tmp_path, capsys):
    source = tmp_path / "source"
    write(source, "LLaDA", shards=3)
    (source / "model-00002-of-00003.safetensors").unlink()
    assert main(["import", str(source), str(tmp_path / "out")]) == 2
    assert "model-00002-of-00003.safetensors: corrupt" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def write_tokenizer(folder):
    """Write a tokenizer.json of 22 words, fewer than the model has rows."""
    special = {"<|endoftext|>": 1, "<|mask|>": MASK}
    words = {f"w{number}": number for number in range(22) if number not in special.values()}
    tokenizer = Tokenizer(models.WordLevel({**words, **special}, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(
    "name", [name if name == "Dream" else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]
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
    counted = 4 if CLASSES[name][2] == "left" else 5
    assert f"{counted} tokens" in capsys.readouterr().out
    assert main(["export", str(out), str(tmp_path / "exported"), "--license", "mit"]) == 0
    assert "license: mit" in (tmp_path / "exported" / "README.md").read_text()

    net = from_transformers(source)
    for folder in (out, tmp_path / "exported"):
        model = load(folder)
        assert type(model.net.model) is type(net.model)
        assert type(from_transformers(folder, MASK).model) is type(net.model)  # transformers opens it, too
        assert (model.method, model.net.mask_id, model.net.readout) == (net.method, MASK, net.readout)
        with torch.no_grad():
            assert torch.equal(model.net(*inputs()), net(*inputs()))
    assert model.generate(seed=1).tokens.shape == (1, LENGTH)


def test_import_refuses_what_is_not_for_the_source(tmp_path, capsys):
    source = tmp_path / "source"
    write(source, "LLaDA")
    refusals = {
        ("--weights", "raw"): "--weights raw: is for Eso-LM and MDLM checkpoints",
        ("--method", "scdm"): "--method scdm: is for Eso-LM and MDLM checkpoints",
        ("--length", "65"): "--length 65: must be from 3 to 64, the positions of the model",
        ("--tokenizer", "bytes"): "--tokenizer bytes: has 257 tokens",
    }
    for options, message in refusals.items():
        assert main(["import", str(source), str(tmp_path / "out"), *options]) == 2
        assert message in capsys.readouterr().err
    write(source, "Open-dCoder", mask_token_id=None)
    assert main(["import", str(source), str(tmp_path / "out")]) == 2
    assert "is not a published masked diffusion model" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_tokenizer_that_texts_cannot_use_is_copied(tmp_path, capsys):
    source = tmp_path / "source"
    write(source, "SDAR")
    Tokenizer(models.WordLevel({"w0": 0}, "w0")).save(str(source / "tokenizer.json"))
    assert main(["import", str(source), str(tmp_path / "out")]) == 0
    assert "the tokenizer is copied and not used: " in capsys.readouterr().out
    assert main(["sample", str(tmp_path / "out")]) == 2
    assert "was imported without a tokenizer" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "out"), str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()


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


def test_imported_model_without_tokenizer_computes_logits(tmp_path, capsys):
    write(tmp_path / "source", "ModernBERT-chat")
    assert main(["import", str(tmp_path / "source"), str(tmp_path / "out")]) == 0
    assert "without a tokenizer it cannot generate text" in capsys.readouterr().out
    net = from_pretrained(tmp_path / "out")
    assert (net.max_length, net.vocab_size, net.folder) == (64, 24, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    for key, value in (("mask_id", 99), ("readout", "right"), ("vocab_size", "many"), ("max_length", None)):
        changed = {**config, "model": {**config["model"], key: value}}
        (tmp_path / "out" / "config.json").write_text(json.dumps(changed))
        with refused(f"{key}={value}"):
            from_pretrained(tmp_path / "out")


def test_exported_model_is_not_taken_for_a_published_one(tmp_path, capsys):
    """A Qwen2 whose tokenizer names MASK could be an Open-dCoder, which is an mdm-left."""
    net = HuggingFaceDenoiser(tiny_model("qwen2"), None)
    net.method = METHODS["esolm"]
    save_pretrained(net, tmp_path / "exported")
    with refused(f"Open it with load('{tmp_path / 'exported'}')"):
        from_transformers(tmp_path / "exported")
    assert from_pretrained(tmp_path / "exported").method == METHODS["esolm"]
    with refused("Leave net out"):
        from_pretrained(tmp_path / "exported", net=net)
    for source in (tmp_path / "exported", BUNDLED / "sudoku-6-scdm"):
        assert main(["import", str(source), str(tmp_path / "out")]) == 2
        assert "was written by latent-tokens. Use it without an import." in capsys.readouterr().err


def test_directory_of_transformers_is_named_with_its_reader(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path)
    for reader in (from_pretrained, load):
        with refused("is a transformers model. Open it with from_transformers('"):
            reader(tmp_path)
