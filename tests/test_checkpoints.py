"""Published checkpoints keep their logits, raw and EMA. Any other file is refused in one line."""

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from helpers.published_network import Published, lightning
from latent_tokens import from_pretrained
from latent_tokens.checkpoints.published import BUFFER, Inert, import_checkpoint, read_torch
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
    ours, found = import_checkpoint(file, weights)
    assert (ours.method, found.kind, found.settings["alpha_0"]) == (METHODS["esolm"], weights, 1)
    theirs, other = (averaged, net) if weights == "ema" else (net, averaged)
    assert difference(theirs, ours, rule) < 1e-5
    assert difference(other, ours, rule) > 0.01


def swap_shift_and_scale(net):
    for block in net.blocks:
        for part in (block.adaLN_modulation.weight, block.adaLN_modulation.bias):
            part.data = part.data.unflatten(0, (6, -1))[[1, 0, 2, 4, 3, 5]].flatten(0, 1)


def head_major(net):
    for block in net.blocks:
        block.attn_qkv.weight.data = (
            block.attn_qkv.weight.data.unflatten(0, (4, 3, -1)).transpose(0, 1).flatten(0, 2)
        )


def exact_gelu(net):
    for block in net.blocks:
        block.mlp[1] = torch.nn.GELU()


def interleaved(net):
    net.quarter = lambda y: torch.stack([-y[..., 1::2], y[..., ::2]], -1).flatten(-2)


MISTAKES = {
    "eps": lambda net: setattr(net, "eps", 1e-6),
    "exact GELU": exact_gelu,
    "a noise level of 1": lambda net: setattr(net, "noise_level", 1.0),
    "no outer SiLU": lambda net: setattr(net, "outer", lambda x: x),
    "interleaved rotary": interleaved,
    "shift and scale swapped": swap_shift_and_scale,
    "heads before q, k, v": head_major,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_reader_with_a_mistake_would_be_seen(file, averaged, name):
    wrong = deepcopy(averaged)
    MISTAKES[name](wrong)
    assert difference(wrong, import_checkpoint(file)[0], semi_causal) > 1e-5


def test_positions_that_are_not_gathered_would_be_seen(file, averaged):
    ours = import_checkpoint(file)[0]
    assert (
        difference(
            lambda ids, positions, mask: averaged(ids, positions.sort(1).values, mask), ours, semi_causal
        )
        > 0.1
    )


@pytest.mark.parametrize(
    ("mode", "name"), [("causal", "esolm"), ("mixed2", "scdm"), ("bidirectional", "mdm")]
)
def test_the_method_is_that_of_the_files_own_settings(net, tmp_path, mode, name):
    torch.save(lightning(net, list(net.parameters()), mode), tmp_path / "a.ckpt")
    assert import_checkpoint(tmp_path / "a.ckpt")[0].method == METHODS[name]
    assert import_checkpoint(tmp_path / "a.ckpt", method="scdm")[0].method == METHODS["scdm"]


def test_other_objects_become_stubs_that_do_nothing(file):
    content = read_torch(file)["hyper_parameters"]
    assert all(isinstance(content[name], Inert) for name in ("config", "tokenizer"))


def test_wrapper_prefixes_are_removed_and_skips_are_named(net, tmp_path, capsys):
    content = lightning(net, [weight.detach() for weight in net.parameters()])
    content["state_dict"] = {
        f"backbone._orig_mod.{name}": tensor for name, tensor in net.state_dict().items()
    } | {"noise.gamma": torch.zeros(1)}
    torch.save(content, tmp_path / "a.ckpt")
    ours, found = import_checkpoint(tmp_path / "a.ckpt")
    assert difference(net, ours, causal) < 1e-5
    assert found.left_out == ("noise.gamma",)
    assert main(["import", str(tmp_path / "a.ckpt"), str(tmp_path / "out")]) == 0
    assert "ignored, not part of the network: noise.gamma" in capsys.readouterr().out
    content["state_dict"]["backbone.output_layer.linear.bias"] = torch.zeros(21)
    torch.save(content, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="has a weight twice"):
        import_checkpoint(tmp_path / "a.ckpt")


MDLM = {
    "parameterization": "subs",
    "time_conditioning": False,
    "backbone": "dit",
    "model": {"n_heads": 4, "length": 64, "name": "small"},
}
NAMED = [
    (
        {"model_type": "mdlm", "_name_or_path": "/home/theresosa/mdlm-owt", "n_heads": 4, "model_length": 64},
        "mdm",
    ),
    ({"architectures": ["EsoLM"], "n_heads": 4, "model_length": 64}, "esolm"),
    (MDLM, "mdm"),
]


@pytest.mark.parametrize(("about", "name"), NAMED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_settings_name_the_method_too_in_any_precision(net, tmp_path, about, name, dtype):
    save_file(
        {f"backbone.{key}": tensor.to(dtype) for key, tensor in net.state_dict().items()},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text(json.dumps(about))
    ours, _ = import_checkpoint(tmp_path)
    assert ours.method == METHODS[name]
    rounded = deepcopy(net).to(dtype).float()
    rounded.rotary_emb.inv_freq = net.rotary_emb.inv_freq
    assert difference(rounded, ours, causal) < 1e-5
    with pytest.raises(ValueError, match=r"weights=raw: .* is a directory, which has EMA weights only"):
        import_checkpoint(tmp_path, "raw")


@pytest.mark.parametrize("prefix", ["backbone.", ""])
def test_a_folder_of_hugging_face(net, tmp_path, prefix):
    save_file(
        {prefix + name: tensor for name, tensor in net.state_dict().items()}, tmp_path / "model.safetensors"
    )
    about = {
        "model_type": "EsoLM",
        "n_heads": 4,
        "model_length": 64,
        "mask_index": 20,
        "hidden_size": 32,
        "hidden_dim": 768,
    }
    (tmp_path / "config.json").write_text(json.dumps(about))
    ours, found = import_checkpoint(tmp_path)
    assert (ours.method, ours.max_length, ours.mask_id, found.kind) == (METHODS["esolm"], 64, 20, "ema")
    assert difference(net, ours, causal) < 1e-5


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


def altered(change, net):
    content = lightning(deepcopy(net), [weight.detach().clone() for weight in net.parameters()], n_blocks=2)
    change(content)
    return content


def drop_bias(content):
    del content["ema"]["shadow_params"][
        [name for name in content["state_dict"] if BUFFER not in name].index(
            "backbone.output_layer.linear.bias"
        )
    ]
    del content["state_dict"]["backbone.output_layer.linear.bias"]


def algo(content):
    return content["hyper_parameters"]["config"].algo


def grow(content):
    names = [name for name in content["state_dict"] if BUFFER not in name]
    for name in ("blocks.0.norm1.weight", "blocks.0.adaLN_modulation.bias"):
        content["ema"]["shadow_params"][names.index(f"backbone.{name}")].data.fill_(3e38)


def renamed(content, prefix):
    content["state_dict"] = {prefix + name: tensor for name, tensor in content["state_dict"].items()}


WRONG = {
    "no state_dict": (lambda content: content.pop("state_dict"), "no state_dict of tensors"),
    "no average": (lambda content: content.pop("ema"), "has no EMA weights for .* --weights raw"),
    "other average": (lambda content: content["ema"]["shadow_params"].pop(), "29 EMA weights for 30 weights"),
    "missing": (drop_bias, r"backbone.output_layer.linear.bias is missing"),
    "time": (
        lambda content: content["hyper_parameters"]["config"].algo.update({"time_conditioning": True}),
        "time_conditioning=True",
    ),
    "mixed": (
        lambda content: content["hyper_parameters"]["config"].algo.update({"diffusion_attn_mode": "mixed"}),
        "mixed: must be one of causal",
    ),
    "heads": (
        lambda content: content["hyper_parameters"]["config"].model.update({"n_heads": 0}),
        "n_heads=0 in its settings",
    ),
    "no settings": (
        lambda content: content.pop("hyper_parameters"),
        "do not name its attention",
    ),
    "no method": (
        lambda content: algo(content).update({"diffusion_attn_mode": None, "name": "mine"}),
        "do not name its attention. To import it, name it with --method",
    ),
    "a list for a method": (
        lambda content: algo(content).update({"diffusion_attn_mode": ["causal"]}),
        "must be one of causal, mixed2",
    ),
    "extra": (
        lambda content: content["state_dict"].update({"backbone.bonus": torch.zeros(2)}),
        "30 EMA weights for 31 weights",
    ),
    "lost": (
        lambda content: content["state_dict"].pop("backbone.output_layer.linear.bias"),
        "30 EMA weights for 29 weights",
    ),
    "shape": (
        lambda content: content["ema"]["shadow_params"].__setitem__(-1, torch.zeros(31)),
        r"output_layer.adaLN_modulation.bias is \(31,\), must be \(64,\)",
    ),
    "average of another shape": (
        lambda content: content["ema"]["shadow_params"].__setitem__(0, torch.zeros(2)),
        "has no vocab_embed",
    ),
    "not finite": (
        lambda content: content["ema"]["shadow_params"].__setitem__(0, torch.full((21, 32), torch.nan)),
        "embedding.weight is not finite",
    ),
    "too large": (grow, "blocks.0.attention_norm.weight is not finite: .*too large to fold"),
    "a block too few": (
        lambda content: [
            content["state_dict"].pop(name) for name in [*content["state_dict"]] if ".1." in name
        ],
        "30 EMA weights for 20 weights",
    ),
    "another rotary": (
        lambda content: content["state_dict"][f"backbone.{BUFFER}"].mul_(2),
        "is not that of base 10,000",
    ),
    "another mask": (
        lambda content: algo(content).update({"mask_index": 3}),
        "mask_index=3 in its settings: must be 20",
    ),
    "autoregressive": (
        lambda content: algo(content).update({"causal_attention": True}),
        "not an Eso-LM or MDLM diffusion model",
    ),
    "odd heads": (
        lambda content: content["hyper_parameters"]["config"].model.update({"n_heads": 5}),
        "with heads=5: a head needs",
    ),
    "too long": (
        lambda content: content["hyper_parameters"]["config"].model.update({"length": 1 << 20}),
        "length=1048576 .* from 1 to 65,535",
    ),
    "wrapped": (
        lambda content: renamed(content, "net."),
        r"no weights are named backbone.\*, but like net.backbone",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_file_that_is_not_a_checkpoint_is_refused_in_one_line(net, tmp_path, name):
    change, message = WRONG[name]
    torch.save(altered(change, net), tmp_path / "wrong.ckpt")
    with pytest.raises(ValueError, match=message) as error:
        import_checkpoint(tmp_path / "wrong.ckpt")
    assert "\n" not in str(error.value)


def rewritten(file, name, content):
    """The zip file with one record changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, content if info.filename.endswith(name) else old.read(info))
    return made.getvalue()


DAMAGED = {
    "no zip": lambda file: b"hello",
    "cut": lambda file: file.read_bytes()[:-200],
    "pickle cut": lambda file: rewritten(file, "data.pkl", b"\x80\x02}q\x00X"),
    "no pickle": lambda file: rewritten(file, "data.pkl", b""),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_in_one_line(file, name):
    file.write_bytes(DAMAGED[name](file))
    with pytest.raises(ValueError, match=r"corrupt, or not written by torch.save \(.+\)\. Download") as error:
        import_checkpoint(file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_tensors_come_back_whatever_their_type_and_view(tmp_path):
    base = torch.arange(24).reshape(4, 6)
    content = {
        str(dtype): base.to(dtype)
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool)
    }
    content |= {
        "turned": base.T[1:4],
        "one": torch.tensor(7),
        "none": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(base.float()),
    }
    torch.save(content, tmp_path / "a.pt")
    found = read_torch(tmp_path / "a.pt")
    assert found.keys() == content.keys()
    for name, tensor in content.items():
        assert torch.equal(found[name], tensor)
        assert found[name].dtype == tensor.dtype


def test_import_command_writes_a_directory_that_loads_and_checks(file, averaged, tmp_path, capsys):
    out = tmp_path / "model"
    assert main(["import", str(file), str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "esolm, from its settings, ema weights, 2 layers of width 32, 0.0 M parameters, sequences of 64 "
        "over 20 tokens and MASK\n"
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
    assert (
        main(
            [
                "likelihood",
                str(out),
                "--text",
                str(tmp_path / "a.txt"),
                "--latents",
                "0",
                "2",
                "--orders",
                "1",
            ]
        )
        == 0
    )
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
    for source in ("nowhere.ckpt", str(tmp_path / "none"), "a/b/c"):
        assert main(["import", source, str(tmp_path / "out")]) == 2
        assert (
            "not found. Name a file, a directory, or a model on the Hugging Face Hub (OWNER/NAME)"
            in capsys.readouterr().err
        )
    assert main(["import", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "config.json is missing" in capsys.readouterr().err
