"""`fit` trains a network of the user's own as it trains a Transformer."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import latent_tokens as lt
from helpers.own_network import Tied
from helpers.refusals import refused
from helpers.runs import checkpoints, description, stop_at, tiny_run
from latent_tokens.checkpoints.files import tensors_sha256
from latent_tokens.hf.export import export_model
from latent_tokens.training.checkpoint import saved_states

TASK = lt.TASKS["sudoku-4"]


config_of = partial(tiny_run, size=None)


def tied(seed=0, **settings):
    torch.manual_seed(seed)
    return Tied(**settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return an uninterrupted run of a network of the user."""
    return lt.fit(config_of(tmp_path_factory.mktemp("whole") / "run"), net=tied())


def test_own_network_is_trained_stored_and_loaded(whole):
    net = lt.from_pretrained(whole, net=tied(seed=1))
    stored = load_file(whole / "model.safetensors")
    assert all(torch.equal(tensor, stored[name]) for name, tensor in net.state_dict().items())
    assert tensors_sha256(net.state_dict()) != tensors_sha256(tied().state_dict())
    assert (net.vocab_size, net.max_length, net.mask_id, net.training) == (4, 16, 4, False)
    about = description(whole)
    numbers = {"vocab_size": 4, "max_length": 16, "mask_id": 4}
    assert about["model"] == {"network": "own", "class": "Tied", **numbers}
    assert about["start"] == {"weights_sha256": tensors_sha256(tied().state_dict())}
    assert {"size", "positions", "gelu", "dropout"}.isdisjoint(about["training"])

    (row,) = lt.evaluate(net, TASK, lt.EvalConfig(latents=(2,), candidates=4, num_samples=4))
    assert (row["method"], row["num_samples"]) == ("scdm", 4)
    tokens, known, _ = lt.as_tensors(TASK.generate(2, seed=0))
    samples = lt.generate(net, net.method, tokens, known, lt.Decoding(1), seed=0)
    assert samples.tokens.shape == (2, 16)
    assert samples.tokens.max() < 4


def test_own_network_resumes_with_equal_weights(whole, tmp_path):
    """Also with other initial weights, after its first checkpoint."""
    config = config_of(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        lt.fit(config, net=tied(), observe=stop_at(7))
    resumed = lt.fit(replace(config, resume="yes"), net=tied(seed=1))
    assert checkpoints(resumed) == checkpoints(whole)
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    with refused("of another network (embedding.weight is (5, 8), and (5, 4) in Tied). Use its network"):
        lt.fit(replace(config, resume="yes"), net=tied(width=4))
    assert checkpoints(resumed) == checkpoints(whole)


def test_own_network_resumes_from_its_initial_weights(tmp_path):
    config = config_of(tmp_path / "cut", steps=2)
    with pytest.raises(KeyboardInterrupt):
        lt.fit(config, net=tied(), observe=stop_at(0, "begun"))
    (first,) = saved_states(config.folder)
    stored = load_file(first)
    assert torch.equal(stored["net.embedding.weight"], tied().embedding.weight)
    first.unlink()
    with refused("weights_sha256="):
        lt.fit(replace(config, resume="yes"), net=tied(seed=1))
    lt.fit(replace(config, resume="yes"), net=tied())


class Partly(Tied):
    """A network with a frozen layer and an unused layer."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.position_embedding.requires_grad_(False)


def test_own_network_with_frozen_and_unused_weights_resumes(tmp_path):
    config = config_of(tmp_path / "run", steps=6)
    expected = saved_states(lt.fit(config, net=Partly()))[0]
    expected.unlink()
    run = lt.fit(replace(config, resume="yes"), net=Partly())
    assert saved_states(run)[0].name == expected.name  # which has the hash of its content
    weights = load_file(run / "model.safetensors")
    assert torch.equal(weights["position_embedding.weight"], Partly().position_embedding.weight)


class WithoutMask(Tied):
    """Every slot attends to every slot."""

    def forward(self, ids, positions, mask):
        return super().forward(ids, positions, None)


def of_vocabulary(size):
    net = tied()
    net.vocab_size = size
    return net


def test_weights_are_not_read_into_a_network_that_means_another(whole):
    """Its weights have the same shapes."""
    other = tied()
    other.mask_id = 7
    with refused("net.mask_id=7: ", " was trained with mask_id=4. Use a net with it"):
        lt.from_pretrained(whole, net=other)
    for settings, part in (({"positions": "both"}, "net.positions="), ({"size": "128x8x4"}, "net.heads=8")):
        six = {"size": "nano", "vocab_size": 6, "max_length": 36, "positions": "learned", "gelu": "tanh"}
        assert lt.from_pretrained("sudoku-6-scdm", net=lt.Transformer(**six))
        with refused(part):
            lt.from_pretrained("sudoku-6-scdm", net=lt.Transformer(**{**six, **settings}))


def test_a_longer_input_is_checked_again(whole):
    """Its positions are 16."""
    net = lt.from_pretrained(whole, net=tied())
    del net.max_length
    known = torch.zeros(1, 20, dtype=torch.bool)
    for length in (16, 20, 20):
        call = partial(
            lt.generate, net, net.method, known[:, :length].long(), known[:, :length], lt.Decoding(1)
        )
        if length == 16:
            call()
        else:
            with refused("net=Tied: ", "Enlarge its embeddings"):
                call()


def test_an_own_network_leaves_nothing_of_the_model_that_it_replaces(tmp_path):
    export_model(lt.from_pretrained("sudoku-6-scdm"), tmp_path)
    net = tied()
    net.method, net.vocab_size, net.max_length = lt.METHODS["scdm"], 4, 16
    with refused("generation_config: transformers does not open a network of your own"):
        export_model(net, tmp_path, generation_config=None)
    export_model(net, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


class Counted(Tied):
    """A network with indices beside its weights."""

    def __init__(self):
        super().__init__()
        self.register_buffer("numbers", torch.tensor([259, 100_001]))


def test_indices_keep_their_type_in_a_smaller_precision(tmp_path):
    net = Counted()
    net.method, net.vocab_size, net.max_length = lt.METHODS["scdm"], 4, 16
    lt.save_pretrained(net, tmp_path, dtype=torch.bfloat16)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["embedding.weight"].dtype == torch.bfloat16
    assert stored["numbers"].tolist() == [259, 100_001]


REFUSED = [  # the network, changes of the config, and what the error names
    (WithoutMask, {}, "net=WithoutMask: slots that the mask hides change its logits"),
    (lambda: tied(mask_id=3), {}, "net.mask_id=3: sudoku-4 has the tokens 0-3, and MASK is none"),
    (lambda: nn.Linear(2, 2), {}, "net.mask_id=None: sudoku-4 has the tokens 0-3"),
    (lambda: lambda *_: None, {}, "net=function: has no weights to train"),
    (lambda: tied().bfloat16(), {}, "net=Tied: embedding.weight is not float32"),
    (lambda: tied().requires_grad_(False), {}, "net=Tied: no parameter requires a gradient"),
    (lambda: of_vocabulary(5), {}, "net.vocab_size=5: must be 4 for sudoku-4"),
    (tied, {"size": "tiny"}, "net=Tied: size=tiny is for a network that is built. Leave size out"),
    (tied, {"mask": 0}, "net=Tied: mask=0 is for a network that is built. Leave mask out"),
    (tied, {"compile": True}, "net=Tied: compile=True is for a Transformer"),
    (tied, {"out": None}, "net=Tied: out=None has no default name for it"),
    (tied, {"lora": 2}, "net=Tied: lora=2 needs the directory of its base"),
]


@pytest.mark.parametrize(("net", "changes", "part"), REFUSED)
def test_network_that_cannot_be_trained_is_refused(tmp_path, monkeypatch, net, changes, part):
    monkeypatch.chdir(tmp_path)
    with refused(part):
        lt.fit(config_of(**{"out": tmp_path / "run", **changes}), net=net())
    assert not (tmp_path / "run" / "config.json").exists()


def test_weights_of_own_network_need_the_network(whole):
    with refused("has weights of your own network Tied. Give it in Python"):
        lt.from_pretrained(whole)
    with refused("embedding.weight is (5, 8), and (5, 16) in Tied"):
        lt.from_pretrained(whole, net=tied(width=16))


class Twice(lt.Transformer):
    """A subclass that is another network: its blocks act twice."""

    def forward(self, ids, positions, mask):
        x = self.embed(ids, positions)
        for block in (*self.blocks, *self.blocks):
            x = block(x, self.rotation(positions), mask[:, None])
        return self.logits(x)


class Unmasked(Twice):
    """Every slot attends to every slot."""

    def forward(self, ids, positions, mask):
        return super().forward(ids, positions, torch.ones_like(mask))


def test_subclass_of_transformer_is_an_own_network(tmp_path):
    """Its weights are never opened as those of a Transformer, which computes something else."""
    shape = ("pico", TASK.vocab_size, TASK.length)
    run = lt.fit(config_of(tmp_path / "run", steps=1), net=Twice(*shape))
    assert description(run)["model"]["class"] == "Twice"
    with refused("has weights of your own network Twice. Give it in Python"):
        lt.from_pretrained(run)
    assert isinstance(lt.from_pretrained(run, net=Twice(*shape)), Twice)
    lt.save_pretrained(lt.from_pretrained(run, net=Twice(*shape)), tmp_path / "saved")
    assert description(tmp_path / "saved")["model"]["class"] == "Twice"

    empty = torch.zeros(2, 16, dtype=torch.int64), torch.zeros(2, 16, dtype=torch.bool)
    refusal = "net=Unmasked: slots that the mask hides change its logits"
    with refused(refusal):
        lt.fit(config_of(tmp_path / "other", steps=1), net=Unmasked(*shape))
    with refused(refusal):
        lt.generate(Unmasked(*shape), lt.METHODS["scdm"], *empty, lt.Decoding(1), 0)


def test_transformer_of_any_shape_is_trained_as_it_is(tmp_path):
    net = lt.Transformer(lt.Size(8, 2, 1), TASK.vocab_size, TASK.length)
    run = lt.fit(config_of(tmp_path / "run", steps=1), net=net)
    assert lt.from_pretrained(run).size == lt.Size(8, 2, 1)


@pytest.mark.slow
def test_compiled_network_is_trained_under_its_own_names(tmp_path):
    config = config_of(tmp_path / "run", steps=3)
    compiled = torch.compile(tied(), backend="eager")
    names = load_file(lt.fit(config, net=compiled) / "model.safetensors").keys()
    assert names == tied().state_dict().keys()
    plain = load_file(saved_states(lt.fit(replace(config, out=tmp_path / "plain"), net=tied()))[0])
    for name, tensor in load_file(saved_states(config.folder)[0]).items():
        assert torch.allclose(tensor, plain[name], atol=1e-5), name


def test_own_network_starts_from_the_weights_of_a_run(whole, tmp_path):
    config = config_of(tmp_path / "run", steps=2, start=whole)
    net = tied(seed=1)
    assert description(lt.fit(config, net=net))["start"]["weights_sha256"] == tensors_sha256(
        load_file(whole / "model.safetensors")
    )
    assert net.folder is None  # its rows do not name the run that it started from


@dataclass
class Near:
    """A rule without a hash: to clean slots, and to the nearest masked ones."""

    width: int

    def __call__(self, q, k, c):
        return (k < c) | ((k - q).abs() <= self.width)


def test_a_rule_may_have_no_hash():
    method = replace(lt.METHODS["scdm"], attention=Near(0))
    net = tied()
    known = torch.zeros(1, 16, dtype=torch.bool)
    assert lt.generate(net, method, known.long(), known).tokens.shape == (1, 16)
    assert method == replace(method, attention=Near(0)) != replace(method, attention=Near(1))
