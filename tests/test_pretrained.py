"""Weights and methods are equal after saving and loading. Damaged and changed files are refused."""

import json
from dataclasses import replace
from functools import reduce
from operator import getitem

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from helpers.refusals import refused
from latent_tokens import METHODS, from_pretrained, load, save_pretrained
from latent_tokens.checkpoints.files import bundled_names, load_weights, tensors_sha256, weights_bytes
from latent_tokens.hf.modeling_latent_tokens import LatentTokensForMaskedLM
from latent_tokens.paper.run import check_together


@pytest.fixture
def folder(nano, tmp_path):
    nano.method = METHODS["scdm"]
    save_pretrained(nano, tmp_path / "model")
    return tmp_path / "model"


def test_every_method_and_the_weights_come_back(nano, any_method, tmp_path):
    nano.method = any_method
    for dtype in (torch.float32, torch.bfloat16):
        save_pretrained(nano, tmp_path, dtype=dtype)
        back = from_pretrained(str(tmp_path))
        assert (back.method, back.mask_id, back.training) == (any_method, nano.mask_id, False)
        for name, weight in nano.state_dict().items():
            assert torch.equal(back.state_dict()[name], weight.to(dtype).float())
    assert (tmp_path / "model.safetensors").stat().st_size < 2.1 * sum(p.numel() for p in nano.parameters())


CONFIGS = [  # wrong entries of a config: keys, value, error
    ("format", 99, "format 99, and latent-tokens"),
    ("method", {}, "corrupt"),
    ("model size heads", 0, "heads=0: must be a whole number from 1"),
    ("model size layers", 1 << 31, "corrupt (layers=2147483648: more than the weights)"),
    ("model size width", 1 << 24, "of another network"),
    ("model size width", 1 << 62, "corrupt"),
    ("model vocab_size", "4", "vocab_size='4': must be a whole number"),
    ("model max_length", 1 << 40, "at most 65,535"),
    ("model positions", ["both"], "must be one of both, rotary, learned"),
    ("method window", 0, "window=0: must be a whole number from 1"),
    ("method depth", "uniform:2", "depth=('uniform', 2.0)"),
    ("model", [], "corrupt"),
]


def test_config_that_weights_do_not_fit_is_refused_unallocated(folder):
    content = (folder / "config.json").read_text()
    for keys, value, message in CONFIGS:
        config = json.loads(content)
        *path, last = keys.split()
        reduce(getitem, path, config)[last] = value
        (folder / "config.json").write_text(json.dumps(config))
        with refused(message):
            from_pretrained(folder)


def test_missing_or_corrupt_file_is_named(folder, nano, tmp_path):
    nano.method = replace(METHODS["scdm"], attention=lambda q, k, c: k <= q + c)
    with refused("only bidirectional, independent, semi_causal, causal can be saved"):
        save_pretrained(nano, tmp_path)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with refused("corrupt"):
        from_pretrained(folder)


def test_changed_weights_are_noticed(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    weights = load_file(path)
    save_file(weights, path)  # as others write it, without a hash
    assert tensors_sha256(from_pretrained(folder).state_dict()) == tensors_sha256(weights)
    middle = len(content) // 2
    content[middle : middle + 4096] = bytes(4096)  # as after a power failure
    path.write_bytes(content)
    with refused("model.safetensors: corrupt (its tensors are not those that were written)"):
        from_pretrained(folder)


def test_damaged_weights_are_named_not_the_config(tmp_path):
    """Also by the class of transformers: a flipped bit, complex weights, and weights that are not numbers."""
    path = tmp_path / "model.safetensors"
    load("sudoku-6-scdm").save_pretrained(tmp_path)
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    weights = load_file(path)
    as_complex = {name: weight.to(torch.complex64) for name, weight in weights.items()}
    first = min(weights)
    cases = [
        (bytes(content), "its tensors are not those that were written"),
        (save(as_complex), "is complex"),
        (save({**weights, first: weights[first] * torch.nan}), "its logits are not finite"),
    ]
    for damaged, problem in cases:
        path.write_bytes(damaged)
        for read in (from_pretrained, LatentTokensForMaskedLM.from_pretrained):
            with refused(f"model.safetensors: corrupt ({problem}" if problem != "is complex" else problem):
                read(tmp_path)


def test_complex_weights_of_an_own_network_are_loaded(tmp_path):
    net = torch.nn.Linear(2, 2, dtype=torch.complex64)
    load_weights(net, {name: weight + 1 for name, weight in net.state_dict().items()}, tmp_path)


def test_weights_have_the_hash_of_their_tensors(folder):
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "tensors_sha256": tensors_sha256(load_file(path))}
    assert weights_bytes(dict(reversed(load_file(path).items()))) == path.read_bytes()


def test_tensors_sha256_depends_on_names_types_shapes_and_bytes():
    base = {"a": torch.zeros(2, 3), "b": torch.tensor(1)}
    others = (
        {**base, "a": torch.zeros(3, 2)},
        {**base, "a": torch.zeros(2, 3, dtype=torch.int32)},
        {"c": torch.zeros(2, 3), "b": torch.tensor(1)},
        {**base, "b": torch.tensor(2)},
        {"a": torch.zeros(2, 3)},
    )
    assert len({tensors_sha256(tensors) for tensors in (base, *others)}) == 1 + len(others)
    assert tensors_sha256({**base, "a": torch.zeros(3, 2).T}) == tensors_sha256(base)
    # The same bytes in every process and version.
    assert weights_bytes(base)[8:].startswith(
        b'{"__metadata__":{"format":"pt","tensors_sha256":"bbdbf8518a90'
    )


def test_text_of_two_tokenizers_goes_into_one_table(tmp_path):
    common = {"task": "t", "num_samples": 1, "problems": None, "seed": 0, "problems_sha256": None}
    common |= {"cell": {"task": "t"}, "weights_sha256": "w"}
    first = {**common, "recipe": "a", "model": "nano", "data_sha256": "d"}
    other = {**common, "recipe": "b", "model": "large", "data_sha256": "e"}
    with refused("differ in data_sha256"):
        check_together([first, other], tmp_path)
    check_together([first, {**other, "cell": {"task": "smollm2"}}], tmp_path)


def test_bundled_models_have_the_method_of_their_name():
    assert bundled_names() == [
        "novels-scdm",
        *(f"sudoku-6-{name}" for name in ("ar-mtp", "arm", "mdm", "scdm", "sidm")),
        "sudoku-9-mdm",
        "sudoku-9-scdm",
    ]
    for name in bundled_names():
        method = name.removeprefix("novels-").removeprefix("sudoku-6-").removeprefix("sudoku-9-")
        assert from_pretrained(name).method == METHODS[method]
