"""Text as the tokens that a model receives: those of our text task, or of a tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from latent_tokens.checks import first_line
from latent_tokens.tasks import Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ChatMessage = dict[str, str]


class Codec(Protocol):
    """Text as the tokens that a model receives."""

    @property
    def name(self) -> str:
        """The name of the tokenizer."""

    @property
    def starts_inputs(self) -> bool:
        """Whether every input begins with `start`, as in training."""

    @property
    def start(self) -> int:
        """The token in front of a text."""

    @property
    def end(self) -> int:
        """The token that ends a text."""

    def encode(self, text: str, add_special_tokens: bool | None = None) -> list[int]:
        """Return the tokens of a text. With None, the tokenizer decides whether special tokens are added."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""

    def chat(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        """Return a chat as one text. Raise ValueError if the model has no chat template."""


@dataclass(frozen=True)
class TextCodec:
    """The tokens of our text task. Each input begins with an end of document, as in training."""

    task: Text
    starts_inputs = True

    @property
    def name(self) -> str:
        return f"{self.task.tokenizer} ({self.task.fingerprint})"

    @property
    def start(self) -> int:
        return self.task.coder.end

    @property
    def end(self) -> int:
        return self.task.coder.end

    def encode(self, text: str, add_special_tokens: bool | None = None) -> list[int]:
        (ids,) = self.task.coder.encode([text])
        return [self.start, *ids.tolist()] if add_special_tokens else ids.tolist()

    def decode(self, ids: Sequence[int]) -> str:
        return self.task.coder.decode(ids)

    def chat(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        raise ValueError("apply_chat_template: this model has no chat template. Leave it out.")


@dataclass(frozen=True)
class TransformersCodec:
    """The tokens of a tokenizer of transformers, as the class `hf` of lm-eval uses it.

    Raises:
        ValueError: the tokenizer has no token that ends a text.
    """

    tokenizer: PreTrainedTokenizerBase
    starts_inputs = False

    def __post_init__(self) -> None:
        if self.tokenizer.eos_token_id is None:
            raise ValueError("tokenizer: has no EOS token. Set tokenizer.eos_token.")

    @property
    def name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    @property
    def start(self) -> int:
        bos = self.tokenizer.bos_token_id
        return int(self.end if bos is None else bos)

    @property
    def end(self) -> int:
        return int(self.tokenizer.eos_token_id)

    def encode(self, text: str, add_special_tokens: bool | None = None) -> list[int]:
        if add_special_tokens is None and text.startswith(str(self.tokenizer.decode([self.start]))):
            add_special_tokens = False
        settings = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return [int(token) for token in self.tokenizer.encode(text, **settings)]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def chat(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        if not self.tokenizer.chat_template:
            raise ValueError("apply_chat_template: this model has no chat template. Leave it out.")
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )


def read_codec(folder: Path) -> TransformersCodec:
    """Return the tokenizer of a directory of transformers. Raise ValueError if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # of files that others wrote: anything
        raise ValueError(
            f"{folder}: its tokenizer cannot be read ({first_line(error)}). Copy it again."
        ) from None
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"{folder}: its tokenizer has no EOS token. Name eos_token in tokenizer_config.json."
        )
    return TransformersCodec(tokenizer)
