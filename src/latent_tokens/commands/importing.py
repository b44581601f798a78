"""latent-tokens import."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from latent_tokens.checks import check_out


@dataclass(frozen=True)
class Import:
    """Turn a published Eso-LM or MDLM checkpoint into a model folder. Nothing in the file is executed."""

    source: Positional[str]
    """A Lightning .ckpt, a folder with model.safetensors and config.json, or the name of such a one on the Hugging Face hub."""
    out: Positional[Path]
    """The folder to write; must be missing or empty."""
    weights: Literal["ema", "raw"] = "ema"
    """Of a .ckpt: the moving average, which the authors evaluate, or the raw weights."""
    method: Literal["mdm", "scdm", "esolm"] | None = None
    """How it attends. Default: what its own settings say."""


def run_import(command: Import) -> int:
    """latent-tokens import: prints what was read, and the folder."""
    from latent_tokens.checkpoints import import_checkpoint
    from latent_tokens.methods import name_of
    from latent_tokens.pretrained import fingerprint, save_pretrained
    from latent_tokens.storage import provenance

    check_out(command.out)
    net, found = import_checkpoint(fetched(command.source), command.weights, command.method)
    name, count = name_of(net.method), sum(weight.numel() for weight in net.parameters())
    origin = {"source": Path(command.source).name, "weights": found.kind, "alpha_0": found.settings.get("alpha_0")}
    save_pretrained(net, command.out, about={"name": name, "imported": origin, "fingerprint": fingerprint(net), "made_with": provenance()})
    said = "as asked" if command.method else "as its settings say"
    shape = f"{net.size.layers} layers of width {net.size.width}, {count / 1e6:.1f} M parameters"
    print(f"{name}, {said}; {found.kind} weights; {shape}; sequences of {net.max_length:,} over {net.vocab_size:,} tokens and MASK")
    print(command.out)
    return 0


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
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{source}: no such folder here, and the hub gives none ({reason})") from None
