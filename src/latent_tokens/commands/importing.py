"""latent-tokens import."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from latent_tokens.checks import check_out, first_line
from latent_tokens.sizes import LONGEST

if TYPE_CHECKING:
    from latent_tokens.checkpoints.published import Checkpoint
    from latent_tokens.network.hf import HuggingFaceDenoiser
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.storage import Json
    from latent_tokens.tasks.text.tokenizer import Bytes, Learned

LONGEST_LINE = 300  # characters of the line on ignored weights
DEFAULT_LENGTH = 1_024  # tokens
WITHOUT_TOKENIZER = (
    "without a tokenizer it cannot generate text: add --tokenizer gpt2, or a directory with a tokenizer"
)


@dataclass(frozen=True)
class Import:
    """Convert a published masked diffusion model into a model directory.

    It is that of Eso-LM or MDLM, or a directory of LLaDA, Dream, Open-dCoder, WeDLM, SDAR, Tiny-A2D, DiffuGPT
    or ModernBERT-chat. Nothing in the files is executed.
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
    """Tokenizer of the model, needed to generate text. A tokenizer.json, a directory with one, or a name on
    the Hugging Face Hub, such as gpt2. Default: the tokenizer.json of a directory of
    transformers, else none, and the model computes logits and likelihoods in Python only."""
    length: int | None = None
    """Number of tokens of a text, for a directory of transformers. Default: 1,024, or the number of positions
    of the model if that is less."""


def run_import(command: Import) -> int:
    """Run `latent-tokens import`. Print a summary of the model, and the directory."""
    from latent_tokens.checkpoints.directory import save_pretrained
    from latent_tokens.checkpoints.files import fingerprint
    from latent_tokens.checkpoints.hugging_face import is_language_model, is_ours
    from latent_tokens.checkpoints.published import import_checkpoint
    from latent_tokens.core.method import name_of
    from latent_tokens.storage import provenance
    from latent_tokens.tasks.text.tokenizer import read_tokenizer

    check_out(command.out)
    source = fetch_source(command.source)
    if is_ours(source):
        raise ValueError(f"source={command.source}: was written by latent-tokens. Use it without an import.")
    if is_language_model(source):
        return import_published(command, source)
    if command.length is not None:
        raise ValueError(f"length={command.length}: is for a directory of transformers. Leave it out.")
    coder = None if command.tokenizer is None else read_tokenizer(command.tokenizer)
    net, imported = import_checkpoint(source, command.weights, command.method)
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
        f"{name}, {origin}, {imported.kind} weights, {shape}, "
        f"sequences of {net.max_length:,} over {net.vocab_size:,} tokens and MASK"
    )
    if imported.left_out:
        more = " and more" if len(imported.left_out) > 3 else ""
        line = f"ignored, not part of the network: {', '.join(imported.left_out[:3])}{more}"
        print(line[:LONGEST_LINE])
    if coder is None:
        print(WITHOUT_TOKENIZER)
    print(command.out)
    return 0


def import_published(command: Import, folder: Path) -> int:
    """Convert a directory of a published layout. Print a summary of the model, and the directory.

    Raises:
        ValueError: the directory is not supported, or an option is not for it.
    """
    from latent_tokens.checkpoints.hugging_face import check_installed, published_layout, published_network
    from latent_tokens.checkpoints.layouts import copied_tokenizer
    from latent_tokens.core.method import name_of
    from latent_tokens.sharing.hub import write_for_transformers
    from latent_tokens.storage import provenance
    from latent_tokens.tasks.text.tokenizer import FILE, read_tokenizer

    # Check the options and the tokenizer before the weights are read.
    check_installed(command.source)
    for option in ("weights", "method"):
        if getattr(command, option) is not None:
            value = getattr(command, option)
            raise ValueError(f"{option}={value}: is for Eso-LM and MDLM checkpoints. Leave it out.")
    config, layout = published_layout(folder)
    if layout is None:
        raise ValueError(
            f"source={command.source}: is not a published masked diffusion model, and names no MASK. "
            "In Python, open it with from_transformers and a mask_token."
        )
    tokenizer = command.tokenizer or str(folder / FILE)
    coder = read_tokenizer(tokenizer) if command.tokenizer else tokenizer_of(folder)

    # Read the network, and set its number of positions and tokens.
    net = published_network(folder, config, layout, dtype=None)
    num_positions = min(net.max_length, LONGEST)
    length = min(num_positions, DEFAULT_LENGTH) if command.length is None else command.length
    if not 3 <= length <= num_positions:
        raise ValueError(f"length={length}: must be from 3 to {num_positions:,}, the positions of the model.")
    net.max_length = length
    if coder is not None and coder.vocab_size <= net.vocab_size:  # embeddings may have unused rows
        net.vocab_size = coder.vocab_size
    task, beside = ({}, {}) if coder is None else text_of(net, coder, tokenizer)

    # Write the model directory, and print a summary.
    about: dict[str, Json] = {
        "name": name_of(net.method),
        "imported": {"source": Path(command.source).resolve().name, "layout": layout.name},
        "made_with": provenance(),
        **task,
    }
    write_for_transformers(net, command.out, about, {**copied_tokenizer(folder), **beside}, None)
    count = sum(weight.numel() for weight in net.parameters())
    print(
        f"{layout.name}: {name_of(net.method)}, {layout.native[0]}, {count / 1e6:.1f} M parameters, "
        f"sequences of {length:,} over {net.vocab_size:,} tokens, MASK is {net.mask_id:,}"
    )
    if coder is None:
        print(WITHOUT_TOKENIZER)
    print(command.out)
    return 0


def tokenizer_of(folder: Path) -> Bytes | Learned | None:
    """Return the tokenizer of a directory of transformers, or None if it has none that text tasks can use.

    Print the reason if it is not used.
    """
    from latent_tokens.tasks.text.tokenizer import FILE, read_tokenizer

    if not (folder / FILE).is_file():
        return None
    try:
        return read_tokenizer(str(folder / FILE))
    except ValueError as error:
        print(f"the tokenizer is copied and not used: {error}")
        return None


def origin_of(command: Import, imported: Checkpoint) -> dict[str, Json]:
    """Return the origin of a model, as config.json records it."""
    alpha = imported.settings.get("alpha_0")
    known = isinstance(alpha, int | float) and 0 <= alpha <= 1
    return {
        "source": Path(command.source).resolve().name,
        "weights": imported.kind,
        "alpha_0": alpha if known else None,
    }


def text_of(
    net: Transformer | HuggingFaceDenoiser, coder: Bytes | Learned, name: str
) -> tuple[dict[str, Json], dict[str, bytes]]:
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
    described = Text(net.max_length, name).description()
    if not isinstance(coder, Learned):
        return {"task": described}, {}
    return {"task": {**described, "tokenizer": FILE}}, {FILE: coder.to_json()}


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

    from latent_tokens.checkpoints.hub import TOKENIZER_FILES
    from latent_tokens.checkpoints.hugging_face import FILES

    try:
        return Path(snapshot_download(source, allow_patterns=[*FILES, *TOKENIZER_FILES]))
    except Exception as error:
        raise ValueError(
            f"source={source}: is not a directory, "
            f"and cannot be fetched from the Hugging Face Hub ({first_line(error)})"
        ) from None
