"""LoRA adapters of peft on a Transformer and on the model of transformers: train, decode, save, merge."""

from functools import partial

import pytest
import torch

pytest.importorskip("peft")

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForMaskedLM, Trainer, TrainingArguments

from latent_tokens import (
    METHODS,
    TASKS,
    Decoding,
    DiffusionCollator,
    EvalConfig,
    Transformer,
    evaluate,
    from_pretrained,
    generate,
    loss,
    save_pretrained,
)
from latent_tokens.hugging_face import LatentTokensForMaskedLM
from latent_tokens.sharing.hub import save_pretrained as save_model

# peft asks transformers for a name that version 6 will not have.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

TASK = TASKS["sudoku-4"]
METHOD = METHODS["scdm"]


def lora():
    """Return a config of peft, which peft changes. The adapter is not zero at the start."""
    return LoraConfig(r=2, target_modules=["qkv", "mlp_in"], init_lora_weights=False)


@pytest.fixture
def folder(pico, tmp_path):
    """Return a model directory of an untrained network."""
    pico.method, pico.folder = METHOD, None
    save_model(pico, tmp_path / "base")
    return tmp_path / "base"


def examples():
    """Return boards, and which cells are given: the first four."""
    tokens = torch.randint(0, 4, (4, 16), generator=torch.Generator().manual_seed(0))
    return tokens, (torch.arange(16) < 4).expand(4, -1)


def samples(net):
    """Return boards that a network decodes from the given cells."""
    tokens, known = examples()
    return generate(net, METHOD, tokens, known, Decoding(candidates=4, latents=2), seed=1).tokens


@pytest.mark.slow
def test_lora_on_a_transformer(folder, tmp_path):
    torch.manual_seed(0)
    base = from_pretrained(folder)
    frozen = base.head.weight.clone()
    before = samples(base)
    net = get_peft_model(base, lora())

    # Train the adapter.
    value = partial(loss, net, METHOD, *examples())
    first = value(torch.Generator().manual_seed(0))
    trained = [weight for weight in net.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, 3e-2)
    for _ in range(5):
        optimizer.zero_grad()
        value(torch.Generator().manual_seed(0)).backward()
        optimizer.step()
    assert value(torch.Generator().manual_seed(0)) < first
    assert torch.equal(net.head.weight, frozen)

    # Decode and evaluate.
    net.eval()
    after = samples(net)
    assert not torch.equal(after, before)
    (row,) = evaluate(net, TASK, EvalConfig(num_samples=2))
    assert row["num_samples"] == 2

    # Save the adapter, and load it. Merge it into the network.
    net.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(from_pretrained(folder), tmp_path / "adapter")
    assert torch.equal(samples(again), after)
    merged = net.merge_and_unload()
    assert type(merged) is Transformer
    save_model(merged, tmp_path / "merged")
    assert torch.equal(samples(from_pretrained(tmp_path / "merged")), after)


@pytest.mark.slow
def test_lora_on_the_model_of_transformers(folder, tmp_path):
    torch.manual_seed(0)
    tokens, known = examples()
    masked = tokens.masked_fill(~known, 4)
    model = get_peft_model(LatentTokensForMaskedLM.from_pretrained(folder), lora())
    settings = TrainingArguments(
        tmp_path / "run", max_steps=2, learning_rate=3e-2, use_cpu=True, report_to=[], disable_tqdm=True,
        remove_unused_columns=False,
    )  # fmt: skip
    items = [{"tokens": row, "known": given, "length": 16} for row, given in zip(tokens, known, strict=True)]
    collator = DiffusionCollator(METHOD, 4)
    Trainer(model, settings, data_collator=collator, train_dataset=items).train()

    model.eval()
    sequences = model.generate(input_ids=masked, seed=1).sequences
    model.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(LatentTokensForMaskedLM.from_pretrained(folder), tmp_path / "adapter")
    assert torch.equal(again.generate(input_ids=masked, seed=1).sequences, sequences)
    opened = AutoModelForMaskedLM.from_pretrained(tmp_path / "adapter")  # which opens the base, too
    assert torch.equal(opened.generate(masked, seed=1).sequences, sequences)
    again.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = LatentTokensForMaskedLM.from_pretrained(tmp_path / "merged")
    assert torch.equal(merged.generate(masked, seed=1).sequences, sequences)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer versions of transformers have another name
def test_lora_learns_under_gradient_checkpointing(folder):
    model = LatentTokensForMaskedLM.from_pretrained(folder)
    model.gradient_checkpointing_enable()
    adapted = get_peft_model(model, lora()).train()
    tokens, known = examples()
    adapted(input_ids=tokens.masked_fill(~known, 4), labels=tokens).loss.backward()
    gradients = [weight.grad for weight in adapted.parameters() if weight.requires_grad]
    assert gradients
    assert all(gradient is not None and gradient.any() for gradient in gradients)


def test_adapter_is_not_saved_as_a_model(folder, tmp_path):
    model = LatentTokensForMaskedLM.from_pretrained(folder)
    get_peft_model(model, lora())
    with pytest.raises(ValueError, match=r"has a LoRA adapter of peft.* call merge_and_unload\(\) first"):
        model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    save_pretrained(model.net, tmp_path / "weights")  # its reader is given the network
    with pytest.raises(ValueError, match=r"has a LoRA adapter of peft. Give its network in Python: net="):
        from_pretrained(tmp_path / "weights")
    adapted = get_peft_model(from_pretrained(folder), lora())
    weights = from_pretrained(tmp_path / "weights", net=adapted).base_model.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.net.state_dict().items())


def test_adapter_of_a_bundled_model_is_saved(tmp_path):
    """Its config.json is that of a run, without the number of tokens that peft asks for."""
    model = get_peft_model(LatentTokensForMaskedLM.from_pretrained("sudoku-6-scdm"), lora())
    model.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
