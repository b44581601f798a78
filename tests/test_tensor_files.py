"""Changed weights on disk are detected, and files of others, which have no hash, are readable."""

import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from helpers.hostile import OFFSETS
from helpers.refusals import refused
from helpers.runs import tiny_run
from latent_tokens import METHODS, from_pretrained, save_pretrained
from latent_tokens.checkpoints.files import read_tensor_file, tensors_sha256
from latent_tokens.paper.run import check_together
from latent_tokens.training.loop import fit


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fit(tiny_run(tmp_path_factory.mktemp("run") / "run", steps=3))


def test_zeros_in_the_weights_of_a_run_are_noticed(run, tmp_path):
    content = bytearray((run / "model.safetensors").read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4096] = bytes(4096)  # as after a power failure
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    with refused("model.safetensors: corrupt (its tensors are not those that were written)"):
        from_pretrained(tmp_path)


def test_weights_without_a_hash_are_read(run, tmp_path):
    save_file(load_file(run / "model.safetensors"), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    net = from_pretrained(tmp_path)
    assert all(
        torch.equal(tensor, net.state_dict()[name])
        for name, tensor in load_file(run / "model.safetensors").items()
    )


def test_every_file_of_a_run_holds_the_hash_of_its_tensors(run, nano, tmp_path):
    nano.method = METHODS["scdm"]
    save_pretrained(nano, tmp_path, dtype=torch.bfloat16)
    for path in (run / "model.safetensors", tmp_path / "model.safetensors"):
        with safe_open(path, "pt") as file:
            assert file.metadata() == {"format": "pt", "tensors_sha256": tensors_sha256(load_file(path))}


def test_tensors_sha256_depends_on_names_types_shapes_and_bytes():
    base = {"a": torch.zeros(2, 3), "b": torch.tensor(1)}
    others = (
        {"a": torch.zeros(3, 2), "b": torch.tensor(1)},
        {"a": torch.zeros(2, 3, dtype=torch.int32), "b": torch.tensor(1)},
        {"c": torch.zeros(2, 3), "b": torch.tensor(1)},
        {"a": torch.zeros(2, 3), "b": torch.tensor(2)},
        {"a": torch.zeros(2, 3)},
    )
    assert tensors_sha256(dict(reversed(base.items()))) == tensors_sha256(base)
    assert len({tensors_sha256(tensors) for tensors in (base, *others)}) == 1 + len(others)
    assert tensors_sha256({"a": torch.zeros(3, 2).T, "b": torch.tensor(1)}) == tensors_sha256(base)


def test_a_tensor_file_is_the_same_in_every_process(tmp_path):
    tensors = "{'b': torch.arange(3), 'a': torch.ones(2)}, {'x': '1', 'y': '2', 'z': '3'}"
    code = (
        "import sys, torch; from latent_tokens.checkpoints.files import tensors_to_bytes; "
        f"sys.stdout.buffer.write(tensors_to_bytes({tensors}))"
    )
    files = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(3)
    }
    assert len(files) == 1
    (tmp_path / "x.safetensors").write_bytes(files.pop())
    assert read_tensor_file(tmp_path / "x.safetensors")["b"].tolist() == [0, 1, 2]


def row(recipe, **changes):
    about = {"recipe": recipe, "model": "m", "task": "t", "num_samples": 1, "problems": None, "seed": 0}
    about |= {"cell": {"task": "t"}, "weights_sha256": "w", "data_sha256": "d", "problems_sha256": None}
    return {**about, **changes}


def test_text_of_two_tokenizers_goes_into_one_table(tmp_path):
    first = row("a", model="nano")
    other = row("b", model="large", data_sha256="e")
    with pytest.raises(ValueError, match="differ in data_sha256"):
        check_together([first, other], tmp_path)
    check_together([first, {**other, "cell": {"task": "smollm2"}}], tmp_path)


@pytest.mark.parametrize("content", OFFSETS.values(), ids=OFFSETS)
def test_offsets_that_no_writer_makes_are_refused_in_one_line(run, tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").write_bytes((run / "config.json").read_bytes())
    for read in (read_tensor_file, lambda path: from_pretrained(path.parent)):
        with refused("model.safetensors: corrupt"):
            read(tmp_path / "model.safetensors")
