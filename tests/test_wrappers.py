"""A network in a wrapper computes as the network inside. Adapters of peft train, decode, save and merge."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch.optim.swa_utils import AveragedModel

pytest.importorskip("peft")

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForMaskedLM, Trainer, TrainingArguments

import latent_tokens as lt
from helpers.own_network import Tied
from helpers.refusals import refused
from helpers.tiny_models import tiny_model
from latent_tokens.core.denoiser import as_denoiser, unwrap
from latent_tokens.core.sampling import generate as reference
from latent_tokens.hf.export import export_model as save_for_transformers
from latent_tokens.hugging_face import LatentTokensForMaskedLM

# peft asks transformers for a name that version 6 will not have.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

TASK = lt.TASKS["sudoku-4"]
METHOD = lt.METHODS["scdm"]


class WithoutAttributes(torch.nn.parallel.DistributedDataParallel):
    """DDP without a process group. Like the real one, it has no attribute of its network."""

    def __init__(self, net):
        torch.nn.Module.__init__(self)
        self.module = net

    def forward(self, *inputs):
        return self.module(*inputs)


WRAPPERS = {
    "ddp": WithoutAttributes,
    "ema": AveragedModel,
    "compile": lambda net: torch.compile(net, backend="eager"),
    "compile, ddp": lambda net: WithoutAttributes(torch.compile(net, backend="eager")),
}


def own():
    torch.manual_seed(0)
    net = Tied().eval()
    net.method = METHOD
    net.vocab_size = 4
    net.max_length = 16
    return net


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "compile" in name else ()) for name in WRAPPERS]
)
def test_wrapped_network_computes_as_the_network_inside(name, folder, tmp_path):
    net = own() if "compile" in name else lt.from_pretrained(folder)
    wrapped = WRAPPERS[name](net).eval()
    tokens, known, lengths = lt.as_tensors(TASK.generate(3, seed=0))
    order = torch.arange(16).expand(3, -1)

    def results(any_net):
        config = lt.EvalConfig(latents=(2,), candidates=4, num_samples=4)
        (row,) = lt.evaluate(any_net, TASK, config)
        return (
            lt.generate(any_net, METHOD, tokens, known, lt.Decoding(candidates=4), seed=0).tokens.tolist(),
            {name: row[name] for name in ("valid", "processed", "latents", "method")},
        )

    def figures(any_net):
        nats = lt.log_likelihood(any_net, METHOD, tokens, order, torch.zeros_like(lengths), lengths)
        value = lt.loss(any_net, METHOD, tokens, known, torch.Generator().manual_seed(0))
        return [value.item(), *nats.sum(1).tolist()]

    assert results(wrapped) == results(net)
    assert figures(wrapped) == pytest.approx(figures(net), rel=1e-5)
    lt.save_pretrained(wrapped, tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(stored[name], tensor) for name, tensor in unwrap(wrapped).state_dict().items())
    exported = []
    for any_net in (wrapped, net):
        save_for_transformers(any_net, tmp_path / "exported")
        exported.append({path.name: path.read_bytes() for path in (tmp_path / "exported").iterdir()})
    assert exported[0] == exported[1]


def lora():
    """Return a config of peft, which peft changes. The adapter is not zero at the start."""
    return LoraConfig(r=2, target_modules=["qkv", "mlp_in"], init_lora_weights=False)


@pytest.fixture
def folder(pico, tmp_path):
    """Return a model directory of an untrained network."""
    pico.method, pico.folder = METHOD, None
    save_for_transformers(pico, tmp_path / "base")
    return tmp_path / "base"


def examples():
    """Return boards, and which cells are given: the first four."""
    tokens = torch.randint(0, 4, (4, 16), generator=torch.Generator().manual_seed(0))
    return tokens, (torch.arange(16) < 4).expand(4, -1)


def samples(net, generate=lt.generate):
    """Return boards that a network decodes from the given cells."""
    return lt.generate(net, METHOD, *examples(), lt.Decoding(candidates=4, latents=2), seed=1).tokens


def test_dropout_of_an_adapter_differs_between_equal_slots(pico):
    """A pass for some slots may look up the first projection, but not in training with dropout."""
    net = deepcopy(pico)
    net.blocks[0].qkv = torch.nn.Sequential(net.blocks[0].qkv, torch.nn.Dropout(0.5))
    ids = torch.zeros(64, 16, dtype=torch.long)
    positions = torch.arange(16).expand(64, 16)
    mask = torch.ones(64, 16, 16, dtype=torch.bool)
    first, second = net.train()(ids, positions, mask, positions == 0)[:2]
    assert not torch.equal(first, second)
    first, second = net.eval()(ids, positions, mask, positions == 0)[:2]
    assert torch.equal(first, second)


@pytest.mark.slow
def test_lora_on_a_transformer(folder, tmp_path):
    torch.manual_seed(0)
    base = lt.from_pretrained(folder)
    before = samples(base)
    net = get_peft_model(base, lora()).eval()
    assert unwrap(net) is base
    lt.loss(net, METHOD, *examples(), torch.Generator().manual_seed(0)).backward()
    assert all(weight.grad.any() for weight in net.parameters() if weight.requires_grad)

    # Decode and evaluate.
    after = samples(net)
    assert torch.equal(after, samples(as_denoiser(net), reference))
    assert not torch.equal(after, before)
    (row,) = lt.evaluate(net, TASK, lt.EvalConfig(num_samples=2))
    assert row["num_samples"] == 2

    # Save the adapter, and load it. Merge it into the network.
    net.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(lt.from_pretrained(folder), tmp_path / "adapter")
    assert torch.equal(samples(again), after)
    merged = net.merge_and_unload()
    assert type(merged) is lt.Transformer
    save_for_transformers(merged, tmp_path / "merged")
    assert torch.equal(samples(lt.from_pretrained(tmp_path / "merged")), after)


@pytest.mark.slow
def test_lora_on_the_model_of_transformers(folder, tmp_path):
    torch.manual_seed(0)
    tokens, known = examples()
    masked = tokens.masked_fill(~known, 4)
    opened = LatentTokensForMaskedLM.from_pretrained
    model = get_peft_model(opened(folder), lora())
    settings = TrainingArguments(
        tmp_path / "run", max_steps=2, learning_rate=3e-2, use_cpu=True, report_to=[], disable_tqdm=True,
        remove_unused_columns=False,
    )  # fmt: skip
    items = [{"tokens": row, "known": given, "length": 16} for row, given in zip(tokens, known, strict=True)]
    Trainer(model, settings, data_collator=lt.DiffusionCollator(METHOD, 4), train_dataset=items).train()

    model.eval()
    sequences = model.generate(input_ids=masked, seed=1).sequences
    model.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(opened(folder), tmp_path / "adapter")
    with_base = AutoModelForMaskedLM.from_pretrained(tmp_path / "adapter")  # which opens the base, too
    again.merge_and_unload().save_pretrained(tmp_path / "merged")
    for same in (again, with_base, opened(tmp_path / "merged")):
        assert torch.equal(same.generate(input_ids=masked, seed=1).sequences, sequences)


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
    adapted = get_peft_model(lt.from_pretrained(folder), lora())
    of_transformers = lt.HuggingFaceDenoiser(tiny_model("llama"), None)
    other = get_peft_model(of_transformers, LoraConfig(r=2, target_modules=["q_proj"]))
    saves = (partial(save_for_transformers, net) for net in (adapted, other))
    for save in (model.save_pretrained, *saves):
        with refused("has a LoRA adapter of peft", "call merge_and_unload() first"):
            save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    lt.save_pretrained(model.net, tmp_path / "weights")  # its reader is given the network
    with refused("has a LoRA adapter of peft. Give its network in Python: net="):
        lt.from_pretrained(tmp_path / "weights")
    adapted = get_peft_model(lt.from_pretrained(folder), lora())
    weights = lt.from_pretrained(tmp_path / "weights", net=adapted).base_model.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.net.state_dict().items())


def test_adapter_of_a_bundled_model_is_saved(tmp_path):
    """Its config.json is that of a run, without the number of tokens that peft asks for."""
    model = get_peft_model(LatentTokensForMaskedLM.from_pretrained("sudoku-6-scdm"), lora())
    model.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
