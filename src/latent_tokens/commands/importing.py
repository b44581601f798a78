"""latent-tokens import."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from latent_tokens.checks import check_out, first_line


@dataclass(frozen=True)
class Import:
    """Turn a published Eso-LM or MDLM checkpoint into a model folder. Nothing in the file is executed."""

    source: Positional[str]
    """A Lightning .ckpt, a folder with model.safetensors and config.json, or the name of such a one on the Hugging Face hub."""
    out: Positional[Path]
    """The folder to write; must be missing or empty."""
    weights: Literal["ema", "raw"] | None = None
    """Of a .ckpt: the moving average, which the authors evaluate, or the raw weights. Default: ema."""
    method: Literal["mdm", "scdm", "esolm"] | None = None
    """How it attends. Default: what its own settings say."""
    tokenizer: str | None = None
    """What its tokens mean, so that it writes text: a tokenizer.json, a folder that has one or GPT-2's two files, or a name on the hub, gpt2 for
    those that were published. Default: none; then it gives logits and likelihoods in Python."""


def run_import(command: Import) -> int:
    """latent-tokens import: prints what was read, and the folder."""
    from latent_tokens.checkpoints import import_checkpoint
    from latent_tokens.methods import name_of
    from latent_tokens.pretrained import fingerprint, save_pretrained
    from latent_tokens.storage import provenance
    from latent_tokens.tasks.tokenizer import read_tokenizer

    check_out(command.out)
    coder = None if command.tokenizer is None else read_tokenizer(command.tokenizer)
    net, found = import_checkpoint(fetched(command.source), command.weights, command.method)
    name, count = name_of(net.method), sum(weight.numel() for weight in net.parameters())
    about = {"name": name, "imported": origin_of(command, found), "fingerprint": fingerprint(net), "made_with": provenance()}
    task, beside = ({}, {}) if coder is None else text_of(net, coder, str(command.tokenizer))
    save_pretrained(net, command.out, about={**about, **task}, beside=beside)
    said = "as asked" if command.method else "as its settings say"
    shape = f"{net.size.layers} layers of width {net.size.width}, {count / 1e6:.1f} M parameters"
    print(f"{name}, {said}; {found.kind} weights; {shape}; sequences of {net.max_length:,} over {net.vocab_size:,} tokens and MASK")
    if found.left_out:
        print(f"left out, no part of the network: {', '.join(found.left_out[:3])}{' and more' if len(found.left_out) > 3 else ''}"[:300])
    if coder is None:
        print("without a tokenizer it writes no text: --tokenizer gpt2, or a folder with its files, gives it one")
    print(command.out)
    return 0


def origin_of(command: Import, found: Any) -> dict[str, Any]:
    """What config.json says of where a model came from."""
    alpha = found.settings.get("alpha_0")
    known = isinstance(alpha, int | float) and 0 <= alpha <= 1
    return {"source": Path(command.source).resolve().name, "weights": found.kind, "alpha_0": alpha if known else None}


def text_of(net: Any, coder: Any, name: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(what config.json says of the text that a model writes, the files beside it). Raises ValueError where net and tokenizer do not fit."""
    from latent_tokens.tasks import Text
    from latent_tokens.tasks.tokenizer import FILE, Learned

    if coder.vocab_size != net.vocab_size:
        raise ValueError(
            f"tokenizer={name}: has {coder.vocab_size:,} tokens; the checkpoint has {net.vocab_size:,} and MASK: use the one it was trained with"
        )
    learned = isinstance(coder, Learned)
    return {"task": Text(net.max_length, FILE if learned else name).description()}, {FILE: coder.to_json()} if learned else {}


def fetched(source: str) -> Path:
    """The file or folder that is meant, fetched from the hub where it is a name. Raises ValueError where there is neither."""
    path = Path(source)
    if path.exists():
        return path
    if re.fullmatch(r"[\w.-]+/[\w.-]+", source) is None or path.suffix == ".ckpt":
        raise ValueError(f"{source}: no such file or folder, and no name on the hub (OWNER/NAME)")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=["config.json", "model.safetensors"]))
    except Exception as error:
        raise ValueError(f"{source}: no such folder here, and the hub gives none ({first_line(error)})") from None
