"""Model directories of transformers: opened without their code, and refused in one line if incomplete."""

import json
import sys

import pytest
import torch
from tokenizers import Tokenizer, models

from helpers.refusals import refused
from helpers.tiny_models import VOCAB, tiny_model
from latent_tokens import from_transformers

TOKENS = torch.arange(3, 9)[None]


@pytest.fixture
def folder(tmp_path):
    """A directory with the weights in several shards."""
    tiny_model("llama").save_pretrained(tmp_path, max_shard_size="4KB")
    words = {f"<{number}>": number for number in range(VOCAB)}
    Tokenizer(models.WordLevel(words, "<0>")).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("mask_token", [11, "<11>", "new"])
def test_directory_gives_the_logits_of_its_model(folder, mask_token):
    net = from_transformers(folder, mask_token)
    assert net.mask_id == (VOCAB if mask_token == "new" else 11)
    assert not net.training
    mask = torch.ones(1, 6, 6, dtype=torch.bool).tril()
    answer = net(TOKENS, torch.arange(6)[None], mask)[..., :VOCAB]
    torch.testing.assert_close(answer, tiny_model("llama")(input_ids=TOKENS).logits)


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
    with pytest.raises(ValueError, match=r"incomplete, .*weight is missing. Download it again"):
        from_transformers(folder, 11)


def test_code_of_a_directory_is_never_run(folder):
    ran = folder / "ran"
    (folder / "modeling.py").write_text(f"open({str(ran)!r}, 'w')")
    config = json.loads((folder / "config.json").read_text())
    maps = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    for kind in ("llama", "of_its_own"):
        (folder / "config.json").write_text(json.dumps({**config, "model_type": kind, "auto_map": maps}))
        if kind == "llama":
            assert type(from_transformers(folder, 11).model).__module__.startswith("transformers.")
        else:
            with pytest.raises(ValueError, match="cannot be read"):
                from_transformers(folder, 11)
        assert not ran.exists()


def test_missing_transformers_names_the_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"transformers is not installed. Install it .*\.\[text\]"):
        from_transformers(folder, 11)
