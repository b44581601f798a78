"""Batches for other training loops have the loss of the method, and the Trainer keeps the best weights."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

pytest.importorskip("transformers")

from transformers import Trainer, TrainingArguments

from helpers.refusals import refused
from helpers.tiny_models import tiny_model
from latent_tokens import METHODS, DiffusionCollator, Examples, HuggingFaceDenoiser, as_tensors, loss
from latent_tokens.core.denoiser import token_logits
from latent_tokens.hf.export import export_model
from latent_tokens.hugging_face import LatentTokensForMaskedLM

# On one CPU torch warns of more workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")


def examples_of(count=6):
    """Return boards with some given first cells. Some boards are shorter."""
    random = np.random.default_rng(0)
    tokens = random.integers(0, 4, (count, 16), np.uint8)
    lengths = random.integers(9, 17, count).astype(np.uint16)
    given = random.integers(0, 8, count)
    return Examples(tokens, np.arange(16) < given[:, None], lengths)


def loss_of(net, method, examples, seed):
    tokens, known, lengths = as_tensors(examples)
    return loss(net, method, tokens, known, torch.Generator().manual_seed(seed), lengths=lengths)


def test_collated_batch_has_the_loss_of_its_method(any_method, pico):
    check_loss(any_method, pico, examples_of())


@pytest.mark.parametrize("name", ["mdm-left", "ar-mtp"])
def test_a_prediction_of_a_collated_batch_is_read_at_the_slot_before(name, pico):
    examples = examples_of()
    examples.known[:, 0] = True
    check_loss(replace(METHODS[name], readout="left"), pico, examples)


def check_loss(method, pico, examples):
    expected = loss_of(pico, method, examples, seed=5)
    collator = DiffusionCollator(method, pico.mask_id, seed=5)
    batch = collator([examples[row] for row in range(len(examples))])
    logits = pico(batch["input_ids"], batch["position_ids"], batch["attention_mask"][:, 0])
    assert torch.allclose(collator.loss(logits, batch["labels"], batch["weights"]), expected, rtol=1e-5)

    # The same in a loop of the user.
    logits = token_logits(pico, logits).flatten(0, 1)
    nats = torch.nn.functional.cross_entropy(logits, batch["labels"].flatten(), reduction="none")
    assert torch.allclose((nats * batch["weights"].flatten()).sum(), expected, rtol=1e-5)
    assert ((batch["labels"] == -100) == (batch["weights"] == 0)).all()


def test_loss_excludes_the_columns_that_the_network_excludes():
    """Logits that are padded beyond `vocab_size`: `loss` of the network excludes them, too."""
    net = HuggingFaceDenoiser(tiny_model("llama"), None)
    net.vocab_size = 5
    examples = examples_of()
    expected = loss_of(net, METHODS["scdm"], examples, seed=5)
    collator = DiffusionCollator(METHODS["scdm"], net.mask_id, seed=5, vocab_size=5)
    batch = collator([examples[row] for row in range(len(examples))])
    logits = net(batch["input_ids"], batch["position_ids"], batch["attention_mask"][:, 0])
    assert torch.allclose(collator.loss(logits, batch["labels"], batch["weights"]), expected, rtol=1e-5)


def test_ranks_of_equal_worker_seeds_draw_different_batches():
    """Worker 1 of seed 0 and worker 0 of seed 1, as after the same `set_seed` on two ranks."""
    drawn = []
    for seed in (0, 1):
        torch.manual_seed(42)
        collator = DiffusionCollator(METHODS["scdm"], mask_id=4, seed=seed)
        loader = DataLoader(examples_of(8), batch_size=1, num_workers=2, collate_fn=collator)
        drawn += [tuple(batch["position_ids"][0].tolist()) for batch in loader]
    assert len(set(drawn)) == 16


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_draws_anew_for_each_batch(num_workers):
    examples = examples_of(count=1).take(np.zeros(4, np.int64))
    collator = DiffusionCollator(METHODS["scdm"], mask_id=4, seed=1)
    torch.manual_seed(0)
    loader = DataLoader(examples, batch_size=1, num_workers=num_workers, collate_fn=collator)
    batches = [batch for _ in range(2) for batch in loader]
    assert len({tuple(batch["position_ids"][0].tolist()) for batch in batches}) == 8


SETTINGS = partial(
    TrainingArguments, use_cpu=True, report_to=[], disable_tqdm=True, remove_unused_columns=False,
    prediction_loss_only=True, per_device_train_batch_size=4,
)  # fmt: skip


@pytest.fixture
def model(pico, tmp_path):
    """Return the untrained pico network in transformers."""
    pico.method, pico.folder = METHODS["scdm"], None
    export_model(pico, tmp_path / "model")
    return LatentTokensForMaskedLM.from_pretrained(tmp_path / "model")


def trainer_of(model, settings, **data):
    """Return the Trainer of transformers with the loss of the model's method."""
    collator = DiffusionCollator(model.net.method, model.net.mask_id, seed=3)
    return Trainer(model, settings, data_collator=collator, **data)


def test_trainer_has_the_loss_of_the_method_and_lowers_it(model, tmp_path):
    examples = examples_of(32)
    settings = SETTINGS(tmp_path / "run", max_steps=20, learning_rate=1e-2, logging_steps=20)
    settings.per_device_eval_batch_size = 32
    trainer = trainer_of(model, settings, train_dataset=examples, eval_dataset=examples)
    before = trainer.evaluate()["eval_loss"]
    assert before == pytest.approx(loss_of(model.net, model.net.method, examples, seed=3).item(), rel=1e-5)
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.9 * before


def test_trainer_settings_that_lose_the_examples_are_refused(model, tmp_path):
    for changes, parts in (
        ({"remove_unused_columns": True}, ("items: have no tokens", "remove_unused_columns=False")),
        ({"label_smoothing_factor": 0.1}, ("weights: there are no labels", "label_smoothing_factor=0")),
    ):
        trainer = trainer_of(model, SETTINGS(tmp_path / "run", **changes), train_dataset=examples_of(8))
        with refused(*parts):
            trainer.train()


def test_trainer_resumes_and_keeps_the_best_weights(model, tmp_path):
    examples = examples_of(16)
    settings = SETTINGS(
        tmp_path / "run", max_steps=4, save_steps=2, eval_steps=2, eval_strategy="steps", learning_rate=3e-3,
        load_best_model_at_end=True, greater_is_better=True,
    )  # fmt: skip
    data = {"train_dataset": examples, "eval_dataset": examples}
    trainer = trainer_of(model, settings, **data)
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("-2")  # by the higher loss: not the last weights
    best = {name: weight.clone() for name, weight in model.state_dict().items()}
    stored = LatentTokensForMaskedLM.from_pretrained(trainer.state.best_model_checkpoint).state_dict()
    assert all(torch.equal(weight, stored[name]) for name, weight in best.items())

    # A resumed run starts from the weights of its checkpoint, not from those of the model.
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
    last = str(tmp_path / "run" / "checkpoint-4")
    trainer_of(model, replace(settings, load_best_model_at_end=False), **data).train(last)
    stored = LatentTokensForMaskedLM.from_pretrained(last).state_dict()
    assert all(torch.equal(weight, stored[name]) for name, weight in model.state_dict().items())
    assert not any(torch.equal(weight, best[name]) for name, weight in stored.items())
