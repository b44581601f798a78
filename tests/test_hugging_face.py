"""transformers loads our directories with equal logits and samples, and its tools work on them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

from transformers import AutoConfig, AutoModelForMaskedLM, GenerationConfig
from transformers.dynamic_module_utils import get_imports

import latent_tokens as lt
from helpers.refusals import refused
from latent_tokens.core.layout import Layout
from latent_tokens.hf.export import CODE, export_model
from latent_tokens.hf.modeling_latent_tokens import LatentTokensConfig, LatentTokensForMaskedLM

LENGTH, MASK = 16, 4


@pytest.fixture(scope="module")
def model_of(pico, tmp_path_factory):
    """Return the pico network with a method, saved and opened by transformers. Tests read it only."""

    @cache
    def of(method):
        pico.method, pico.folder = lt.METHODS[method] if isinstance(method, str) else method, None
        folder = tmp_path_factory.mktemp("model")
        export_model(pico, folder)
        return AutoModelForMaskedLM.from_pretrained(folder)

    return of


@pytest.fixture
def own(model_of):
    """A model of scdm that a test may change."""
    return AutoModelForMaskedLM.from_pretrained(model_of("scdm").net.folder)


def boards(known, rows=3, seed=0):
    """Return rows of tokens, of which the first `known` are given. The others are MASK."""
    tokens = torch.randint(0, MASK, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))
    return tokens.masked_fill(torch.arange(LENGTH) >= known, MASK)


def equal(one, other):
    """Return whether two networks have the same weights."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


@pytest.mark.slow
def test_transformers_loads_a_saved_model_to_equal_logits(pico, tmp_path):
    pico.method, pico.folder = lt.METHODS["scdm"], None
    export_model(pico, tmp_path / "given")
    script = """
import json, sys
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer
import torch
assert AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False).mask_token_id == 4
assert "latent_tokens" not in sys.modules
settings = {"trust_remote_code": True, "output_loading_info": True}
model, info = AutoModelForMaskedLM.from_pretrained(sys.argv[1], **settings)
assert not any(info.values()), info
assert type(model).__module__ == "latent_tokens.hf.modeling_latent_tokens"
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
    assert torch.equal(torch.tensor(logits), pico.method.logits(pico, ids, layout)[..., :-1])
    made = lt.generate(pico, pico.method, ids, ids != MASK, lt.Decoding(candidates=8), 5)
    assert sequences == made.tokens.tolist()
    assert equal(pico, lt.from_pretrained(tmp_path / "given-again"))


def test_directory_without_the_package_names_it(tmp_path):
    (tmp_path / "modeling_latent_tokens.py").write_text(CODE)
    assert get_imports(tmp_path / "modeling_latent_tokens.py") == []  # else transformers raises its own error
    environment = {name: os.environ[name] for name in os.environ.keys() - {"PYTHONPATH"}}
    command = [sys.executable, "-S", "-c", "import modeling_latent_tokens"]
    settings = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **settings, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: this model needs the package latent-tokens")


@pytest.mark.parametrize("prefix", ["", "net."])
def test_weights_load_by_the_names_of_a_directory_and_of_the_class(own, prefix):
    """A Trainer loads its best checkpoint with strict=False, which would ignore other names silently."""
    stored = {prefix + name: weight + 1 for name, weight in own.net.state_dict().items()}
    loaded = own.load_state_dict(stored, strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == ([], [])
    assert all(torch.equal(stored[prefix + name], weight) for name, weight in own.net.state_dict().items())


@pytest.mark.parametrize("name", ["scdm-depth", "ar-mtp-window-16", "block-mdm-2"])
def test_method_goes_there_and_back_in_a_subfolder(model_of, pico, name, tmp_path):
    model = model_of(name)
    assert equal(pico, model.net)
    model.save_pretrained(tmp_path / "all" / "again")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "all", subfolder="again")
    assert model.net.method == again.net.method == lt.METHODS[name]
    assert len({(net.folder / "config.json").read_bytes() for net in (model.net, again.net)}) == 1


def test_precision_is_float32_or_as_requested_or_as_saved(tmp_path):
    opened = LatentTokensForMaskedLM.from_pretrained
    net = lt.from_pretrained("sudoku-6-scdm")
    assert opened("sudoku-6-scdm").dtype == torch.float32
    assert equal(opened("sudoku-6-scdm").net, net)
    for attention in ("sdpa", "eager"):
        assert equal(opened("sudoku-6-scdm", attn_implementation=attention).net, net)
    for name in ("dtype", "torch_dtype"):
        assert opened("sudoku-6-scdm", **{name: torch.bfloat16}).dtype == torch.bfloat16
    for dtype in (torch.bfloat16, torch.float32):
        export_model(net, tmp_path, dtype=dtype)
        model = opened(tmp_path, dtype="auto")
        assert model.dtype == model.config.dtype == dtype


def test_a_new_network_is_drawn_as_its_class_draws_it(model_of):
    config = model_of("mdm").config
    torch.manual_seed(7)
    plain = lt.Transformer(lt.SIZES["pico"], MASK, LENGTH)
    for make in (LatentTokensForMaskedLM, AutoModelForMaskedLM.from_config):
        torch.manual_seed(7)
        assert equal(plain, make(config).net)


def test_missing_unexpected_or_other_weights_are_refused(own, tmp_path):
    own.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    without = {name: weight for name, weight in stored.items() if name != "head.bias"}
    for message, weights in {
        r"missing_keys.*net\.head\.bias": without,
        "unexpected_keys.*other": {**stored, "other": torch.zeros(2)},
        "its logits differ by": {**stored, "head.bias": stored["head.bias"] + 3},
    }.items():
        save_file(weights, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            AutoModelForMaskedLM.from_pretrained(tmp_path)


def test_save_takes_the_keywords_that_tools_pass(own, tmp_path):
    unused = {"safe_serialization": True, "max_shard_size": "5GB", "save_function": torch.save}
    own.save_pretrained(tmp_path, True, own.state_dict(), license="mit", push_to_hub=False, **unused)
    assert "license: mit" in (tmp_path / "README.md").read_text()
    with refused("push_to_hub=True", "Use model.push_to_hub"):
        own.save_pretrained(tmp_path, push_to_hub=True)
    assert torch.equal(lt.from_pretrained(tmp_path).head.weight, own.net.head.weight)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, LatentTokensConfig)
    numbers = (config.vocab_size, config.mask_token_id, config.max_position_embeddings)
    assert numbers == (MASK + 1, MASK, LENGTH)
    entries = json.loads((tmp_path / "config.json").read_text())
    assert entries["auto_map"]["AutoModelForMaskedLM"].startswith("modeling_latent_tokens.")


def test_forward_arranges_clean_then_masked_in_input_order(model_of):
    model = model_of("scdm")
    ids = boards(LENGTH)
    ids[:, ::2] = MASK
    order = torch.cat([torch.arange(1, LENGTH, 2), torch.arange(0, LENGTH, 2)]).expand(3, -1)
    layout = Layout(order, torch.full((3,), 8), torch.full((3,), LENGTH))
    logits = model(ids).logits
    arranged = logits.gather(1, order[..., None].expand_as(logits))
    assert torch.equal(arranged, model.net.method.logits(model.net, ids, layout))
    # Masked slots that are left out are latent tokens that the input does not have.
    given, places = boards(5), torch.tensor([*range(5), 9, 12, 7])
    layout = Layout(places.expand(3, -1), torch.full((3,), 5), torch.full((3,), 8))
    arranged = model.net.method.logits(model.net, given, layout)
    assert torch.equal(model(given[:, places], places).logits, arranged)
    # The order among masked slots matters to a semi-causal model.
    turned = torch.arange(LENGTH - 1, -1, -1)
    permuted = model(ids[:, turned], position_ids=turned).logits[:, turned]
    first = torch.tensor([*range(1, LENGTH, 2), 14])
    assert torch.allclose(permuted[:, 14], model(ids[:, first], first).logits[:, -1], atol=1e-4)
    assert not torch.allclose(permuted[:, 14], logits[:, 14], atol=1e-3)


def test_padding_and_slots_beyond_a_window_have_no_logits(model_of):
    model = model_of("scdm")
    ids = boards(3)
    inside = torch.arange(LENGTH).expand(3, -1) < 9
    padded = model(
        ids.masked_fill(~inside, 99),
        position_ids=torch.where(inside, torch.arange(LENGTH), 99),
        attention_mask=inside.long(),
    ).logits
    assert torch.allclose(padded[:, :9], model(ids[:, :9]).logits, atol=1e-5)
    assert (padded[:, 9:, :-1] == 0).all()
    assert (padded[..., -1] == -torch.inf).all()

    model = model_of(replace(lt.METHODS["ar-mtp"], window=2))
    logits = model(boards(5)).logits
    assert (logits[:, 7:, :-1] == 0).all()
    assert torch.allclose(logits[:, :7], model(boards(5)[:, :7]).logits, atol=1e-5)


def test_shifted_readout_predicts_tokens_from_those_before(model_of):
    model = model_of("arm")
    complete, started = boards(LENGTH), boards(6)
    logits = model(complete).logits
    changed = complete.clone()
    changed[:, 8] = (changed[:, 8] + 1) % MASK
    assert torch.equal(model(changed).logits[:, :9], logits[:, :9])
    assert not torch.equal(model(changed).logits[:, 9], logits[:, 9])
    assert torch.allclose(model(started).logits[:, :7], logits[:, :7], atol=1e-5)
    assert (model(started).logits[:, 7:, :-1] == 0).all()
    expected = -logits.log_softmax(-1).gather(2, complete[..., None]).mean()
    assert torch.allclose(model(complete, labels=complete).loss, expected)
    complete[:, 3] = MASK
    with refused("not a prefix"):
        model(complete)


def test_the_loss_is_of_masked_slots_that_have_a_label(model_of):
    model = model_of("mdm")
    ids, labels = boards(10), boards(LENGTH)
    nats = -model(ids).logits.log_softmax(-1).gather(2, labels[..., None])[..., 0]
    assert torch.allclose(model(ids, labels=labels).loss, nats[:, 10:].mean())
    labels[:, 12:] = -100
    value = model(ids, labels=labels).loss
    assert torch.allclose(value, nats[:, 10:12].mean())
    (gradient,) = torch.autograd.grad(value, [model.net.embedding.weight])
    assert gradient.any()
    assert model(ids, labels=torch.full_like(ids, -100)).loss == 0
    with refused("weights: there are no labels", "label_smoothing_factor=0"):
        model(ids, weights=torch.ones(ids.shape))


SETTINGS = {
    "scdm": (
        {"latents": "all", "candidates": "growing", "temperature": 0.5},
        lt.Decoding(lt.growing, "all", temperature=0.5),
    ),
    "mdm": ({"order": "entropy", "threshold": 0.5}, lt.Decoding(8, confidence=lt.entropy, threshold=0.5)),
    "esolm": (
        {"order": "left_to_right", "latents": 2, "top_p": 0.9, "latent_policy": "random"},
        lt.Decoding(1, latents=2, order=lt.left_to_right, top_p=0.9, latent_policy=lt.random),
    ),
    "arm": ({"temperature": 0}, lt.Decoding(1, temperature=0)),
}


def test_a_generation_config_sets_what_generate_does(model_of, tmp_path):
    model, ids = model_of("scdm"), boards(3)
    config = GenerationConfig(latents=3, candidates=2, temperature=0.5, do_sample=True, eos_token_id=1)
    settings = {"latents": 3, "candidates": 2, "temperature": 0.5, "seed": 4}
    expected = model.generate(ids, **settings).sequences
    assert torch.equal(model.generate(ids, config, seed=4).sequences, expected)
    assert not torch.equal(model.generate(ids, config, seed=4, temperature=2.0).sequences, expected)
    greedy = model.generate(ids, GenerationConfig(do_sample=False)).sequences
    assert torch.equal(greedy, model.generate(ids, temperature=0).sequences)

    # Names of transformers, stored in a directory and read from it
    model.generation_config = GenerationConfig(
        t_max=0.8, t_min=0.4, sampler_config={"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1}
    )
    model.save_pretrained(tmp_path / "model")
    model.generation_config = None
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "model")
    bound = {"t_max": 0.8, "t_min": 0.4, "entropy_bound": 0.1, "candidates": "all"}
    assert torch.equal(again.generate(ids).sequences, model.generate(ids, **bound).sequences)
    again.generation_config = None
    again.save_pretrained(tmp_path / "model")
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "model").generation_config is None
    with refused("num_beams=2", "no meaning"):
        model.generate(ids, GenerationConfig(num_beams=2))


def test_a_generation_config_of_an_earlier_model_goes_with_it(own, model_of, tmp_path):
    folder = tmp_path / "model"
    own.generation_config = GenerationConfig(latents=3)
    own.save_pretrained(folder)
    export_model(lt.from_pretrained(folder), folder)  # the same model
    assert LatentTokensForMaskedLM.from_pretrained(folder).generation_config.latents == 3
    export_model(model_of("mdm").net, folder)
    assert LatentTokensForMaskedLM.from_pretrained(folder).generation_config is None


@pytest.mark.parametrize("name", SETTINGS)
def test_generate_gives_our_samples(model_of, name):
    model, (settings, decoding) = model_of(name), SETTINGS[name]
    ids = boards(3)
    made = lt.generate(model.net, model.net.method, ids, ids != MASK, decoding, 11)
    output = model.generate(ids, **settings, seed=11)
    assert torch.equal(output.sequences, made.tokens)
    assert torch.equal(output.order, made.order)
    assert torch.equal(output.tokens_processed, made.tokens_processed)
    assert output.forward_passes == made.forward_passes
    assert torch.allclose(output.tokens_per_forward, 13 / made.passes)


def test_padding_stays_and_rows_of_any_length_are_filled(model_of):
    model = model_of("scdm")
    ids, lengths = boards(2), torch.tensor([16, 9, 12])
    inside = torch.arange(LENGTH) < lengths[:, None]
    padded = ids.masked_fill(~inside, 77)
    settings = {"candidates": 4, "tokens_per_step": 3}
    sequences = model.generate(padded, attention_mask=inside.long(), **settings).sequences
    decoding = lt.Decoding(**settings)
    made = lt.generate(model.net, model.net.method, ids, ids != MASK, decoding, 0, lengths=lengths)
    assert torch.equal(sequences[inside], made.tokens[inside])
    assert (sequences[~inside] == 77).all()


def test_relevant_latent_tokens_are_of_the_task_with_its_settings(pico, tmp_path):
    task = replace(lt.TASKS["countdown-3"], padding="paper")
    net = lt.Transformer(pico.size, task.vocab_size, task.length)
    net.method = lt.METHODS["scdm"]
    export_model(net, tmp_path, task=task)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path)
    ids = torch.full((1, task.length), task.vocab_size)
    assert model.generate(ids, latents=2, latent_policy="relevant").sequences.shape == ids.shape


def test_every_step_is_passed_on(model_of):
    model, steps = model_of("scdm"), []
    ids = boards(4)
    output = model.generate(ids, latents=3, candidates=5, tokens_per_step=5, on_step=steps.append)
    assert [int((step.chosen >= 0).sum()) for step in steps] == [15, 15, 6]
    replayed = ids.clone()
    for step in steps:
        for index, row in enumerate(step.rows.tolist()):
            positions = step.chosen[index][step.chosen[index] >= 0]
            replayed[row, positions] = step.tokens[index, : len(positions)]
    assert torch.equal(replayed, output.sequences)


def test_settings_and_positions_out_of_range_are_refused(model_of):
    for settings, message in (
        ({"latent": 3}, "setting=latent: must be one of latents"),
        ({"latents": 3}, "latents=3 is not supported by mdm"),
        ({"latent_policy": "random"}, "latent_policy=random is not supported by mdm"),
        ({"attention_mask": torch.arange(LENGTH).expand(3, -1) > 3}, "padding must be at the end"),
    ):
        with refused(message):
            model_of("mdm").generate(boards(3), **settings)
    with refused("input_ids (16,): must be (B, L)", "Use input_ids[None]"):
        model_of("mdm").generate(boards(3)[0])
    for positions in (torch.arange(1, 17), torch.zeros(16, dtype=torch.long)):
        with refused("position_ids: must be different and from 0 to 15. Cut the input."):
            model_of("scdm")(boards(3), positions)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])  # uint8 is that of a data set
def test_inputs_have_any_type_of_whole_numbers(dtype, model_of):
    model, ids = model_of("scdm"), boards(3)
    labels = ids.masked_fill(ids == MASK, 0)
    expected = model(ids, labels=labels)
    output = model(ids.to(dtype), torch.arange(16, dtype=dtype), labels=labels.to(dtype))
    assert torch.equal(output.logits, expected.logits)
    assert output.loss == expected.loss
    assert torch.equal(model.generate(ids.to(dtype), seed=1).sequences, model.generate(ids, seed=1).sequences)


@pytest.mark.parametrize(("kind", "dropout"), [("labels", 0.2), ("loss", 0.0)])
@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer versions of transformers have another name
def test_gradient_checkpointing_saves_memory_alone(own, kind, dropout):
    net = lt.Transformer(lt.Size(width=32, heads=2, layers=6), MASK, LENGTH, dropout=dropout)
    net.method = own.net.method
    own.net = net
    own.train()
    ids = boards(8)

    def step():
        torch.manual_seed(1)
        if kind == "labels":
            return own(ids, labels=torch.zeros_like(ids)).loss
        return lt.loss(net, net.method, ids % MASK, ids != MASK, torch.Generator().manual_seed(1))

    def measure():
        """Return the bytes that autograd keeps for the backward pass, the loss, and the gradients."""
        saved = []

        def keep(tensor):
            saved.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            value = step()
        own.zero_grad()
        value.backward()
        return sum(saved), value.detach(), [weight.grad.clone() for weight in net.parameters()]

    plain_bytes, plain_loss, plain_gradients = measure()
    own.gradient_checkpointing_enable()
    num_bytes, value, gradients = measure()
    assert num_bytes < plain_bytes / 3
    assert torch.equal(value, plain_loss)
    assert all(map(torch.equal, gradients, plain_gradients))
    own.eval()
    samples = [own.generate(ids, seed=1).sequences for _ in range(2)]
    assert torch.equal(*samples)
