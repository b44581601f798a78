"""The keywords and switches of transformers that tools use work, or are refused in one line."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")

from transformers import GenerationConfig
from transformers.dynamic_module_utils import get_imports

from latent_tokens import Size, Transformer, from_pretrained, loss
from latent_tokens.sharing.hub_methods import CODE
from latent_tokens.sharing.hugging_face import LatentTokensForMaskedLM

MASK = 6


@pytest.fixture
def model():
    return LatentTokensForMaskedLM.from_pretrained("sudoku-6-scdm")


def boards(rows=2):
    """Return boards of 36 cells, of which the first thirty are given."""
    tokens = torch.randint(0, MASK, (rows, 36), generator=torch.Generator().manual_seed(0))
    return tokens.masked_fill(torch.arange(36) >= 30, MASK)


def test_save_takes_the_keywords_that_tools_pass(model, tmp_path):
    model.save_pretrained(
        tmp_path / "model",
        is_main_process=True,
        state_dict=model.state_dict(),
        safe_serialization=True,
        max_shard_size="5GB",
        save_function=torch.save,
        save_peft_format=True,
        variant=None,
        token=None,
    )
    assert torch.equal(from_pretrained(tmp_path / "model").head.weight, model.net.head.weight)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"safe_serialization": False}, "safe_serialization=False: is not supported, as the weights are"),
        ({"variant": "fp16"}, "variant=fp16: is not supported"),
        ({"distributed_checkpoint": True}, "distributed_checkpoint=True: is not supported"),
        ({"max_shard_size": "1KB"}, "max_shard_size=1KB: the weights are one file of 3,"),
        ({"max_sard_size": "1KB"}, "max_sard_size: no argument of save_pretrained"),
    ],
)
def test_save_refuses_what_the_format_has_not(model, tmp_path, option, message):
    with pytest.raises((ValueError, TypeError), match=f"^{message}") as error:
        model.save_pretrained(tmp_path / "model", **option)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()


def test_save_with_push_to_hub_uploads_the_model(model, tmp_path, monkeypatch):
    uploads = []
    monkeypatch.setattr(
        "latent_tokens.sharing.hub_methods.upload",
        lambda folder, name, **options: uploads.append((name, options)) or "address",
    )
    model.save_pretrained(
        tmp_path / "mine", push_to_hub=True, commit_message="first", token="x", private=True
    )
    model.save_pretrained(tmp_path / "mine", push_to_hub=True, repo_id="me/other")
    assert [name for name, _ in uploads] == ["mine", "me/other"]
    assert uploads[0][1].items() >= {"message": "first", "token": "x", "private": True}.items()


def test_num_return_sequences_repeats_rows(model):
    output = model.generate(boards(), num_return_sequences=3, seed=5)
    repeated = model.generate(boards().repeat_interleave(3, dim=0), seed=5)
    assert torch.equal(output.sequences, repeated.sequences)
    assert len(output.order) == 6
    stored = model.generate(boards(), GenerationConfig(num_return_sequences=3, seed=5, do_sample=True))
    assert torch.equal(stored.sequences, output.sequences)
    with pytest.raises(ValueError, match="num_return_sequences=0: must be a whole number from 1"):
        model.generate(boards(), num_return_sequences=0)


def test_generator_draws_the_seed(model):
    def sample(seed):
        return model.generate(boards(4), generator=torch.Generator().manual_seed(seed)).sequences

    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))
    with pytest.raises(ValueError, match="seed=3 with a generator: the seed is drawn from it"):
        model.generate(boards(), generator=torch.Generator(), seed=3)


@pytest.mark.parametrize("setting", ["max_new_tokens", "max_length"])
def test_new_tokens_are_masks_at_the_end(model, setting):
    with pytest.raises(TypeError, match=f"^{setting}: no argument of generate. .* Append as many") as error:
        model.generate(boards(), **{setting: 4})
    with pytest.raises(ValueError, match=f"{setting}=4: no setting of this decoding. .* Append as many"):
        model.generate(boards(), GenerationConfig(**{setting: 4}))
    padded = torch.nn.functional.pad(boards()[:, :30], (0, 6), value=model.config.mask_token_id)
    assert "pad(input_ids, (0, N), value=model.config.mask_token_id)" in str(error.value)
    assert torch.equal(model.generate(padded).sequences, model.generate(boards()).sequences)


def saved_bytes(step):
    """Return the bytes that autograd keeps for the backward pass of a step, and the loss."""
    sizes = []

    def keep(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = step()
    return sum(sizes), value


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["labels", "loss"])
@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer versions of transformers have another name
def test_gradient_checkpointing_saves_memory_alone(model, kind, dropout):
    net = Transformer(Size(width=32, heads=2, layers=6), MASK, 36, dropout=dropout)
    net.method = model.net.method
    model.net = net
    model.train()
    known = boards() != MASK

    def step():
        torch.manual_seed(1)
        if kind == "labels":
            return model(boards(), labels=torch.zeros(2, 36, dtype=torch.long)).loss
        return loss(net, net.method, boards() % MASK, known, torch.Generator().manual_seed(1))

    def measure():
        num_bytes, value = saved_bytes(step)
        model.zero_grad()
        value.backward()
        return num_bytes, value.detach(), [weight.grad.clone() for weight in net.parameters()]

    plain_bytes, plain_loss, plain_gradients = measure()
    model.gradient_checkpointing_enable()
    num_bytes, value, gradients = measure()
    assert num_bytes < plain_bytes / 3
    assert torch.equal(value, plain_loss)
    assert all(map(torch.equal, gradients, plain_gradients))
    model.eval()
    assert torch.equal(model.generate(boards(), seed=1), model.generate(boards(), seed=1))


def test_other_vocabulary_is_refused_before_a_change(model):
    before = model.net.embedding.weight.clone()
    assert model.resize_token_embeddings(MASK + 1) is model.net.embedding
    for arguments in ({"new_num_tokens": 9}, {"pad_to_multiple_of": 8}):
        with pytest.raises(ValueError, match="must be 7, as MASK is the last token"):
            model.resize_token_embeddings(**arguments)
    assert torch.equal(model.net.embedding.weight, before)
    assert model.config.vocab_size == MASK + 1


def test_directory_without_the_package_names_its_address(tmp_path):
    (tmp_path / "modeling_latent_tokens.py").write_text(CODE)
    assert get_imports(tmp_path / "modeling_latent_tokens.py") == []  # else transformers raises its own error
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import modeling_latent_tokens"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "ImportError: this model needs the package latent-tokens: pip install git+https://"
    )
