"""Batches for other training loops have the loss of the method, and the Trainer keeps the best weights."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

pytest.importorskip("transformers")

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from latent_tokens import (
    METHODS,
    DiffusionCollator,
    Examples,
    as_tensors,
    from_pretrained,
    loss,
)
from latent_tokens.core.denoiser import exclude_mask_token
from latent_tokens.hugging_face import LatentTokensForMaskedLM, LatentTokensTrainer
from latent_tokens.sharing.hub import save_pretrained


def examples_of(count=6):
    """Return boards with some given first cells. Some boards are shorter."""
    random = np.random.default_rng(0)
    tokens = random.integers(0, 4, (count, 16), np.uint8)
    lengths = random.integers(9, 17, count).astype(np.uint16)
    given = random.integers(0, 8, count)
    return Examples(tokens, np.arange(16) < given[:, None], lengths)


def items_of(examples):
    """Return the rows of a data set as dicts."""
    names = ("tokens", "known", "length")
    return [dict(zip(names, row, strict=True)) for row in zip(*examples, strict=True)]


@pytest.mark.parametrize("as_dicts", [True, False])
def test_collated_batch_has_the_loss_of_its_method(any_method, pico, as_dicts):
    examples = examples_of()
    collator = DiffusionCollator(any_method, pico.mask_id, seed=5)
    batch = collator(items_of(examples) if as_dicts else list(zip(*examples, strict=True)))
    logits = pico(batch["input_ids"], batch["position_ids"], batch["attention_mask"][:, 0])
    tokens, known, lengths = as_tensors(examples)
    generator = torch.Generator().manual_seed(5)
    expected = loss(pico, any_method, tokens, known, generator, lengths=lengths)
    assert torch.allclose(collator.loss(logits, batch["labels"], batch["weights"]), expected, rtol=1e-5)

    # The same in a loop of the user.
    logits = exclude_mask_token(pico.mask_id, logits).flatten(0, 1)
    nats = torch.nn.functional.cross_entropy(logits, batch["labels"].flatten(), reduction="none")
    assert torch.allclose((nats * batch["weights"].flatten()).sum(), expected, rtol=1e-5)
    assert ((batch["labels"] == -100) == (batch["weights"] == 0)).all()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_draws_anew_for_each_batch(num_workers):
    examples = examples_of(count=1).take(np.zeros(4, np.int64))
    collator = DiffusionCollator(METHODS["scdm"], mask_id=4, seed=1)
    loader = partial(
        DataLoader, items_of(examples), batch_size=1, num_workers=num_workers, collate_fn=collator
    )
    torch.manual_seed(0)
    orders = [tuple(batch["position_ids"][0].tolist()) for _ in range(2) for batch in loader()]
    assert len(set(orders)) == 8
    batch = next(iter(loader()))
    assert batch["attention_mask"].shape == (1, 1, *2 * batch["input_ids"].shape[1:])


SETTINGS = partial(
    TrainingArguments,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    per_device_train_batch_size=4,
)


@pytest.fixture
def model(pico, tmp_path):
    """Return the untrained pico network in transformers."""
    pico.method, pico.folder = METHODS["scdm"], None
    save_pretrained(pico, tmp_path / "model")
    return LatentTokensForMaskedLM.from_pretrained(tmp_path / "model")


def test_trainer_has_the_loss_of_the_method(model, tmp_path):
    examples = examples_of()
    trainer = LatentTokensTrainer(model, SETTINGS(tmp_path / "run", seed=3), eval_dataset=examples)
    measured = [trainer.evaluate()["eval_loss"] for _ in range(2)]
    predicted = [trainer.predict(examples).metrics["test_loss"] for _ in range(2)]
    assert predicted == pytest.approx(measured)
    tokens, known, lengths = as_tensors(examples)
    expected = loss(
        model.net, model.net.method, tokens, known, torch.Generator().manual_seed(3), lengths=lengths
    )
    assert measured == pytest.approx([expected.item()] * 2, rel=1e-5)

    # The Trainer of transformers has the same loss with the collator.
    plain = Trainer(
        model,
        SETTINGS(tmp_path / "plain", remove_unused_columns=False),
        data_collator=DiffusionCollator(model.net.method, 4, seed=3),
        eval_dataset=items_of(examples),
    )
    assert plain.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_evaluations_with_workers_draw_the_same(model, tmp_path):
    workers = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    settings = SETTINGS(tmp_path / "run", dataloader_prefetch_factor=2, **workers)
    trainer = LatentTokensTrainer(model, settings, eval_dataset=examples_of())
    measured = [trainer.evaluate()["eval_loss"] for _ in range(2)]
    trainer.args.dataloader_num_workers = 0
    assert measured == pytest.approx([trainer.evaluate()["eval_loss"]] * 2)


def test_trainer_lowers_the_loss_in_ten_steps(model, tmp_path):
    examples = examples_of(32)
    settings = SETTINGS(tmp_path / "run", max_steps=10, learning_rate=3e-3, logging_steps=10)
    trainer = LatentTokensTrainer(model, settings, train_dataset=examples, eval_dataset=examples)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.9 * before
    assert settings.remove_unused_columns


@pytest.mark.slow
def test_trainer_resumes_and_keeps_the_best_weights(model, tmp_path):
    examples = examples_of(16)
    settings = SETTINGS(
        tmp_path / "run", max_steps=4, save_steps=2, eval_steps=2, eval_strategy="steps", learning_rate=3e-3,
        load_best_model_at_end=True, greater_is_better=True,
    )  # fmt: skip
    data = {"train_dataset": examples, "eval_dataset": examples}
    trainer = LatentTokensTrainer(model, settings, **data)
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("-2")  # by the higher loss: not the last weights
    best = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert trainer.evaluate()["eval_loss"] == pytest.approx(trainer.state.best_metric, rel=1e-5)
    stored = LatentTokensForMaskedLM.from_pretrained(trainer.state.best_model_checkpoint).state_dict()
    assert all(torch.equal(weight, stored[name]) for name, weight in best.items())

    # A resumed run starts from the weights of its checkpoint, not from those of the model.
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
    last = str(tmp_path / "run" / "checkpoint-4")
    LatentTokensTrainer(model, replace(settings, load_best_model_at_end=False), **data).train(last)
    stored = LatentTokensForMaskedLM.from_pretrained(last).state_dict()
    assert all(torch.equal(weight, stored[name]) for name, weight in model.state_dict().items())
    assert not any(torch.equal(weight, best[name]) for name, weight in stored.items())


def test_trainer_takes_another_method_and_network(tmp_path):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=5, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, attn_implementation="sdpa",
    )  # fmt: skip
    llama = LlamaForCausalLM(config)
    with pytest.raises(ValueError, match="not set by LlamaForCausalLM"):
        LatentTokensTrainer(llama, SETTINGS(tmp_path / "run"))
    with pytest.raises(ValueError, match="Pass both, with a model of transformers"):
        LatentTokensTrainer(from_pretrained("sudoku-6-scdm"), SETTINGS(tmp_path / "run"))
    examples = examples_of()
    settings = SETTINGS(tmp_path / "run", max_steps=2, gradient_accumulation_steps=2)
    data = {"train_dataset": examples, "eval_dataset": examples}
    trainer = LatentTokensTrainer(llama, settings, method=METHODS["mdm"], mask_id=4, **data)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    assert trainer.state.log_history[-2]["train_loss"] == pytest.approx(before, rel=0.3)  # not twice as large
