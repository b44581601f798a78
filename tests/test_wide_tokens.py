"""Token ids above 65,535: stored as uint32 if the vocabulary needs it, which the manifest records."""

import json

import numpy as np
import pytest
import torch

from helpers.refusals import refused
from latent_tokens import DataConfig, Examples, as_numpy, as_tensors, fit, load, make_data
from latent_tokens.data.loading import load_data
from latent_tokens.tasks.examples import as_array
from latent_tokens.tasks.text.tokenizer import END

tokenizers = pytest.importorskip("tokenizers")
LARGEST = 70_000
WORDS = ["the", "clean", "token", "is", "behind", "a", "latent", "one"]


def wide_tokenizer(folder, largest=LARGEST):
    """Write a tokenizer of ten words, whose ids are spread up to the largest."""
    ids = {word: largest - number for number, word in enumerate(WORDS)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({**ids, END: 0, "?": 1}, unk_token="?"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder.mkdir()
    inner.save(str(folder / "tokenizer.json"))
    return folder


def documents(folder):
    rng = np.random.default_rng(0)
    texts = [{"text": " ".join(rng.choice(WORDS, 20))} for _ in range(200)]
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    tokenizer = str(wide_tokenizer(folder / "tokenizer"))
    return make_data(
        DataConfig("text", folder / "data", source=documents(folder), tokenizer=tokenizer, length=8)
    )


def test_wide_tokens_are_stored_and_read_as_uint32(data):
    task, splits = load_data(data)
    for examples in splits.values():
        assert examples.tokens.dtype == np.uint32
        assert examples.tokens.max() == LARGEST
    text = task.decode(splits["train"].tokens[0][1:7])
    assert set(text.replace(END, " ").split()) <= set(WORDS)
    for prompt in (task.encode("the ___ token"), task.sequences("the clean token")):
        assert prompt.tokens.dtype == np.uint32
        assert LARGEST in prompt.tokens


@pytest.mark.parametrize(
    ("largest", "kind"), [(255, "uint8"), (256, "uint16"), (65_535, "uint16"), (65_536, "uint32")]
)
def test_tokens_have_the_smallest_type(largest, kind):
    assert as_numpy(torch.tensor([[largest, 0]])).dtype.name == kind
    assert as_array([[largest, 0]]).dtype.name == kind
    assert as_array(np.array([largest], np.uint32)).dtype == np.uint32
    examples = Examples.of(np.array([[largest, 0]], kind), 0)
    assert as_tensors(examples)[0].tolist() == [[largest, 0]]
    with pytest.raises(ValueError, match="must be whole numbers from 0"):
        as_array([1 << 32])


@pytest.mark.slow
def test_model_of_wide_tokens_learns_and_samples(data, tmp_path):
    few = {"size": "pico", "steps": 2, "batch_size": 2, "warmup": 1, "evaluate_every": 2, "threads": 1}
    fit("text", "scdm", out=tmp_path / "run", data=data, **few)
    samples = load(tmp_path / "run").generate(num_samples=2, latents=2, seed=1)
    assert samples.tokens.dtype == np.uint32
    assert samples.tokens.max() <= LARGEST


def test_run_from_a_model_of_other_tokens_is_refused(tmp_path):
    source = documents(tmp_path)
    few = {"steps": 1, "batch_size": 2, "warmup": 1, "evaluate_every": 1, "threads": 1}
    one, other = (
        make_data(DataConfig("text", tmp_path / name, source=source, tokenizer=name, length=8))
        for name in ("bpe:260", "bpe:261")
    )
    first = fit("text", "scdm", out=tmp_path / "first", data=one, size="pico", **few)
    fit("text", "scdm", out=tmp_path / "second", data=one, start=first, **few)
    with refused(f"start={first}: has another tokenizer"):
        fit("text", "scdm", out=tmp_path / "third", data=other, start=first, **few)
