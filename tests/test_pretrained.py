"""Weights and methods are equal after saving and loading. Damaged files are refused."""

import json
from dataclasses import replace

import pytest
import torch

from helpers.refusals import refused
from latent_tokens import METHODS, from_pretrained, save_pretrained
from latent_tokens.checkpoints.files import bundled_names


@pytest.fixture
def folder(nano, tmp_path):
    nano.method = METHODS["scdm"]
    save_pretrained(nano, tmp_path / "model")
    return tmp_path / "model"


def test_a_model_comes_back_as_it_was(nano, folder):
    back = from_pretrained(folder)
    assert not back.training
    assert back.mask_id == nano.mask_id
    assert back.method == METHODS["scdm"]
    assert all(
        torch.equal(a, b) for a, b in zip(nano.state_dict().values(), back.state_dict().values(), strict=True)
    )


def test_every_method_can_be_written_down(nano, any_method, tmp_path):
    nano.method = any_method
    save_pretrained(nano, tmp_path, dtype=torch.bfloat16)
    back = from_pretrained(str(tmp_path))
    assert back.method == any_method
    assert next(back.parameters()).dtype == torch.float32
    assert (tmp_path / "model.safetensors").stat().st_size < 2.1 * sum(p.numel() for p in nano.parameters())


def test_missing_or_corrupt_file_is_named(folder, nano, tmp_path):
    nano.method = replace(METHODS["scdm"], attention=lambda q, k, c: k <= q + c)
    with refused("only bidirectional, independent, semi_causal, causal can be saved"):
        save_pretrained(nano, tmp_path)
    with refused("config.json is missing"):
        from_pretrained(tmp_path)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with refused("corrupt"):
        from_pretrained(folder)


CONFIGS = {  # wrong entries of a config: (key, value, error)
    "another format": (("format",), 99, "format 99, and latent-tokens"),
    "no method": (("method",), {}, "corrupt"),
    "another vocabulary": (("model", "vocab_size"), 5, "of another network"),
    "no heads": (("model", "size", "heads"), 0, "heads=0: must be a whole number from 1"),
    "half a layer": (("model", "size", "layers"), 0.5, "layers=0.5: must be a whole number"),
    "a wide network": (("model", "size", "width"), 1 << 24, "of another network"),
    "a wider one": (("model", "size", "width"), 1 << 62, "corrupt"),
    "a deep network": (("model", "size", "layers"), 1 << 40, "layers of"),
    "many tokens": (("model", "vocab_size"), 1 << 40, "of another network"),
    "more tokens": (("model", "vocab_size"), (1 << 63) - 1, "corrupt"),
    "a text for a number": (("model", "vocab_size"), "4", "vocab_size=4: must be a whole number"),
    "long sequences": (
        ("model", "max_length"),
        1 << 40,
        "max_length=1099511627776: must be a whole number from 1, at most 65,535",
    ),
    "other positions": (("model", "positions"), ["both"], "must be one of both, rotary, learned"),
    "another dropout": (("model", "dropout"), "0", "dropout='0': must be a number"),
    "latents in words": (("method", "latents"), "x", "corrupt"),
    "a window in words": (("method", "window"), "x", "corrupt"),
    "a list for a model": (("model",), [], "corrupt"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_config_that_weights_do_not_fit_is_refused_unallocated(folder, name):
    where, what, message = CONFIGS[name]
    config = json.loads((folder / "config.json").read_text())
    holder = config
    for key in where[:-1]:
        holder = holder[key]
    holder[where[-1]] = what
    (folder / "config.json").write_text(json.dumps(config))
    with refused(message):
        from_pretrained(folder)


def test_models_come_with_the_package():
    assert bundled_names() == [
        *(f"sudoku-6-{name}" for name in ("ar-mtp", "arm", "mdm", "scdm", "sidm")),
        "sudoku-9-mdm",
        "sudoku-9-scdm",
    ]
    for name in bundled_names():
        assert from_pretrained(name).method == METHODS[name.split("-", 2)[2]]
