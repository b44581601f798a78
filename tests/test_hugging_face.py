"""transformers loads our directories with equal logits and samples. Wrong inputs are refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

from transformers import AutoConfig, AutoModelForMaskedLM, Trainer, TrainingArguments

from helpers.refusals import refused
from latent_tokens import (
    METHODS,
    SIZES,
    Decoding,
    Transformer,
    entropy,
    from_pretrained,
    generate,
    growing,
    left_to_right,
)
from latent_tokens.core.layout import Layout
from latent_tokens.sharing.hub import save_pretrained
from latent_tokens.sharing.hugging_face import LatentTokensConfig, LatentTokensForMaskedLM
from latent_tokens.sharing.masked_lm import GeneratedOutput

LENGTH, MASK = 16, 4


@pytest.fixture
def model_of(nano, tmp_path):
    """Return the nano network with a method, saved and opened by transformers."""

    def of(method):
        nano.method, nano.folder = method, None
        save_pretrained(nano, tmp_path)
        return AutoModelForMaskedLM.from_pretrained(tmp_path)

    return of


def boards(known, rows=3, seed=0):
    """Return rows of tokens, of which the first `known` are given. The others are MASK."""
    tokens = torch.randint(0, MASK, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))
    return tokens.masked_fill(torch.arange(LENGTH) >= known, MASK)


def shown(net, ids, layout):
    """Return the logits of the method for a hand-written layout."""
    return net.method.logits(net, ids, layout)


def equal(one, other):
    """Return whether two networks have the same weights."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


@pytest.mark.slow
def test_transformers_loads_a_saved_model_to_equal_logits(nano, tmp_path):
    nano.method, nano.folder = METHODS["scdm"], None
    save_pretrained(nano, tmp_path / "given")
    script = """
import json, sys
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer
import torch
assert AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False).mask_token_id == 4
assert "latent_tokens" not in sys.modules
settings = {"trust_remote_code": True, "output_loading_info": True}
model, info = AutoModelForMaskedLM.from_pretrained(sys.argv[1], **settings)
assert not any(info.values()), info
assert type(model).__module__ == "latent_tokens.sharing.hugging_face"
assert isinstance(AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True), type(model))
ids = torch.tensor(json.loads(sys.argv[2]))
print(json.dumps([model(ids).logits[..., :-1].tolist(), model.generate(ids, seed=5).sequences.tolist()]))
model.save_pretrained(sys.argv[1] + "-again")
"""
    ids = boards(3)
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", script, str(tmp_path / "given"), json.dumps(ids.tolist())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    logits, sequences = json.loads(done.stdout.splitlines()[-1])
    layout = Layout(torch.arange(LENGTH).expand_as(ids), torch.full((3,), 3), torch.full((3,), LENGTH))
    assert torch.equal(torch.tensor(logits), shown(nano, ids, layout)[..., :-1])
    made = generate(nano, nano.method, ids, ids != MASK, Decoding(candidates=8), 5)
    assert sequences == made.tokens.tolist()
    assert equal(nano, from_pretrained(tmp_path / "given-again"))


@pytest.mark.parametrize("prefix", ["", "net."])
def test_weights_load_by_the_names_of_a_directory_and_of_the_class(model_of, prefix):
    """A Trainer loads its best checkpoint with strict=False, which would ignore other names silently."""
    model = model_of(METHODS["scdm"])
    stored = {prefix + name: weight + 1 for name, weight in model.net.state_dict().items()}
    loaded = model.load_state_dict(stored, strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == ([], [])
    assert all(torch.equal(stored[prefix + name], weight) for name, weight in model.net.state_dict().items())


def test_trainer_resumes_with_the_weights_of_its_checkpoint(model_of, tmp_path):
    model = model_of(METHODS["scdm"])
    rows = [{"input_ids": ids, "labels": torch.zeros(LENGTH, dtype=torch.long)} for ids in boards(4)]
    settings = TrainingArguments(
        tmp_path / "trainer", max_steps=2, save_steps=1, use_cpu=True, report_to=[], disable_tqdm=True
    )
    Trainer(model, settings, train_dataset=rows).train()
    trained = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
    Trainer(model, settings, train_dataset=rows).train(resume_from_checkpoint=True)
    assert all(torch.equal(trained[name], weight) for name, weight in model.state_dict().items())


def test_every_method_goes_there_and_back(model_of, nano, any_method, tmp_path):
    model = model_of(any_method)
    assert model.net.method == any_method
    assert equal(nano, model.net)
    model.save_pretrained(tmp_path / "again")
    assert from_pretrained(tmp_path / "again").method == any_method
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()


def test_precision_is_float32_or_as_requested_or_as_saved(tmp_path):
    model = LatentTokensForMaskedLM.from_pretrained("sudoku-6-scdm")
    assert model.dtype == torch.float32
    assert equal(model.net, from_pretrained("sudoku-6-scdm"))
    for name in ("dtype", "torch_dtype"):
        model = LatentTokensForMaskedLM.from_pretrained("sudoku-6-scdm", **{name: torch.bfloat16})
        assert model.dtype == torch.bfloat16
    for dtype in (torch.bfloat16, torch.float32):
        save_pretrained(from_pretrained("sudoku-6-scdm"), tmp_path, dtype=dtype)
        model = LatentTokensForMaskedLM.from_pretrained(tmp_path, dtype="auto")
        assert model.dtype == model.config.dtype == dtype
    with refused("not found: not a run directory"):
        LatentTokensForMaskedLM.from_pretrained("nowhere")


def test_a_new_network_is_drawn_as_its_class_draws_it(model_of):
    config = model_of(METHODS["mdm"]).config
    torch.manual_seed(7)
    plain = Transformer(SIZES["nano"], MASK, LENGTH)
    for make in (LatentTokensForMaskedLM, AutoModelForMaskedLM.from_config):
        torch.manual_seed(7)
        assert equal(plain, make(config).net)


def test_missing_unexpected_or_other_weights_are_refused(model_of, tmp_path):
    model_of(METHODS["scdm"])
    whole = load_file(tmp_path / "model.safetensors")
    changes = {
        r"missing_keys.*net\.head\.bias": {
            name: weight for name, weight in whole.items() if name != "head.bias"
        },
        "unexpected_keys.*other": {**whole, "other": torch.zeros(2)},
        "its logits differ by": {**whole, "head.bias": whole["head.bias"] + 3},
    }
    for message, weights in changes.items():
        save_file(weights, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            AutoModelForMaskedLM.from_pretrained(tmp_path)


def test_model_in_a_subfolder_is_saved_again(model_of, tmp_path):
    model_of(METHODS["scdm"]).save_pretrained(tmp_path / "all" / "scdm")
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "all", subfolder="scdm")
    model.save_pretrained(tmp_path / "again")
    again = from_pretrained(tmp_path / "again")
    assert torch.equal(again.head.weight, model.net.head.weight)


def test_the_config_says_what_transformers_asks(model_of, tmp_path):
    model_of(METHODS["scdm"])
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, LatentTokensConfig)
    numbers = (config.vocab_size, config.mask_token_id, config.max_position_embeddings)
    assert numbers == (MASK + 1, MASK, LENGTH)
    entries = json.loads((tmp_path / "config.json").read_text())
    assert entries["auto_map"]["AutoModelForMaskedLM"].startswith("modeling_latent_tokens.")


def test_forward_arranges_clean_then_masked_in_input_order(model_of):
    model = model_of(METHODS["scdm"])
    ids = boards(LENGTH)
    ids[:, ::2] = MASK
    order = torch.cat([torch.arange(1, LENGTH, 2), torch.arange(0, LENGTH, 2)]).expand(3, -1)
    by_hand = shown(model.net, ids, Layout(order, torch.full((3,), 8), torch.full((3,), LENGTH)))
    logits = model(ids).logits
    assert torch.equal(logits.gather(1, order[..., None].expand_as(logits)), by_hand)
    turned = torch.arange(LENGTH - 1, -1, -1)
    permuted = model(ids[:, turned], position_ids=turned).logits[:, turned]
    first = torch.tensor([*range(1, LENGTH, 2), 14])
    assert torch.allclose(permuted[:, 14], model(ids[:, first], first).logits[:, -1], atol=1e-4)
    # The order among masked slots matters to a semi-causal model.
    assert not torch.allclose(permuted[:, 14], logits[:, 14], atol=1e-3)


def test_masked_slots_left_out_are_latents_not_shown(model_of):
    model = model_of(METHODS["scdm"])
    ids, places = boards(5), torch.tensor([*range(5), 9, 12, 7])
    layout = Layout(places.expand(3, -1), torch.full((3,), 5), torch.full((3,), 8))
    assert torch.equal(model(ids[:, places], places).logits, shown(model.net, ids, layout))


def test_padding_changes_nothing_and_says_nothing(model_of):
    model = model_of(METHODS["scdm"])
    ids = boards(3)
    short = model(ids[:, :9]).logits
    inside = torch.arange(LENGTH).expand(3, -1) < 9
    padded = model(
        ids.masked_fill(~inside, 99),
        position_ids=torch.where(inside, torch.arange(LENGTH), 99),
        attention_mask=inside.long(),
    ).logits
    assert torch.allclose(padded[:, :9], short, atol=1e-5)
    assert (padded[:, 9:, :-1] == 0).all()
    assert (padded[..., -1] == -torch.inf).all()


def test_a_window_shows_no_more_than_it_was_trained_on(model_of):
    model = model_of(replace(METHODS["ar-mtp"], window=2))
    logits = model(boards(5)).logits
    assert (logits[:, 7:, :-1] == 0).all()
    assert torch.allclose(logits[:, :7], model(boards(5)[:, :7]).logits, atol=1e-5)


def test_shifted_readout_predicts_tokens_from_those_before(model_of):
    model = model_of(METHODS["arm"])
    whole, started = boards(LENGTH), boards(6)
    logits = model(whole).logits
    changed = whole.clone()
    changed[:, 8] = (changed[:, 8] + 1) % MASK
    assert torch.equal(model(changed).logits[:, :9], logits[:, :9])
    assert not torch.equal(model(changed).logits[:, 9], logits[:, 9])
    assert torch.allclose(model(started).logits[:, :7], logits[:, :7], atol=1e-5)
    assert (model(started).logits[:, 7:, :-1] == 0).all()
    expected = -logits.log_softmax(-1).gather(2, whole[..., None]).mean()
    assert torch.allclose(model(whole, labels=whole).loss, expected)
    whole[:, 3] = MASK
    with pytest.raises(ValueError, match="not a prefix"):
        model(whole)


def test_the_loss_is_of_masked_slots_that_have_a_label(model_of):
    model = model_of(METHODS["mdm"])
    ids, labels = boards(10), boards(LENGTH)
    nats = -model(ids).logits.log_softmax(-1).gather(2, labels[..., None])[..., 0]
    assert torch.allclose(model(ids, labels=labels).loss, nats[:, 10:].mean())
    labels[:, 12:] = -100
    found = model(ids, labels=labels)
    assert torch.allclose(found.loss, nats[:, 10:12].mean())
    found.loss.backward()
    assert model.net.embedding.weight.grad.abs().sum() > 0
    assert model(ids, labels=torch.full_like(ids, -100)).loss == 0


SETTINGS = {
    "scdm": (
        {"latents": "all", "candidates": "growing", "temperature": 0.5},
        Decoding(growing, "all", temperature=0.5),
    ),
    "mdm": (
        {"order": "entropy", "tokens_per_step": 2},
        Decoding(8, confidence=entropy, tokens_per_step=2),
    ),
    "sidm": ({"threshold": 0.5}, Decoding(8, threshold=0.5)),
    "esolm": (
        {"order": "left_to_right", "latents": 2, "top_p": 0.9},
        Decoding(1, latents=2, order=left_to_right, top_p=0.9),
    ),
    "arm": ({"temperature": 0}, Decoding(1, temperature=0)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_generate_gives_our_samples(model_of, name):
    model, (asked, decoding) = model_of(METHODS[name]), SETTINGS[name]
    ids = boards(3)
    made = generate(model.net, model.net.method, ids, ids != MASK, decoding, 11)
    found = model.generate(ids, **asked, seed=11)
    assert isinstance(found, GeneratedOutput)
    assert torch.equal(found, made.tokens)
    assert torch.equal(found.sequences, made.tokens)
    assert torch.equal(found.order, made.order)
    assert torch.equal(found.tokens_processed, made.processed)
    assert found.nfe == made.forward_passes
    assert torch.allclose(found.tokens_per_forward, 13 / made.passes)


def test_padding_stays_and_rows_of_any_length_are_filled(model_of):
    model = model_of(METHODS["scdm"])
    ids, lengths = boards(2), torch.tensor([16, 9, 12])
    inside = torch.arange(LENGTH) < lengths[:, None]
    found = model.generate(
        ids.masked_fill(~inside, 77), attention_mask=inside.long(), candidates=2, tokens_per_step=3
    ).sequences
    decoding = Decoding(2, tokens_per_step=3)
    known = ids != MASK
    made = generate(model.net, model.net.method, ids, known, decoding, 0, lengths=lengths)
    assert torch.equal(found[inside], made.tokens[inside])
    assert (found[~inside] == 77).all()


def test_every_step_is_passed_on(model_of):
    model, steps = model_of(METHODS["scdm"]), []
    ids = boards(4)
    found = model.generate(ids, latents=3, candidates=2, tokens_per_step=5, on_step=steps.append)
    assert [int((step.chosen >= 0).sum()) for step in steps] == [15, 15, 6]
    replayed = ids.clone()
    for step in steps:
        for index, row in enumerate(step.rows.tolist()):
            positions = step.chosen[index][step.chosen[index] >= 0]
            replayed[row, positions] = step.tokens[index, : len(positions)]
    assert torch.equal(replayed, found.sequences)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"latents": -1}, "latents=-1: must be"),
        ({"order": "best"}, "order=best: must be one of"),
        ({"latent": 3}, "setting=latent: must be one of latents"),
        ({"latents": 3}, "latents=3 is not supported by mdm"),
        ({"attention_mask": torch.arange(LENGTH).expand(3, -1) > 3}, "padding must be at the end"),
    ],
)
def test_setting_of_generate_is_refused(model_of, settings, message):
    with refused(message):
        model_of(METHODS["mdm"]).generate(boards(3), **settings)


@pytest.mark.parametrize("positions", [torch.arange(1, 17), torch.zeros(16, dtype=torch.long)])
def test_positions_out_of_range_or_twice_are_refused(model_of, positions):
    with refused("position_ids: must be different and from 0 to 15. Cut the input."):
        model_of(METHODS["scdm"])(boards(3), positions)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])  # uint8 is that of a data set
def test_inputs_have_any_type_of_whole_numbers(dtype, model_of):
    model, ids = model_of(METHODS["scdm"]), boards(3)
    labels = ids.masked_fill(ids == MASK, 0)
    expected = model(ids, labels=labels)
    output = model(ids.to(dtype), torch.arange(16, dtype=dtype), labels=labels.to(dtype))
    assert torch.equal(output.logits, expected.logits)
    assert output.loss == expected.loss
    assert torch.equal(model.generate(ids.to(dtype), seed=1).sequences, model.generate(ids, seed=1).sequences)
