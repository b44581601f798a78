"""latent-tokens import."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from latent_tokens.checks import check_out, first_line

if TYPE_CHECKING:
    from latent_tokens.checkpoints.published import Checkpoint
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.storage import Json
    from latent_tokens.tasks.text.tokenizer import Bytes, Learned

LONGEST_LINE = 300  # characters of the line on ignored weights


@dataclass(frozen=True)
class Import:
    """Convert a published Eso-LM or MDLM checkpoint into a model directory.

    Nothing in the file is executed.
    """

    source: Positional[str]
    """Checkpoint to convert. A Lightning .ckpt, a directory with model.safetensors and config.json, or a name
    on the Hugging Face Hub."""
    out: Positional[Path]
    """Model directory to write. It must be missing or empty."""
    weights: Literal["ema", "raw"] | None = None
    """Weights of a .ckpt to take. ema: the moving average, which the authors evaluate.
    raw: the last weights. Default: ema."""
    method: Literal["mdm", "scdm", "esolm"] | None = None
    """Method of the model. Default: as its own settings state."""
    tokenizer: str | None = None
    """Tokenizer of the model, needed to generate text. A tokenizer.json, a directory with one or with GPT-2's
    two files, or a name on the Hugging Face Hub, such as gpt2. Default: none, and the model computes logits
    and likelihoods in Python only."""


def run_import(command: Import) -> int:
    """Run `latent-tokens import`. Print a summary of the model, and the directory."""
    from latent_tokens.checkpoints.pretrained import fingerprint, save_pretrained
    from latent_tokens.checkpoints.published import import_checkpoint
    from latent_tokens.core.methods import name_of
    from latent_tokens.storage import provenance
    from latent_tokens.tasks.text.tokenizer import read_tokenizer

    check_out(command.out)
    coder = None if command.tokenizer is None else read_tokenizer(command.tokenizer)
    net, imported = import_checkpoint(fetch_source(command.source), command.weights, command.method)
    name = name_of(net.method)
    count = sum(weight.numel() for weight in net.parameters())

    # Write the model directory.
    description: dict[str, Json] = {
        "name": name,
        "imported": origin_of(command, imported),
        "fingerprint": fingerprint(net),
        "made_with": provenance(),
    }
    task, beside = ({}, {}) if coder is None else text_of(net, coder, str(command.tokenizer))
    save_pretrained(net, command.out, about={**description, **task}, beside=beside)

    # Print a summary.
    origin = "as requested" if command.method else "from its settings"
    shape = f"{net.size.layers} layers of width {net.size.width}, {count / 1e6:.1f} M parameters"
    print(
        f"{name}, {origin}; {imported.kind} weights; {shape}; "
        f"sequences of {net.max_length:,} over {net.vocab_size:,} tokens and MASK"
    )
    if imported.left_out:
        more = " and more" if len(imported.left_out) > 3 else ""
        line = f"ignored, not part of the network: {', '.join(imported.left_out[:3])}{more}"
        print(line[:LONGEST_LINE])
    if coder is None:
        print(
            "without a tokenizer it cannot generate text: "
            "add --tokenizer gpt2, or a directory with a tokenizer"
        )
    print(command.out)
    return 0


def origin_of(command: Import, imported: Checkpoint) -> dict[str, Json]:
    """Return the origin of a model, as config.json records it."""
    alpha = imported.settings.get("alpha_0")
    known = isinstance(alpha, int | float) and 0 <= alpha <= 1
    return {
        "source": Path(command.source).resolve().name,
        "weights": imported.kind,
        "alpha_0": alpha if known else None,
    }


def text_of(net: Transformer, coder: Bytes | Learned, name: str) -> tuple[dict[str, Json], dict[str, bytes]]:
    """Return the description of the text task and the tokenizer's files.

    Raise ValueError if net and tokenizer do not have the same number of tokens.
    """
    from latent_tokens.tasks import Text
    from latent_tokens.tasks.text.tokenizer import FILE, Learned

    if coder.vocab_size != net.vocab_size:
        raise ValueError(
            f"tokenizer={name}: has {coder.vocab_size:,} tokens, "
            f"and the checkpoint has {net.vocab_size:,} and MASK. Use the one it was trained with."
        )
    if not isinstance(coder, Learned):
        return {"task": Text(net.max_length, name).description()}, {}
    return {"task": Text(net.max_length, FILE).description()}, {FILE: coder.to_json()}


def fetch_source(source: str) -> Path:
    """Return the file or directory, fetched from the Hub if it is a name there.

    Raise ValueError if it is neither.
    """
    path = Path(source)
    if path.exists():
        return path
    if re.fullmatch(r"[\w.-]+/[\w.-]+", source) is None or path.suffix == ".ckpt":
        raise ValueError(
            f"source={source}: not found. "
            "Name a file, a directory, or a model on the Hugging Face Hub (OWNER/NAME)."
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=["config.json", "model.safetensors"]))
    except Exception as error:
        raise ValueError(
            f"source={source}: is not a directory, "
            f"and cannot be fetched from the Hugging Face Hub ({first_line(error)})"
        ) from None
