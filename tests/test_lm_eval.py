"""lm-eval: the scores of an autoregressive model are those of lm-eval's own class, others are exact.

lm-eval is imported when a test runs, because its import takes seconds.
"""

import json
import math
import shlex
import sys
import tomllib
from copy import copy
from functools import partial
from importlib import import_module
from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import latent_tokens as lt
from helpers.documentation import ROOT, blocks, commands
from helpers.refusals import refused, refused_command
from helpers.tiny_models import tiny_model
from latent_tokens.cli import main
from latent_tokens.commands.lm_eval import find_tasks, likelihood_lines
from latent_tokens.harness.lm_eval import LikelihoodTotal, before_stop, generation_settings, is_decided
from latent_tokens.sizes import Size

LENGTH = 16  # of the text model
LETTERS = ["<pad>", "<s>", "</s>", *"abcdefghi"]
TASKS = {
    "choice": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
""",
    "answers": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{text}}"
generation_kwargs: {until: [h], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}


def letters(count, seed=0):
    return "".join(np.random.default_rng((seed, count)).choice(list("abcdefghi"), count))


def answers_of(lm, kind, *arguments):
    """Return the answers of a model to requests of one type."""
    requests = [SimpleNamespace(args=each) for each in arguments]
    return getattr(lm, kind)(requests, disable_tqdm=True)


def tokenizer_of(begins=False):
    """A token per letter. If it `begins`, every text begins with BOS."""
    inner = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(LETTERS)}, "<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if begins:
        inner.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, name_or_path="letters", **names)


@pytest.fixture(scope="module")
def lm_class():
    from latent_tokens import LatentTokensLM

    return LatentTokensLM


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory of transformers."""
    path = tmp_path_factory.mktemp("llama")
    tiny_model("llama").save_pretrained(path)
    tokenizer_of().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def text_net():
    torch.manual_seed(0)
    net = lt.Transformer(Size(32, 2, 2), 257, LENGTH, "both").eval()
    net.method = lt.METHODS["esolm"]
    return net


@pytest.fixture
def tasks(tmp_path):
    """A directory with one task of each type of request, over the same documents."""
    documents = [
        {"question": letters(2 + n), "choices": [letters(1, n), letters(3, n)], "text": letters(30 + n)}
        for n in range(4)
    ]
    file = tmp_path / "documents.jsonl"
    file.write_text("\n".join(map(json.dumps, documents)))
    for name, lines in TASKS.items():
        files = f"{{data_files: {{test: {file}}}, cache_dir: {tmp_path / 'cache'}}}"
        source = f"dataset_path: json\ndataset_kwargs: {files}\ntest_split: test\n"
        (tmp_path / f"{name}.yaml").write_text(f"task: {name}\n{source}{lines}")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("family", "begins"), [("llama", False), ("gpt2", True)])
def test_scores_of_arm_equal_those_of_lm_evals_hf(lm_class, family, begins):
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(
        tiny_model(family), tokenizer=tokenizer_of(begins), batch_size=2, max_length=32, device="cpu"
    )
    net = lt.HuggingFaceDenoiser(tiny_model(family), None, "shifted")
    ours = lm_class(net, tokenizer_of(begins), batch_size=3)
    greedy = answers_of(theirs, "generate_until", ("abc", {"until": [], "max_gen_toks": 3}))[0]
    pairs = [(letters(n), letters(3, 1)) for n in (1, 5, 29, 40)]
    pairs += [("", letters(4)), ("abc", greedy.replace(" ", "")), ("", "a")]
    expected, scores = (answers_of(lm, "loglikelihood", *pairs) for lm in (theirs, ours))
    assert [score for score, _ in scores] == pytest.approx([score for score, _ in expected], abs=1e-4)
    assert [flag for _, flag in scores] == [flag for _, flag in expected]
    assert scores[5][1]

    texts = [(letters(n),) for n in (3, 32, 33, 90)]
    expected, scores = (answers_of(lm, "loglikelihood_rolling", *texts) for lm in (theirs, ours))
    assert scores == pytest.approx(expected, abs=1e-4)

    prompts = [(letters(n), {"until": ["h", "i"], "max_gen_toks": 8}) for n in (1, 2, 7, 8, 31)]
    expected, answers = (answers_of(lm, "generate_until", *prompts) for lm in (theirs, ours))
    assert answers == expected
    assert len(set(expected)) > 2


@pytest.mark.slow
def test_command_prints_the_results_of_lm_eval(folder, tasks, capsys):
    out = tasks / "results.json"
    options = ["--include-path", str(tasks), "--limit", "3", "--out", str(out)]
    assert main(["lm-eval", str(folder), "--tasks", *TASKS, *options]) == 0
    printed = capsys.readouterr().out
    written = json.loads(out.read_text())
    config, results = written["config"], written["results"]
    assert (config["method"], config["order"], config["latents"]) == ("arm", "left_to_right", 0)
    assert results["choice"]["acc,none"] in (0, 1 / 3, 2 / 3, 1)
    assert results["answers"]["exact_match,none"] == 0
    row = config["likelihood"]["loglikelihood_rolling"]
    assert row["bits_per_byte"] == pytest.approx(results["rolling"]["bits_per_byte,none"], abs=1e-4)
    assert f"{row['bits_per_byte']:.4f} bits per byte, 93 tokens of 3 requests" in printed


def test_score_of_a_text_model_is_the_mean_over_orders(lm_class, text_net):
    lm = lm_class(text_net, lt.Text(LENGTH), latents=2, orders=3, suffix=0, batch_size="auto:4")
    (score, is_greedy), (of_empty, _) = answers_of(lm, "loglikelihood", ("ab", "cde"), ("", "x"))
    assert not is_greedy
    tokens = torch.tensor([[256, *b"abcde"]] * 6)
    order = torch.tensor([[0, 1, 2, *each] for each in permutations(range(3, 6))])
    counts = torch.full((6,), 3), torch.full((6,), 6)
    every = lt.log_likelihood(text_net, text_net.method, tokens, order, *counts, 2).sum(1)
    assert every.min() <= score <= every.max()
    ordered = lm_class(text_net, lt.Text(LENGTH), latents=2, order="left_to_right", suffix=0)
    ((straight, _),) = answers_of(ordered, "loglikelihood", ("ab", "cde"))
    assert straight == pytest.approx(every[0].item(), abs=1e-5)
    sequence = torch.tensor([[256, 120]]), torch.tensor([[0, 1]]), torch.tensor([1]), torch.tensor([2])
    first = lt.log_likelihood(text_net, text_net.method, *sequence, 2)
    assert of_empty == pytest.approx(first.sum().item(), abs=1e-5)
    answers_of(ordered, "loglikelihood", ("ab ", "c"))  # of which lm-eval scores " c"
    of_ordered = ordered.get_model_info()["likelihood"]["loglikelihood"]
    assert (of_ordered["tokens"], of_ordered["bytes"]) == (5, 5)
    info = lm.get_model_info()
    assert (info["method"], info["order"], info["orders"], info["latents"]) == ("esolm", "uniform", 3, 2)
    row = info["likelihood"]["loglikelihood"]
    assert row["nats_per_token"] == pytest.approx(-(score + of_empty) / 4)
    assert row["nats_per_token_half_interval"] > 0


def test_likelihood_of_all_requests_by_hand():
    """Along two orders, 5 and 7 nats for 3 tokens, of 2 + 3 bytes. Their means have t = 12.706."""
    total = LikelihoodTotal()
    total.add((-2.0, -4.0), 2, "\u00e9")
    total.add((-3.0, -3.0), 1, "\u65e5")
    row = total.row()
    assert (row["requests"], row["tokens"], row["bytes"]) == (2, 3, 5)
    assert (row["nats_per_token"], row["bits_per_byte"]) == pytest.approx((2, 6 / 5 / math.log(2)))
    half = 12.706 / 3  # the standard error of 5/3 and 7/3 is 1/3
    halves = (row["nats_per_token_half_interval"], row["bits_per_byte_half_interval"])
    assert halves == pytest.approx((half, half * 3 / 5 / math.log(2)))


def test_windows_of_a_long_text_predict_every_token_once(lm_class, text_net):
    lm = lm_class(text_net, lt.Text(LENGTH), order="left_to_right", latents=1)
    text = "the latent tokens of a model with 16 positions"
    score, of_empty = answers_of(lm, "loglikelihood_rolling", (text,), ("",))
    assert of_empty == 0
    windows = lm.windows(text)
    assert b"".join(bytes(tokens) for _, tokens in windows).decode() == text
    assert [len(tokens) for _, tokens in windows] == [13, 13, 13, 7]  # and one masked position for n = 1
    inputs = [lm.model.fitted(context, len(tokens), suffix=1) for context, tokens in windows]
    assert [len(given) for given in inputs] == [1, 2, 2, 8]
    assert all(given[0] == 256 for given in inputs)
    pairs = [(bytes(context).decode("latin1"), bytes(tokens).decode()) for context, tokens in windows[1:]]
    parts = answers_of(lm, "loglikelihood", ("", text[:13]), *pairs)
    assert score == pytest.approx(sum(part for part, _ in parts), abs=1e-4)
    row = lm.get_model_info()["likelihood"]["loglikelihood_rolling"]
    assert row["requests"] == 1
    assert row["bits_per_byte"] == pytest.approx(-score / math.log(2) / len(text))
    assert row["bits_per_byte_half_interval"] is None


def test_a_full_window_keeps_the_latent_tokens_of_its_last_token(lm_class, text_net):
    lm = lm_class(text_net, lt.Text(LENGTH), order="left_to_right", latents=4)
    ((score, _),) = answers_of(lm, "loglikelihood", ("a context of more than 16", "x"))
    given = [256, *b"re than 16"]
    tokens = torch.tensor([[*given, ord("x"), 0, 0, 0, 0]])
    counts = torch.tensor([len(given)]), torch.tensor([len(given) + 5])
    order = torch.arange(len(given) + 5)[None]
    expected = lt.log_likelihood(text_net, text_net.method, tokens, order, *counts, 4)[0, len(given)]
    assert score == pytest.approx(expected.item(), abs=1e-5)
    with refused("suffix of 15", "suffix=0"):
        answers_of(lm_class(text_net, lt.Text(LENGTH), latents=15), "loglikelihood", ("a", "x"))


@pytest.mark.parametrize("order", ["uniform", "left_to_right"])
def test_answers_do_not_depend_on_the_batch(lm_class, text_net, order):
    settings = {"until": ["e"], "max_gen_toks": 6, "do_sample": True, "temperature": 0.7}
    prompts = [(prompt, settings) for prompt in ("a", "a", "abc", "a long prompt that is cut")]
    model = {"model": text_net, "tokenizer": lt.Text(LENGTH), "order": order, "latents": 2, "seed": 3}
    alone, together = (
        answers_of(lm_class(**model, batch_size=size), "generate_until", *prompts) for size in (1, 4)
    )
    assert alone == together
    assert alone[0] != alone[1]
    assert all("e" not in answer for answer in alone)


@pytest.mark.parametrize(
    ("order", "generation"),
    [
        ("uniform", {"candidates": 4}),
        ("uniform", {"confidence": "entropy"}),
        ("uniform", {"threshold": 0.2}),
        ("left_to_right", {}),
        ("left_to_right", {"tokens_per_step": 3}),
        ("left_to_right", {"entropy_bound": 3.0}),
        ("left_to_right", {"factor": 4.0}),
    ],
    ids=str,
)
def test_answers_that_end_early_are_those_of_generate(lm_class, order, generation):
    net = lt.HuggingFaceDenoiser(tiny_model("llama"), None)
    net.method = lt.METHODS["esolm"]
    lm = lm_class(net, tokenizer_of(), order=order, latents=2, seed=3, **generation)
    passes = []
    net.model.register_forward_pre_hook(lambda model, inputs: passes.append(1))
    until = ["h", "b"]
    settings = {"until": until, "max_gen_toks": 16, "do_sample": True}
    prompts = ["a", "bcd", "ie", "hh"]
    answers = answers_of(lm, "generate_until", *((prompt, settings) for prompt in prompts))
    num_early = len(passes)

    is_ruled = generation.keys() & {"threshold", "entropy_bound", "factor"}
    ranks = is_ruled or "confidence" in generation
    decoding = generation if ranks else {"candidates": 1, **generation}
    schedule = {"uniform": lt.any_order, "left_to_right": lt.left_to_right}[order]
    settings = {"seed": 3, "latents": 2, "order": schedule, **decoding}
    expected = []
    for number, prompt in enumerate(prompts):
        given = lm.tok_encode(prompt)
        tokens = torch.tensor([[*given, *[0] * 16]])
        known = torch.arange(tokens.shape[1])[None] < len(given)
        generated = lt.generate(net, None, tokens, known, rows=torch.tensor([number]), **settings)
        ids = generated.tokens[0, len(given) :].tolist()
        ids = ids[: ids.index(2)] if 2 in ids else ids  # the end of the text
        expected.append(before_stop(lm.tokenizer.decode(ids, skip_special_tokens=True), until))
    assert answers == expected
    assert len(set(answers)) > 1
    assert order == "uniform" or num_early < 16
    assert not is_ruled or generated.forward_passes < 16
    assert lm.get_model_info()["generation"] == decoding


def test_every_token_that_ends_a_text_ends_an_answer(lm_class):
    prompt = (letters(7), {"until": [], "max_gen_toks": 8})

    def answer(**config):
        net = lt.HuggingFaceDenoiser(tiny_model("llama"), None, "shifted")
        for name, ends in config.items():
            getattr(net.model, name).eos_token_id = ends
        (text,) = answers_of(lm_class(net, tokenizer_of()), "generate_until", prompt)
        return text.replace(" ", "")

    whole = answer()
    other = whole[4]
    assert other not in whole[:4]
    for name in ("config", "generation_config"):
        assert answer(**{name: [2, LETTERS.index(other)]}) == whole[:4]


def test_decided_text_stays_the_same_whatever_follows():
    texts = list(map("".join, product("abc", repeat=6)))
    for until in (["b"], ["bc", "ab"], ["b", "abc"], ["abc", "b"], ["ca", "ab", "b"], ["aa", "a"]):
        count = 0
        for text, end in product(texts, range(7)):
            if is_decided(text[:end], until):
                count += 1
                assert before_stop(text[:end], until) == before_stop(text, until)
        assert count
    assert not is_decided("abc", [])
    assert is_decided("ab", ["b"])


def test_lm_eval_labels_latent_tokens_off_distribution(lm_class, text_net):
    net = copy(text_net)
    net.method = lt.METHODS["mdm"]
    with refused("latents=2 is not supported by mdm"):
        lm_class(net, lt.Text(LENGTH), latents=2)
    lm = lm_class(net, lt.Text(LENGTH), latents=2, order="left_to_right", suffix=0, off_distribution=True)
    answers_of(lm, "loglikelihood", ("ab", "cde"))
    assert len(answers_of(lm, "generate_until", ("a", {"max_gen_toks": 4}))) == 1
    assert lm.get_model_info()["off_distribution"] is True
    (line,) = likelihood_lines(lm.get_model_info())
    assert line.startswith("loglikelihood, mdm n=2 (off-distribution), left_to_right: ")
    as_trained = lm_class(net, lt.Text(LENGTH), latents="all", off_distribution=True)
    assert "off_distribution" not in as_trained.get_model_info()


def test_generation_settings_are_those_of_the_task():
    for values, expected in (
        ({}, ((), 50, 0.0, 1.0)),
        ({"until": "\n", "max_new_tokens": 7, "temperature": 0.5}, (("\n",), 7, 0.5, 1.0)),
        ({"until": ["a", ""], "do_sample": False, "temperature": 0.5}, (("a",), 50, 0.0, 1.0)),
        ({"do_sample": True, "top_p": 0.9}, ((), 50, 1.0, 0.9)),
    ):
        assert tuple(generation_settings(values, max_length=100)) == expected


REFUSED = [
    ({"threshold": 0.9}, "threshold=0.9 is not supported by arm: it predicts one token per step"),
    ({"order": "uniform"}, "order=uniform: this method decodes from left to right"),
    ({"tokenizer": None}, "tokenizer=None: pass the Text"),
    ({"model": "sudoku-6-scdm"}, "learned sudoku-6, which is not text"),
]


def test_settings_and_requests_that_a_model_has_not_are_refused(lm_class, text_net, tmp_path, capsys):
    arm = lt.HuggingFaceDenoiser(tiny_model("llama"), None, "shifted")
    for settings, message in REFUSED:
        with refused(message):
            lm_class(**{"model": arm, "tokenizer": tokenizer_of(), **settings})
    lm = lm_class(text_net, lt.Text(LENGTH))
    for request, message in (
        (("loglikelihood", ("a", "b" * 20)), "20 tokens after the context: the model has 16 positions"),
        (("generate_until", ("a", {"num_beams": 4})), "generation_kwargs=num_beams: must be one of until"),
        (("generate_until", ("a", {"max_gen_toks": 16})), "max_gen_toks=16: the model has 16 positions"),
    ):
        with refused(message):
            answers_of(lm, *request)
    larger = tokenizer_of()
    larger.add_tokens(["j"])
    with refused("token 12 of the tokenizer letters: the network has 12 tokens", "resize_token_embeddings"):
        answers_of(lm_class(arm, larger), "generate_until", ("jab", {"max_gen_toks": 4}))
    with refused("this model has no chat template"):
        lm.apply_chat_template([{"role": "user", "content": "a"}])
    tiny_model("llama").save_pretrained(tmp_path / "llama")
    with refused("llama: has no tokenizer that can be read ("):
        lm_class(tmp_path / "llama")
    tiny_model("bert").save_pretrained(tmp_path)
    tokenizer_of().save_pretrained(tmp_path)
    with refused("is a masked language model, which does not predict the next token. Train it first"):
        lm_class(tmp_path)
    for options, message in (("", "--tasks: is missing"), ("--tasks x --out .", ".: must end with .json")):
        refused_command(capsys, f"lm-eval runs/text {options}", message)


@pytest.mark.slow
def test_unknown_task_and_other_method_are_refused(folder, tasks, monkeypatch, capsys):
    import lm_eval

    command = f"lm-eval {folder} --tasks choice --include-path {tasks} --method scdm"
    refused_command(capsys, command, "--method scdm: the model has another method, arm. Leave it out.")
    # The names of its own tasks take seconds to read.
    only_given = partial(lm_eval.tasks.TaskManager, include_defaults=False)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", only_given)
    with refused("tasks=choise: not a task of lm-eval. Did you mean choice?"):
        find_tasks(("choice", "choise"), tasks)
    assert find_tasks(("choice", "rolling"), tasks).all_tasks == sorted(TASKS)


@pytest.mark.slow
def test_page_of_lm_eval_runs(text_net, tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "lm-eval.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "capitals.yaml").write_text(*blocks(page, "yaml"))
    (tmp_path / "tasks" / "capitals.jsonl").write_text(*blocks(page, "json"))
    lt.save_pretrained(text_net, "runs/manual", about={"task": lt.Text(LENGTH).description()})
    for command in commands(page):
        assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out
    assert "loglikelihood, esolm n=8, uniform, 2 orders: " in printed
    assert "|capitals|" in printed
    config = json.loads((tmp_path / "capitals.json").read_text())["config"]
    assert (config["order"], config["generation"]) == ("left_to_right", {"threshold": 0.9})
    monkeypatch.delattr("lm_eval.tasks")  # a new process has not imported it
    for block in blocks(page, "python"):
        exec(compile(block, "lm-eval.md", "exec"), {})


@pytest.mark.slow
def test_entry_point_is_a_model_of_lm_eval(lm_class, folder):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["lm_eval.models"]["latent-tokens"].partition(":")
    assert getattr(import_module(module), name) is lm_class
    settings = {"batch_size": "auto", "max_batch_size": None, "device": "cpu"}
    lm = lm_class.create_from_arg_string(f"model={folder},latents=0,order=left_to_right", settings)
    assert lm.get_model_info()["method"] == "arm"


def test_missing_lm_eval_names_the_extra(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "lm_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "latent_tokens.harness.lm_eval", raising=False)
    parts = ("lm_eval is not installed", "pip install 'latent-tokens[lm-eval]'")
    refused_command(capsys, "lm-eval runs/text --tasks x", *parts)
