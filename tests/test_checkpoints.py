"""Published checkpoints keep their logits, raw and EMA. Any other file is refused in one line."""

import json
import os
import pickle
import sys
from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from helpers.hostile import Call
from helpers.published_network import Published, lightning
from helpers.refusals import refused, refused_command
from latent_tokens import from_pretrained
from latent_tokens.checkpoints.published import ROTARY_BUFFER, import_checkpoint
from latent_tokens.cli import main
from latent_tokens.core.attention import causal, dense_mask, independent, semi_causal
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import METHODS


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Published().eval()


@pytest.fixture(scope="module")
def averaged(net):
    torch.manual_seed(1)
    other = deepcopy(net)
    for weight in other.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return other


@pytest.fixture
def file(net, averaged, tmp_path):
    torch.save(lightning(net, [weight.detach() for weight in averaged.parameters()]), tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def difference(theirs, ours, rule):
    """The largest difference of logits over ragged rows in shuffled order."""
    generator = torch.Generator().manual_seed(2)
    positions = torch.stack([torch.randperm(64, generator=generator)[:24] for _ in range(5)])
    layout = Layout(positions, torch.tensor([0, 1, 9, 23, 24]), torch.full((5,), 24))
    ids = torch.randint(20, (5, 24), generator=generator).masked_fill(
        layout.slots >= layout.num_clean[:, None], 20
    )
    mask = dense_mask(rule, layout)
    with torch.no_grad():
        return (theirs(ids, positions, mask) - ours(ids, positions, mask)).abs().max().item()


@pytest.mark.parametrize("weights", ["ema", "raw"])
def test_logits_are_those_of_the_published_network(file, net, averaged, weights):
    ours, checkpoint = import_checkpoint(file, weights)
    assert (ours.method, checkpoint.kind, checkpoint.settings["alpha_0"]) == (METHODS["esolm"], weights, 1)
    theirs, other = (averaged, net) if weights == "ema" else (net, averaged)
    for rule in (METHODS["mdm"].attention, independent, semi_causal, causal):
        assert difference(theirs, ours, rule) < 1e-5
        assert difference(other, ours, rule) > 0.01


@pytest.mark.parametrize(
    ("mode", "name"), [("causal", "esolm"), ("mixed2", "scdm"), ("bidirectional", "mdm")]
)
def test_the_method_is_that_of_the_files_own_settings(net, tmp_path, mode, name):
    torch.save(lightning(net, list(net.parameters()), mode), tmp_path / "a.ckpt")
    assert import_checkpoint(tmp_path / "a.ckpt")[0].method == METHODS[name]
    assert import_checkpoint(tmp_path / "a.ckpt", method="scdm")[0].method == METHODS["scdm"]


def test_model_of_blocks_is_not_taken_for_an_mdm(net, tmp_path):
    save_file(dict(net.state_dict()), tmp_path / "model.safetensors")
    config = {"algo": {"name": "bd3lm", "parameterization": "subs", "cross_attn": True}, "block_size": 4}
    (tmp_path / "config.json").write_text(json.dumps({**config, "model": {"n_heads": 4, "length": 64}}))
    with refused("bd3lm", "--method block-mdm-4"):
        import_checkpoint(tmp_path)
    assert import_checkpoint(tmp_path, method="block-mdm-4")[0].method == METHODS["block-mdm-4"]


def test_wrapper_prefixes_are_removed_and_skips_are_named(net, tmp_path, capsys):
    content = lightning(net, [weight.detach() for weight in net.parameters()])
    names = net.state_dict().items()
    content["state_dict"] = {f"backbone._orig_mod.{name}": tensor for name, tensor in names}
    content["state_dict"]["noise.gamma"] = torch.zeros(1)
    torch.save(content, tmp_path / "a.ckpt")
    assert difference(net, import_checkpoint(tmp_path / "a.ckpt")[0], causal) < 1e-5
    assert main(["import", str(tmp_path / "a.ckpt"), str(tmp_path / "out")]) == 0
    assert "ignored, not part of the network: noise.gamma" in capsys.readouterr().out


MDLM = {
    "parameterization": "subs",
    "time_conditioning": False,
    "backbone": "dit",
    "model": {"n_heads": 4, "length": 64, "name": "small"},
}
HUB = {"model_type": "mdlm", "_name_or_path": "/x/mdlm-owt", "n_heads": 4, "model_length": 64}
ESOLM = {"architectures": ["EsoLM"], "n_heads": 4, "model_length": 64, "mask_index": 20, "hidden_dim": 768}
NAMED = [  # the settings of a directory, its method, the prefix and the type of its weights
    (HUB, "mdm", "", torch.float32),
    (ESOLM, "esolm", "backbone.", torch.bfloat16),
    (MDLM, "mdm", "backbone.", torch.float32),
]


@pytest.mark.parametrize(("config", "name", "prefix", "dtype"), NAMED)
def test_directory_of_hugging_face_is_read_in_any_precision(net, tmp_path, config, name, prefix, dtype):
    weights = {prefix + key: tensor.to(dtype) for key, tensor in net.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours, checkpoint = import_checkpoint(tmp_path)
    assert (ours.method, ours.max_length, ours.mask_id, checkpoint.kind) == (METHODS[name], 64, 20, "ema")
    rounded = deepcopy(net).to(dtype).float()
    rounded.rotary_emb.inv_freq = net.rotary_emb.inv_freq
    assert difference(rounded, ours, causal) < 1e-5
    with refused("weights=raw: ", "is a directory, which has EMA weights only"):
        import_checkpoint(tmp_path, "raw")


def test_checkpoint_file_executes_nothing(net, tmp_path):
    mark = tmp_path / "mark"
    nested = pickle.dumps(Call(os.system, f"touch {mark}"))
    for call in (
        Call(os.system, f"touch {mark}"),
        Call(eval, f"open({str(mark)!r}, 'w')"),
        Call(getattr, "a", "upper"),
        Call(pickle.loads, nested),
        Call(frozenset, (1,)),
    ):
        torch.save({**lightning(net, list(net.parameters())), "state_dict": call}, tmp_path / "evil.ckpt")
        with refused("evil.ckpt: "):
            import_checkpoint(tmp_path / "evil.ckpt")
    assert not mark.exists()


def test_a_checkpoint_opens_without_the_packages_of_its_classes(file, monkeypatch):
    for package in ("omegaconf", "transformers", "tokenizers", "lightning"):
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.setitem(sys.modules, name, None)
    assert import_checkpoint(file)[1].settings["diffusion_attn_mode"] == "causal"


BIAS = "output_layer.linear.bias"  # the third weight from the end


def without_bias(content):
    content["ema"]["shadow_params"].pop(-3)
    del content["state_dict"][f"backbone.{BIAS}"]


def algo(**changes):
    return lambda content: content["hyper_parameters"]["config"].algo.update(changes)


def model(**changes):
    return lambda content: content["hyper_parameters"]["config"].model.update(changes)


WRONG = {  # a change of a checkpoint, and what the error names
    "no state_dict": (lambda content: content.pop("state_dict"), "no state_dict of tensors"),
    "no average": (lambda content: content.pop("ema"), "no EMA weights"),
    "an average lost": (lambda content: content["ema"]["shadow_params"].pop(), "29 EMA weights for 30"),
    "missing": (without_bias, f"backbone.{BIAS} is missing"),
    "time": (algo(time_conditioning=True), "time_conditioning=True"),
    "another mask": (algo(mask_index=3), "mask_index=3 in its settings: must be 20"),
    "mixed": (algo(diffusion_attn_mode="mixed"), "mixed: must be one of causal"),
    "no settings": (lambda content: content.pop("hyper_parameters"), "name it with --method"),
    "no heads": (model(n_heads=0), "heads=0"),
    "too long": (model(length=1 << 20), "length=1048576"),
    "shape": (
        lambda content: content["ema"]["shadow_params"].__setitem__(-3, torch.zeros(31)),
        "head.bias is (31,)",
    ),
    "another rotary": (
        lambda content: content["state_dict"][f"backbone.{ROTARY_BUFFER}"].mul_(2),
        "is not that of base 10,000",
    ),
}


@pytest.mark.parametrize(("change", "part"), WRONG.values(), ids=WRONG)
def test_file_that_is_not_a_checkpoint_is_refused_in_one_line(net, tmp_path, change, part):
    content = lightning(deepcopy(net), [weight.detach().clone() for weight in net.parameters()])
    change(content)
    torch.save(content, tmp_path / "wrong.ckpt")
    with refused(part):
        import_checkpoint(tmp_path / "wrong.ckpt")


def test_a_damaged_file_is_refused_in_one_line(file):
    for content in (b"hello", file.read_bytes()[:-200]):
        file.write_bytes(content)
        with refused("last.ckpt: corrupt, or not written by torch.save"):
            import_checkpoint(file)


def test_import_command_writes_a_directory_that_loads_and_checks(file, averaged, tmp_path, capsys):
    out = tmp_path / "model"
    assert main(["import", str(file), str(out)]) == 0
    printed = capsys.readouterr().out
    assert "esolm, from its settings, ema weights, 2 layers of width 32, 4 heads" in printed
    assert "sequences of 64 over 20 tokens and MASK\n" in printed
    assert "without a tokenizer it cannot generate text" in printed
    refused_command(capsys, ["sample", out], "was imported without a tokenizer")
    assert difference(averaged, from_pretrained(out), causal) < 1e-5
    weights = load_file(out / "model.safetensors")
    weights["blocks.0.qkv.weight"][:, 0] += 0.3
    save_file(weights, out / "model.safetensors")
    with refused("its logits differ by ", " from those it was saved with"):
        from_pretrained(out)


def test_imported_model_keeps_its_tokenizer_and_writes_text(file, tmp_path, capsys):
    words = {**{f"w{number}": number for number in range(19)}, "<|endoftext|>": 19}
    tokenizer = Tokenizer(models.WordLevel(words, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "words.json"))
    out = tmp_path / "model"
    assert main(["import", str(file), str(out), "--tokenizer", str(tmp_path / "words.json")]) == 0
    (tmp_path / "words.json").unlink()
    assert main(["sample", str(out), "--prompt", "w3", "--num-samples", "1", "--latents", "3"]) == 0
    printed = capsys.readouterr().out
    assert "\nw3" in printed
    assert "<|endoftext|>" not in printed
    assert "tokens processed" in printed
    (tmp_path / "a.txt").write_text("w3 w4 w5 " * 9)
    likelihood = ["likelihood", str(out), "--text", str(tmp_path / "a.txt"), "--orders", "1"]
    assert main([*likelihood, "--latents", "0", "2"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert "nats per token" in heading
    assert len(lines) == 2


def test_wrong_import_gets_one_line_and_writes_nothing(file, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for source, options, message in (
        ("nowhere.ckpt", [], "not found. Name a file, a directory, or a model"),
        (file, ["--method", "block-mdm"], "--method block-mdm: must be mdm, scdm, esolm or block-mdm-N"),
        (tmp_path / "empty", [], "config.json is missing"),
        (file, ["--tokenizer", "bytes"], "--tokenizer bytes: has 257 tokens, and the checkpoint has 20"),
    ):
        refused_command(capsys, ["import", source, tmp_path / "out", *options], message)
        assert not (tmp_path / "out").exists()
