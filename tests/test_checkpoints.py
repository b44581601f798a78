"""Published checkpoints keep their logits, raw and EMA. Any other file is refused in one line."""

import json
import os
import pickle
import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from helpers.published_network import Published, lightning
from helpers.refusals import refused
from latent_tokens import from_pretrained
from latent_tokens.checkpoints.published import BUFFER, import_checkpoint
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


@pytest.mark.parametrize(
    "rule", [METHODS["mdm"].attention, independent, semi_causal, causal], ids=lambda rule: rule.__name__
)
@pytest.mark.parametrize("weights", ["ema", "raw"])
def test_logits_are_those_of_the_published_network(file, net, averaged, rule, weights):
    ours, checkpoint = import_checkpoint(file, weights)
    assert (ours.method, checkpoint.kind, checkpoint.settings["alpha_0"]) == (METHODS["esolm"], weights, 1)
    theirs, other = (averaged, net) if weights == "ema" else (net, averaged)
    assert difference(theirs, ours, rule) < 1e-5
    assert difference(other, ours, rule) > 0.01


@pytest.mark.parametrize(
    ("mode", "name"), [("causal", "esolm"), ("mixed2", "scdm"), ("bidirectional", "mdm")]
)
def test_the_method_is_that_of_the_files_own_settings(net, tmp_path, mode, name):
    torch.save(lightning(net, list(net.parameters()), mode), tmp_path / "a.ckpt")
    assert import_checkpoint(tmp_path / "a.ckpt")[0].method == METHODS[name]
    assert import_checkpoint(tmp_path / "a.ckpt", method="scdm")[0].method == METHODS["scdm"]


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
ESOLM = {"architectures": ["EsoLM"], "n_heads": 4, "model_length": 64, "mask_index": 20, "hidden_dim": 768}
NAMED = [
    ({"model_type": "mdlm", "_name_or_path": "/x/mdlm-owt", "n_heads": 4, "model_length": 64}, "mdm", ""),
    (ESOLM, "esolm", "backbone."),
    (MDLM, "mdm", "backbone."),
]


@pytest.mark.parametrize(("about", "name", "prefix"), NAMED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_directory_of_hugging_face_is_read_in_any_precision(net, tmp_path, about, name, prefix, dtype):
    weights = {prefix + key: tensor.to(dtype) for key, tensor in net.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(about))
    ours, checkpoint = import_checkpoint(tmp_path)
    assert (ours.method, ours.max_length, ours.mask_id, checkpoint.kind) == (METHODS[name], 64, 20, "ema")
    rounded = deepcopy(net).to(dtype).float()
    rounded.rotary_emb.inv_freq = net.rotary_emb.inv_freq
    assert difference(rounded, ours, causal) < 1e-5
    with pytest.raises(ValueError, match=r"weights=raw: .* is a directory, which has EMA weights only"):
        import_checkpoint(tmp_path, "raw")


class Evil:
    def __init__(self, call, *arguments):
        self.made = call, arguments

    def __reduce__(self):
        return self.made


def test_checkpoint_file_executes_nothing(net, tmp_path):
    mark = tmp_path / "mark"
    nested = pickle.dumps(Evil(os.system, f"touch {mark}"))
    for evil in (
        Evil(os.system, f"touch {mark}"),
        Evil(eval, f"open({str(mark)!r}, 'w')"),
        Evil(getattr, "a", "upper"),
        Evil(pickle.loads, nested),
        Evil(frozenset, (1,)),
    ):
        torch.save({**lightning(net, list(net.parameters())), "state_dict": evil}, tmp_path / "evil.ckpt")
        with pytest.raises(ValueError, match=r"posix|no state_dict of tensors") as error:
            import_checkpoint(tmp_path / "evil.ckpt")
        assert "\n" not in str(error.value)
    assert not mark.exists()


WITHOUT_PACKAGES = """
import sys
sys.modules |= dict.fromkeys(("omegaconf", "transformers", "tokenizers", "lightning"))
from pathlib import Path
from latent_tokens.checkpoints.published import import_checkpoint
print(import_checkpoint(Path(sys.argv[1]))[1].settings["diffusion_attn_mode"])
"""


def test_a_checkpoint_opens_without_the_packages_of_its_classes(file):
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGES, file], capture_output=True, check=False)
    assert done.stdout == b"causal\n", done.stderr


def number_of(content, name):
    """Return the number of a weight among the EMA weights of a checkpoint."""
    names = [name for name in content["state_dict"] if BUFFER not in name]
    return names.index(f"backbone.{name}")


def with_shape(content, name, shape):
    content["ema"]["shadow_params"][number_of(content, name)] = torch.zeros(shape)


def drop(content, name):
    del content["ema"]["shadow_params"][number_of(content, name)]
    del content["state_dict"][f"backbone.{name}"]


def algo(**changes):
    return lambda content: content["hyper_parameters"]["config"].algo.update(changes)


def model(**changes):
    return lambda content: content["hyper_parameters"]["config"].model.update(changes)


BIAS = "output_layer.linear.bias"
WRONG = {  # a change of a checkpoint, and what the error names
    "no state_dict": (lambda content: content.pop("state_dict"), "no state_dict of tensors"),
    "no average": (lambda content: content.pop("ema"), "no EMA weights"),
    "an average lost": (lambda content: content["ema"]["shadow_params"].pop(), "29 EMA weights for 30"),
    "missing": (lambda content: drop(content, BIAS), f"backbone.{BIAS} is missing"),
    "time": (algo(time_conditioning=True), "time_conditioning=True"),
    "another mask": (algo(mask_index=3), "mask_index=3 in its settings: must be 20"),
    "mixed": (algo(diffusion_attn_mode="mixed"), "mixed: must be one of causal"),
    "no settings": (lambda content: content.pop("hyper_parameters"), "name it with --method"),
    "no heads": (model(n_heads=0), "heads=0"),
    "too long": (model(length=1 << 20), "length=1048576"),
    "shape": (lambda content: with_shape(content, BIAS, 31), "head.bias is (31,)"),
    "another rotary": (
        lambda content: content["state_dict"][f"backbone.{BUFFER}"].mul_(2),
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


@pytest.mark.parametrize("content", [b"hello", None], ids=["no zip", "cut"])
def test_a_damaged_file_is_refused_in_one_line(file, content):
    file.write_bytes(file.read_bytes()[:-200] if content is None else content)
    with refused("last.ckpt: corrupt, or not written by torch.save"):
        import_checkpoint(file)


def test_import_command_writes_a_directory_that_loads_and_checks(file, averaged, tmp_path, capsys):
    out = tmp_path / "model"
    assert main(["import", str(file), str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "esolm, from its settings, ema weights, 2 layers of width 32, 4 heads, 0.0 M parameters, "
        "sequences of 64 over 20 tokens and MASK\n"
    )
    ours = from_pretrained(out)
    assert difference(averaged, ours, causal) < 1e-5
    weights = load_file(out / "model.safetensors")
    weights["blocks.0.qkv.weight"][:, 0] += 0.3
    save_file(weights, out / "model.safetensors")
    with pytest.raises(ValueError, match=r"its logits differ by .* from those it was saved with"):
        from_pretrained(out)


def test_imported_model_with_its_tokenizer_writes_text(tmp_path, capsys):
    torch.manual_seed(0)
    net = Published(vocab=258)
    torch.save(lightning(net, [weight.detach() for weight in net.parameters()]), tmp_path / "bytes.ckpt")
    out = tmp_path / "model"
    assert main(["import", str(tmp_path / "bytes.ckpt"), str(out), "--tokenizer", "bytes"]) == 0
    assert main(["sample", str(out), "--latents", "3", "--num-samples", "1"]) == 0
    assert "64 tokens in" in capsys.readouterr().out
    (tmp_path / "a.txt").write_text("Some text to read. " * 9)
    likelihood = ["likelihood", str(out), "--text", str(tmp_path / "a.txt"), "--orders", "1"]
    assert main([*likelihood, "--latents", "0", "2"]) == 0
    assert capsys.readouterr().out.count("nats per token") == 2


def test_imported_model_keeps_a_tokenizer_of_a_file(file, tmp_path, capsys):
    words = {**{f"w{number}": number for number in range(19)}, "<|endoftext|>": 19}
    Tokenizer(models.WordLevel(words, "w0")).save(str(tmp_path / "words.json"))
    out = tmp_path / "model"
    assert main(["import", str(file), str(out), "--tokenizer", str(tmp_path / "words.json")]) == 0
    (tmp_path / "words.json").unlink()
    assert main(["sample", str(out), "--prompt", "w3", "--num-samples", "1"]) == 0
    assert "<|endoftext|> w3" in capsys.readouterr().out


def test_a_tokenizer_that_does_not_fit_is_refused(file, tmp_path, capsys):
    out = tmp_path / "model"
    assert main(["import", str(file), str(out), "--tokenizer", "bytes"]) == 2
    assert "--tokenizer bytes: has 257 tokens, and the checkpoint has 20 and MASK" in capsys.readouterr().err
    assert not out.exists()
    assert main(["import", str(file), str(out)]) == 0
    assert "without a tokenizer it cannot generate text" in capsys.readouterr().out
    assert main(["sample", str(out)]) == 2
    assert "was imported without a tokenizer" in capsys.readouterr().err


def test_missing_checkpoint_gets_one_line(tmp_path, capsys):
    assert main(["import", "nowhere.ckpt", str(tmp_path / "out")]) == 2
    assert "not found. Name a file, a directory, or a model" in capsys.readouterr().err
    assert main(["import", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "config.json is missing" in capsys.readouterr().err
