"""Dialogues: the prompt is given, the response is learned, and the chat template travels along."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from helpers.refusals import refused_command
from helpers.runs import tiny_run
from latent_tokens import METHODS, DataConfig, fit, load_data, make_data, tasks
from latent_tokens.cli import main
from latent_tokens.core.objective import loss
from latent_tokens.data.corpus import split_of
from latent_tokens.data.dialogues import user_prompt
from latent_tokens.data.loading import as_tensors
from latent_tokens.tasks.text.task import with_first_given

LENGTH = 16
FEW = {"steps": 1}
VOCAB = ["<s>", "</s>", "<user>", "<bot>", *"0123456789+= "]
TEMPLATE = (
    "{# sums #}\n{{ bos_token }}{% for message in messages %}\n"
    "  {% if message.role == 'system' %}{{ raise_exception('no system') }}{% endif %}\n"
    "<{{ 'user' if message.role == 'user' else 'bot' }}>{{ message.content }}\n"
    "{%- endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
)
SUMS = [{"prompt": f"{n}+{n}=", "response": f"{2 * n}"} for n in range(80)]


def ids(*texts):
    """Return the ids of tokens. Each text is a special token, or characters."""
    return [VOCAB.index(token) for text in texts for token in ([text] if text in VOCAB else text)]


def as_messages(record, *before):
    asked = {"role": "user", "content": record["prompt"]}
    return {"messages": [*before, asked, {"role": "assistant", "content": record["response"]}]}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A token per character, special tokens, and a chat template that names one of them."""
    inner = Tokenizer(models.WordLevel({token: i for i, token in enumerate(VOCAB)}, "0"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(VOCAB[:4])
    folder = tmp_path_factory.mktemp("tokenizer")
    names = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(folder)
    return folder


@pytest.fixture
def make(tmp_path, tokenizer):
    """Return a function that makes a data set of records, and returns its directory."""

    def make(records, name="data", **settings):
        source = tmp_path / f"{name}.jsonl"
        source.write_text("".join(json.dumps(record) + "\n" for record in records))
        settings = {"tokenizer": str(tokenizer), "length": LENGTH, **settings}
        return make_data(DataConfig("text", tmp_path / name, source=str(source), **settings))

    return make


def rows(data):
    """Return the splits, each as {given ids: the other ids}."""
    return {
        split: {
            tuple(row[given].tolist()): row[~given].tolist()
            for row, given in zip(part.tokens, part.known, strict=True)
        }
        for split, part in load_data(data)[1].items()
    }


def test_prompt_is_given_and_response_is_learned_up_to_the_length(make):
    splits = rows(make(SUMS))
    assert sum(map(len, splits.values())) == len(SUMS)
    for record in SUMS:
        given = ids("</s>", "<s>", "<user>", record["prompt"], "<bot>")
        learned = splits[split_of(record["prompt"])][tuple(given)]
        response = ids(record["response"])
        assert learned == response + ids("</s>") * (LENGTH - len(given) - len(response))
    assert rows(make(map(as_messages, SUMS), "messages")) == splits
    earlier = {"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}
    longer = rows(make([as_messages(SUMS[7], *earlier)], "longer", length=32))
    given = ids("</s>", "<s>", "<user>", "1+1=", "<bot>", "2", "<user>", "7+7=", "<bot>")
    (learned,) = [split[tuple(given)] for split in longer.values()]
    assert learned == ids("14") + ids("</s>") * (32 - len(given) - 2)


def test_without_a_chat_template_the_prompt_is_the_text_itself(make):
    task, splits = load_data(make(SUMS, tokenizer="bpe:270"))
    pairs = {}
    for row, given in zip(splits["train"].tokens, splits["train"].known, strict=True):
        assert row[0] == row[-1] == task.coder.end
        pairs[task.decode(row[given][1:])] = task.decode(row[~given]).replace("<|endoftext|>", "")
    learned = [record for record in SUMS if split_of(record["prompt"]) == "train"]
    assert pairs == {record["prompt"]: record["response"] for record in learned}


def test_a_tokenizer_is_learned_from_the_training_split(make):
    trained = [record for record in SUMS if split_of(record["prompt"]) == "train"]
    learned = [
        (make(records, name, tokenizer="bpe:330") / "tokenizer.json").read_bytes()
        for name, records in (("every", SUMS), ("train", trained))
    ]
    assert learned[0] == learned[1]


def test_records_left_out_are_counted(make, capsys, tmp_path, tokenizer):
    prompt = "+".join("1" * 5)  # 9 tokens, 13 with the template and the end before it
    fitting = [{"prompt": prompt, "response": "12"}, {"prompt": prompt, "response": "34"}]
    too_long = {"prompt": prompt, "response": "123"}
    empty = [{"prompt": " ", "response": "1"}, {"prompt": "1", "response": ""}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [*fitting, *fitting, too_long, *empty])))
    options = ["--tokenizer", str(tokenizer), "--length", str(LENGTH), "--out", str(tmp_path / "out")]
    assert main(["data", "text", "--source", str(tmp_path / "a.jsonl"), *options]) == 0
    assert "Left out: 2 repeated, 2 empty, 1 too long" in capsys.readouterr().err
    (examples,) = load_data(tmp_path / "out")[1].values()  # one prompt is in one split
    assert examples.tokens[:, 13:].tolist() == [ids("12", "</s>"), ids("34", "</s>")]


def test_number_of_examples_and_field_are_those_of_documents(make, tmp_path):
    data = make(SUMS, num_train=5, num_validation=2, num_test=0)
    sizes = {split: len(examples.tokens) for split, examples in load_data(data)[1].items()}
    assert sizes == {"train": 5, "validation": 2}
    held_out = [ids(record["response"]) for record in SUMS if split_of(record["prompt"]) == "validation"]
    kept = [learned[: learned.index(ids("</s>")[0])] for learned in rows(data)["validation"].values()]
    assert kept == [held_out[0], held_out[len(held_out) // 2]]  # evenly spaced
    documents = load_data(make(SUMS, "documents", field="prompt"))[1]
    assert not documents["train"].known.any()
    both = load_data(make([{**record, "text": record["prompt"]} for record in SUMS], "both"))[1]
    assert (both["train"].tokens == documents["train"].tokens).all()


SYSTEM = {"role": "system", "content": "Add."}
REFUSED = [  # records, options, what the line names, how it is mended
    ([SUMS[0], {"prompt": "1"}], [], 'record 2 is not a dialogue, {"prompt": "1"}', "prompt and response"),
    ([{"messages": [SYSTEM]}], [], "record 1 is not a dialogue", "the last one of the assistant"),
    ([{"messages": []}], [], "record 1 is not a dialogue", "messages with a role and a content"),
    ([{"messages": "hello"}], [], "record 1 is not a dialogue", "messages with a role and a content"),
    ([as_messages(SUMS[0], SYSTEM)], [], "chat template: no system", "Change the messages"),
    ([as_messages(SUMS[0], SYSTEM)], ["--tokenizer", "bytes"], "messages: 2 before", "Use --tokenizer"),
    ([as_messages(SUMS[0], {"content": "Add."})], [], "record 1 is not a dialogue", "a role and a content"),
    *(
        (
            [as_messages(SUMS[0], {"role": role, "content": "Add."})],
            [],
            "record 1 is not a dialogue",
            "Roles are",
        )
        for role in ("robot", 5, ["user"])
    ),
    (SUMS, ["--length", "4"], "80 are longer than 4 tokens, and 0 have an empty", "Use a larger length"),
    ([{"prompt": " ", "response": "1"}], [], "0 are longer than 256 tokens, and 1 have an empty", "or more"),
]


def test_refused_dialogues_get_one_line(tmp_path, tokenizer, capsys):
    arguments = ["--source", tmp_path / "a.jsonl", "--out", tmp_path / "out", "--tokenizer", tokenizer]
    for records, options, problem, fix in REFUSED:
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
        refused_command(capsys, ["data", "text", *arguments, *options], problem, fix)
        assert not (tmp_path / "out").exists()


class Constant(torch.nn.Module):
    """Its loss depends on the targets alone."""

    mask_id = len(VOCAB)

    def forward(self, tokens, positions, mask):
        return torch.linspace(0, 1, len(VOCAB)).expand(*tokens.shape, -1)


@pytest.mark.parametrize("method", ["scdm", "arm"])
def test_loss_is_of_the_response_and_its_ends_only(make, method):
    examples = load_data(make(SUMS))[1]["train"]
    tokens, known, _ = as_tensors(examples)

    def loss_of(tokens):
        generator = torch.Generator().manual_seed(0)
        return loss(Constant(), METHODS[method], tokens, known, generator).item()

    assert loss_of(torch.where(known, 5, tokens)) == loss_of(tokens)
    last = tokens.clone()
    last[:, -1] = 5
    assert loss_of(last) != loss_of(tokens)
    assert (with_first_given(examples).known == examples.known).all()


@pytest.fixture
def run(make, tmp_path):
    """A run of two steps on sums."""
    return fit(tiny_run(tmp_path / "run", task="text", data=make(SUMS), **FEW))


def test_chat_template_travels_to_run_export_and_samples(run, tokenizer, tmp_path, capsys):
    exported = tmp_path / "exported"
    assert main(["export", str(run), str(exported)]) == 0
    message = [{"role": "user", "content": "1+2="}]
    settings = {"tokenize": False, "add_generation_prompt": True}
    theirs = AutoTokenizer.from_pretrained(tokenizer).apply_chat_template(message, **settings)
    assert theirs == "<s><user>1+2=<bot>"
    assert AutoTokenizer.from_pretrained(exported).apply_chat_template(message, **settings) == theirs
    source = str(tmp_path / "data.jsonl")
    again = make_data(DataConfig("text", tmp_path / "again", source=source, tokenizer=str(run)))
    for folder in (run, exported, again):
        task = tasks.described({"name": "text", "length": LENGTH, "tokenizer": "tokenizer.json"}, folder)
        assert user_prompt(task, "1+2=") == theirs
    given = ids("</s>", "<s>", "<user>", "1+2=", "<bot>")
    for folder in (run, exported):
        capsys.readouterr()
        assert main(["sample", str(folder), "--prompt", "1+2=", "--chat", "--json"]) == 0
        samples = [json.loads(line)["tokens"] for line in capsys.readouterr().out.splitlines()]
        assert [sample[: len(given)] for sample in samples] == [given, given]
        assert np.shape(samples) == (2, LENGTH)


def test_likelihood_is_of_responses_and_evaluate_has_no_prompts(run, tmp_path, capsys):
    data = str(tmp_path / "data")
    test = load_data(data)[1]["test"]
    assert main(["likelihood", str(run), "--data", data, "--orders", "1", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    is_text = ~test.known & (test.tokens != 1)
    assert row["tokens"] == is_text.sum() + len(test)  # and one end each: the others only fill
    assert row["tokens"] < (~test.known).sum()
    assert row["bytes"] == is_text.sum()
    problem = "evaluate generates texts without prompts. Use latent-tokens likelihood"
    refused_command(capsys, f"evaluate {run} --data {data}", problem)


def test_chat_without_a_prompt_or_a_template_gets_one_line(run, make, tmp_path, capsys):
    data = make(SUMS, "bytes", tokenizer="bytes")
    plain = fit(tiny_run(tmp_path / "plain", task="text", data=data, **FEW))
    problem = "--chat: is for the prompt of a text model whose tokenizer has a chat template. Add"
    for options in (f"{plain} --prompt 1", run, "sudoku-6-scdm --prompt 1"):
        refused_command(capsys, f"sample {options} --chat", problem)


@pytest.mark.slow
def test_lm_eval_writes_requests_by_the_chat_template(run, tmp_path):
    from latent_tokens import LatentTokensLM

    (tmp_path / "sums.jsonl").write_text(json.dumps(SUMS[12]) + "\n")
    (tmp_path / "sums.yaml").write_text(
        f"task: sums\ndataset_path: json\ntest_split: test\noutput_type: loglikelihood\n"
        f"dataset_kwargs: {{data_files: {{test: {tmp_path / 'sums.jsonl'}}}, cache_dir: {tmp_path}}}\n"
        "doc_to_text: '{{prompt}}'\ndoc_to_target: '{{response}}'\ntarget_delimiter: ''\n"
        "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
    )
    out = tmp_path / "out.json"
    options = ["--tasks", "sums", "--include-path", str(tmp_path), "--chat", "--out", str(out)]
    assert main(["lm-eval", str(run), *options]) == 0
    measured = json.loads(out.read_text())["config"]["likelihood"]["loglikelihood"]
    lm = LatentTokensLM(run)
    text = lm.apply_chat_template([{"role": "user", "content": "12+12="}])
    given = ids("</s>", "<s>", "<user>", "12+12=", "<bot>")
    assert lm.model.fitted(lm.tok_encode(text), 2) == given
    ((nats, _),) = lm.loglikelihood([SimpleNamespace(args=(text, "24"))], disable_tqdm=True)
    assert measured["nats_per_token"] == pytest.approx(-nats / 2)
