"""Dialogues: a prompt that is given and a response that is learned, and the chat template of a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latent_tokens.checks import check_package, first_line, one_line
from latent_tokens.configs import Split
from latent_tokens.data.config import DataConfig
from latent_tokens.data.corpus import (
    check_text_config,
    has_fields,
    key_of,
    num_held_out,
    rows_of,
    split_of,
    text_entries,
    written_task,
)
from latent_tokens.data.loading import write_split
from latent_tokens.progress import Report
from latent_tokens.storage import Json, write_atomic
from latent_tokens.tasks import SPLITS, Examples, Language, Text
from latent_tokens.tasks.base import evenly
from latent_tokens.tasks.text.tokenizer import CHAT_TEMPLATE, Ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FIX = (
    "Write a text each as prompt and response, "
    "or messages with a role and a content, the last one of the assistant. "
    "Roles are system, developer, user, assistant and tool."
)

ROLES = ("system", "developer", "user", "assistant", "tool")
Message = Mapping[str, Any]
"""A turn of a dialogue: {"role": "user", "content": "Hello"}."""


def has_dialogues(config: DataConfig) -> bool:
    """Return whether a source is read as dialogues: by the fields of its first record.

    These are `messages`, or `prompt` and `response`. A record with a `text` is a document, and
    `field` asks for documents.
    """
    if config.field is not None or not has_fields(Path(str(config.source))):
        return False
    names = next(rows_of(Path(str(config.source))), {}).keys()
    return "text" not in names and ("messages" in names or {"prompt", "response"} <= names)


def write_dialogues(config: DataConfig, folder: Path, report: Report) -> dict[str, Json]:
    """Write arrays like those of puzzles and the tokenizer, and return the manifest's entries.

    A sequence is an end of document, the prompt, the response, and ends up to L. The first end and
    the prompt are given. All the rest is learned, so that a sample decides its own length. Raise
    ValueError as `write_documents`.
    """
    check_text_config(config)
    source = Path(str(config.source))
    task = written_task(config, folder, training_texts(source))
    name = config.tokenizer or "bytes"
    chat = None if name.startswith("bpe:") else chat_tokenizer(Text(task.length, name))
    if chat is not None:
        write_atomic({folder / CHAT_TEMPLATE: template_of(chat)})

    # Tokenize the dialogues, and thin out the held-out splits.
    pairs, left_out = tokenized(source, task, chat, report)
    entries: dict[str, Json] = {}
    for split in SPLITS:
        kept = pairs[split][: config.num_train]
        if split != "train":
            which = evenly(len(pairs[split]), num_held_out(config, split))
            kept = [pairs[split][number] for number in which]
        if kept:
            entries[split] = write_split(folder, split, as_examples(kept, task))
    if "train" not in entries:
        long = f"{left_out['too_long']:,} are longer than {task.length} tokens"
        problem = f"{long}, and {left_out['empty']:,} have an empty prompt or response"
        fix = "Use a larger length, or more dialogues"
        raise ValueError(f"{source}: no dialogue to train on, {problem}. {fix}.")
    return text_entries(task, source, left_out, entries)


def dialogues(source: Path) -> Iterator[tuple[Split, list[Message]]]:
    """Yield the messages of each record, with the split of all but the last one: the prompt's.

    Raise ValueError if a record has no text or a role that templates do not know, or its last
    message is not by the assistant.
    """
    for number, row in enumerate(rows_of(source), start=1):
        messages: Any = row.get("messages")
        if "messages" not in row:
            messages = [
                {"role": "user", "content": row.get("prompt")},
                {"role": "assistant", "content": row.get("response")},
            ]
        try:
            prompt = "\n\n".join(message["content"] for message in messages[:-1])
            roles = [message["role"] for message in messages]
            is_dialogue = roles[-1] == "assistant" and isinstance(messages[-1]["content"], str)
            is_dialogue &= all(role in ROLES for role in roles)
        except (TypeError, KeyError, IndexError):
            is_dialogue = False
        if not is_dialogue:
            shown = one_line(json.dumps(row, default=str), 100)
            raise ValueError(f"{source}: record {number:,} is not a dialogue, {shown}. {FIX}")
        yield split_of(prompt), messages


def training_texts(source: Path) -> Iterator[str]:
    """Yield the messages of the training split, from which a tokenizer is learned."""
    for split, messages in dialogues(source):
        if split == "train":
            yield from (message["content"] for message in messages)


def tokenized(
    source: Path, task: Text, chat: PreTrainedTokenizerBase | None, report: Report
) -> tuple[dict[Split, list[tuple[Ids, Ids]]], dict[str, int]]:
    """Return the tokens of prompts and responses by split, and how many records were left out."""
    pairs: dict[Split, list[tuple[Ids, Ids]]] = {split: [] for split in SPLITS}
    left_out = {"empty": 0, "repeated": 0, "too_long": 0}
    seen: set[bytes] = set()
    for split, messages in dialogues(source):
        report(1)
        *context, answer = messages
        key = key_of(json.dumps(messages, default=str))
        if not answer["content"].strip() or not any(m["content"].strip() for m in context):
            left_out["empty"] += 1
        elif key in seen:
            left_out["repeated"] += 1
        else:
            # The prompt is tokenized by itself, as that of a sample is.
            seen.add(key)
            texts = [rendered(chat, context), answer["content"]]
            prompt, response = task.coder.encode(texts)
            if len(prompt) + len(response) + 2 <= task.length:  # with an end on both sides
                pairs[split].append((prompt, response))
            else:
                left_out["too_long"] += 1
    return pairs, left_out


def as_examples(pairs: Sequence[tuple[Ids, Ids]], task: Text) -> Examples:
    """Return prompts, which are given, and responses as examples of L positions."""
    tokens = np.full((len(pairs), task.length), task.coder.end, task.token_type)
    known = np.zeros(tokens.shape, np.bool_)
    for row, is_known, (prompt, response) in zip(tokens, known, pairs, strict=True):
        start = 1 + len(prompt)
        row[1:start] = prompt
        row[start : start + len(response)] = response
        is_known[:start] = True
    return Examples.of(tokens, known)


def chat_tokenizer(task: Text) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of a text as transformers opens it, or None if it has no chat template."""
    if task.tokenizer == "bytes":
        return None
    check_package("transformers", "text", f"tokenizer={task.tokenizer}")
    from transformers import PreTrainedTokenizerFast

    where = Path(task.tokenizer) if task.folder is None else task.folder
    tokenizer = PreTrainedTokenizerFast.from_pretrained(where.parent if where.is_file() else where)
    return tokenizer if tokenizer.chat_template else None


def rendered(chat: PreTrainedTokenizerBase | None, messages: Sequence[Message]) -> str:
    """Return messages as the chat template renders them, up to where the assistant begins to answer.

    Without a template, one message is its own text. Raise ValueError for more, or if the template
    refuses them.
    """
    if chat is None and len(messages) > 1:
        problem = f"{len(messages)} before the response, and the tokenizer has no chat template"
        raise ValueError(f"messages: {problem}. Use --tokenizer with one that has.")
    if chat is None:
        return str(messages[0]["content"])
    turns = [dict(message) for message in messages]
    try:
        return str(chat.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template raises errors of its own
        raise ValueError(f"chat template: {first_line(error)}. Change the messages.") from None


def user_prompt(task: Language, text: str | None) -> str:
    """Return a text as the chat template of a model's task renders the message of a user.

    Raises:
        ValueError: There is no text, or no chat template.

    Example:
        model.generate(user_prompt(model.task, "Hello"))
    """
    chat = chat_tokenizer(task) if isinstance(task, Text) else None
    if chat is None or text is None:
        problem = "is for the prompt of a text model whose tokenizer has a chat template"
        raise ValueError(f"chat=True: {problem}. Add --prompt TEXT, or leave it out.")
    return rendered(chat, [{"role": "user", "content": text}])


def template_of(chat: PreTrainedTokenizerBase) -> bytes:
    """Return the chat template as a file that also sets the special tokens it names.

    A data set keeps no other file that names them.
    """
    stored: Any = chat.chat_template
    template = str(stored.get("default", "") if isinstance(stored, dict) else stored)
    header = "".join(
        f"{{% set {name} = {json.dumps(str(token))} %}}\n"
        for name, token in chat.special_tokens_map.items()
        if name in template
    )
    return (header + template).encode()
