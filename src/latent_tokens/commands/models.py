"""latent-tokens import and export."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from tyro.conf import arg

from latent_tokens.checks import check_out, check_package
from latent_tokens.commands.shared import OwnMethod, RunName
from latent_tokens.sizes import LONGEST
from latent_tokens.storage import kind_of

if TYPE_CHECKING:
    from latent_tokens.hf.language_models import HuggingFaceDenoiser
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.storage import Json
    from latent_tokens.tasks.text.tokenizer import Bytes, Learned

DEFAULT_LENGTH = 1_024  # tokens
IMPORTED_METHODS = re.compile(r"mdm|scdm|esolm|block-mdm-[1-9]\d*")
WITHOUT_TOKENIZER = (
    "without a tokenizer it cannot generate text: "
    "add --tokenizer gpt2, or a directory with a tokenizer"
)


@dataclass(frozen=True)
class Import:
    """Convert a published masked diffusion model into a model directory. Nothing in its files is executed.

    It is that of Eso-LM or MDLM, or a directory of LLaDA, Dream, Open-dCoder, WeDLM, SDAR,
    Tiny-A2D, DiffuGPT or ModernBERT-chat.

    Examples:
        latent-tokens import model.ckpt models/esolm --tokenizer gpt2
        latent-tokens import GSAI-ML/LLaDA-8B-Base models/llada --length 256
    """

    source: Annotated[str, arg(metavar="SOURCE")]
    """Checkpoint to convert. A Lightning .ckpt, a directory with model.safetensors and
    config.json, or a name on the Hugging Face Hub."""
    out: Annotated[Path, arg(metavar="DIR")]
    """Model directory to write. It must be missing or empty."""
    weights: Literal["ema", "raw"] | None = None
    """Weights of a .ckpt to take. ema: the moving average, which the authors evaluate.
    raw: the last weights. Default: ema."""
    method: str | None = None
    """Method of the model: mdm, scdm, esolm or block-mdm-N. Default: as its own settings state."""
    tokenizer: str | None = None
    """Tokenizer of the model, needed to generate text. A tokenizer.json, a directory with one,
    or a name on the Hugging Face Hub, such as gpt2. Default: the
    tokenizer.json of a directory of transformers, else none, and the model computes logits and
    likelihoods in Python only."""
    length: int | None = None
    """Number of tokens of a text, for a directory of transformers. Default: 1,024, or the number
    of positions of the model if that is less."""


def run_import(command: Import) -> int:
    """Run `latent-tokens import`. Print a summary of the model, and the directory."""
    from latent_tokens.checkpoints.files import read_json
    from latent_tokens.hf.layouts import model_type_of
    from latent_tokens.hf.reading import MODEL_TYPES

    check_out(command.out)
    if not IMPORTED_METHODS.fullmatch(command.method or "mdm"):
        raise ValueError(f"method={command.method}: must be mdm, scdm, esolm or block-mdm-N.")
    source = fetch_source(command.source)
    kind = kind_of(source)
    if kind == "model":
        raise ValueError(
            f"source={command.source}: was written by latent-tokens. Use it without an import."
        )
    is_published = False
    if kind == "transformers":
        is_published = model_type_of(read_json(source / "config.json")) in MODEL_TYPES
    for option in ("weights", "method") if is_published else ("length",):
        value = getattr(command, option)
        if value is not None:
            suited = (
                "Eso-LM and MDLM checkpoints" if is_published else "a directory of transformers"
            )
            raise ValueError(f"{option}={value}: is for {suited}. Leave it out.")
    convert = import_directory if is_published else import_lightning
    if not convert(command, source):
        print(WITHOUT_TOKENIZER)
    print(command.out)
    return 0


def import_lightning(command: Import, source: Path) -> bool:
    """Convert a checkpoint of Eso-LM or MDLM. Return whether it has a tokenizer."""
    from latent_tokens.checkpoints.files import network_fingerprint
    from latent_tokens.checkpoints.published import import_checkpoint
    from latent_tokens.core.method import name_of
    from latent_tokens.hf.directory import save_pretrained
    from latent_tokens.hf.model_card import size_of
    from latent_tokens.storage import provenance
    from latent_tokens.tasks.text.tokenizer import read_tokenizer

    coder = None if command.tokenizer is None else read_tokenizer(command.tokenizer)
    net, imported = import_checkpoint(source, command.weights, command.method)

    # Write the model directory.
    alpha = imported.settings.get("alpha_0")
    is_known = isinstance(alpha, int | float) and 0 <= alpha <= 1
    source_name = Path(command.source).resolve().name
    origin = {
        "source": source_name,
        "weights": imported.kind,
        "alpha_0": alpha if is_known else None,
    }
    task, beside = text_of(net, coder, str(command.tokenizer))
    about: dict[str, Json] = {
        "name": name_of(net.method),
        "imported": cast("Json", origin),
        "fingerprint": network_fingerprint(net),
        "made_with": provenance(),
        **task,
    }
    save_pretrained(net, command.out, about=about, beside=beside)

    # Print a summary.
    chosen = "as requested" if command.method else "from its settings"
    print(
        f"{name_of(net.method)}, {chosen}, {imported.kind} weights, {size_of(net)}, sequences of "
        f"{net.max_length:,} over {net.vocab_size:,} tokens and MASK"
    )
    if imported.left_out:
        more = " and more" if len(imported.left_out) > 3 else ""
        print(f"ignored, not part of the network: {', '.join(imported.left_out[:3])}{more}"[:300])
    return coder is not None


def import_directory(command: Import, folder: Path) -> bool:
    """Convert a directory of a published layout. Return whether it has a tokenizer.

    Raises:
        ValueError: the directory is not supported, or the length does not suit it.
    """
    from latent_tokens.core.method import name_of
    from latent_tokens.hf.export import write_for_transformers
    from latent_tokens.hf.layouts import copied_tokenizer
    from latent_tokens.hf.model_card import size_of
    from latent_tokens.hf.reading import published_layout, published_network
    from latent_tokens.storage import provenance
    from latent_tokens.tasks.text.tokenizer import TOKENIZER_FILE, read_tokenizer

    # Check the layout and the tokenizer before the weights are read.
    check_package("transformers", "text", command.source)
    config, layout = published_layout(folder)
    if layout is None:
        raise ValueError(
            f"source={command.source}: is not a published masked diffusion model, and names no MASK. "
            "In Python, open it with from_transformers and a mask_token."
        )
    tokenizer = command.tokenizer or str(folder / TOKENIZER_FILE)
    coder = None
    if command.tokenizer or (folder / TOKENIZER_FILE).is_file():
        try:
            coder = read_tokenizer(tokenizer)
        except ValueError as error:
            if command.tokenizer:
                raise
            print(f"the tokenizer is copied and not used: {error}")

    # Read the network, and set its number of positions and tokens.
    net = published_network(folder, config, layout, dtype=None)
    num_positions = min(net.max_length, LONGEST)
    length = min(num_positions, DEFAULT_LENGTH) if command.length is None else command.length
    if not 3 <= length <= num_positions:
        raise ValueError(
            f"length={length}: must be from 3 to {num_positions:,}, the positions of the model."
        )
    net.max_length = length
    if coder is not None and coder.vocab_size <= net.vocab_size:  # embeddings may have unused rows
        net.vocab_size = coder.vocab_size
    task, beside = text_of(net, coder, tokenizer)

    # Write the model directory, and print a summary.
    about: dict[str, Json] = {
        "name": name_of(net.method),
        "imported": {"source": Path(command.source).resolve().name, "layout": layout.name},
        "made_with": provenance(),
        **task,
    }
    write_for_transformers(net, command.out, about, {**copied_tokenizer(folder), **beside}, None)
    print(
        f"{layout.name}: {name_of(net.method)}, {layout.native[0]}, {size_of(net)}, sequences of "
        f"{length:,} over {net.vocab_size:,} tokens, MASK is {net.mask_id:,}"
    )
    return coder is not None


def text_of(
    net: Transformer | HuggingFaceDenoiser, coder: Bytes | Learned | None, name: str
) -> tuple[dict[str, Json], dict[str, bytes]]:
    """Return the description of the text task and the tokenizer's files, both empty without a tokenizer.

    Raise ValueError if net and tokenizer do not have the same number of tokens.
    """
    from latent_tokens.tasks import Text
    from latent_tokens.tasks.text.tokenizer import TOKENIZER_FILE, Learned

    if coder is None:
        return {}, {}
    if coder.vocab_size != net.vocab_size:
        raise ValueError(
            f"tokenizer={name}: has {coder.vocab_size:,} tokens, "
            f"and the checkpoint has {net.vocab_size:,} and MASK. Use the one it was trained with."
        )
    described = Text(net.max_length, name).description()
    if not isinstance(coder, Learned):
        return {"task": described}, {}
    return {"task": {**described, "tokenizer": TOKENIZER_FILE}}, {TOKENIZER_FILE: coder.to_json()}


def fetch_source(source: str) -> Path:
    """Return the file or directory, fetched from the Hub if it is a name there.

    Raise ValueError if it is neither.
    """
    from latent_tokens.hf.reading import BASE_FILES
    from latent_tokens.hub import TOKENIZER_FILES, fetch, is_name

    path = Path(source)
    if path.exists():
        return path
    reason = ""
    if is_name(source) and path.suffix != ".ckpt":
        try:
            return fetch(source, files=(*BASE_FILES, *TOKENIZER_FILES))
        except ValueError as error:
            reason = f" ({error})"
    fix = "Name a file, a directory, or a model on the Hugging Face Hub (OWNER/NAME)."
    raise ValueError(f"source={source}: not found{reason}. {fix}")


@dataclass(frozen=True, kw_only=True)
class Export(OwnMethod):
    """Write a model directory to share, which transformers can also load.

    Examples:
        latent-tokens export runs/four models/four
        latent-tokens export sudoku-6-scdm models/six --precision bf16
    """

    run: RunName
    """Model to export. A run directory, a bundled model, or a name on the Hugging Face Hub."""
    out: Annotated[Path, arg(metavar="DIR")]
    """Model directory to write. It must be missing or empty."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Floating-point format of the weights. bf16 halves the size of the file."""
    license: str | None = None
    """License that the model card names, as spelled on the Hugging Face Hub. By default it names
    none."""


def run_export(command: Export) -> int:
    """Run `latent-tokens export`. Print the directory."""
    import torch

    from latent_tokens.hf.directory import open_models
    from latent_tokens.hf.export import export_model

    check_out(command.out)
    dtype = torch.bfloat16 if command.precision == "bf16" else torch.float32
    (net,) = open_models(command.run, method=command.method, base=command.base)
    export_model(net, command.out, dtype=dtype, license=command.license)
    print(command.out)
    return 0
