"""A model as those who use hubs know it: `Transformer.from_pretrained`, `net.save_pretrained` and `net.push_to_hub`.

The network stands below whatever knows of folders and cards, so the three are written here and given to its class below.
"""

from __future__ import annotations

import json
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from latent_tokens.checkpoints import pretrained
from latent_tokens.checkpoints.hub import FILES, check_links, fetch, is_name, upload
from latent_tokens.checkpoints.pretrained import SHIPPED, check_about, describe, find, fingerprint
from latent_tokens.checkpoints.tensor_files import read_tensor_file
from latent_tokens.evaluation.results import read_results
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import read_description
from latent_tokens.tasks import Text, description
from latent_tokens.tasks.text.task import text_described

__all__ = ["Transformer", "from_pretrained", "load_pretrained", "push_to_hub", "save_pretrained"]

from_pretrained = pretrained.from_pretrained

RESULTS = "results.jsonl"
IN_RESULTS = (
    "task",
    "method",
    "order",
    "candidates",
    "latents",
    "metric",
    "ci95",
    "num_samples",
    "relative_cost",
)
MODULE = "modeling_latent_tokens"
CODE = '''"""What transformers reads to open this folder (trust_remote_code=True): two names of the package latent-tokens, and no more."""

from latent_tokens.hugging_face import LatentTokensConfig, LatentTokensForMaskedLM
'''
OF_THE_TASK = ("task", "name")  # what stays true of a model that has learned on


def load_pretrained(
    folder_or_name: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
) -> Transformer:
    """`Transformer.from_pretrained`: the model of a folder, of a name that comes along, or of a name on the hub, OWNER/NAME.

    The other arguments are for the hub alone, as its library knows them. Raises ValueError as `latent_tokens.from_pretrained`.
    """
    where = partial(fetch, revision=revision, token=token, cache_dir=cache_dir)
    return from_pretrained(
        find(folder_or_name, partial(where, local_files_only=local_files_only, force_download=force_download))
    )


def save_pretrained(
    net: Transformer,
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    license: str = "apache-2.0",
    name: str | None = None,
) -> None:
    """`net.save_pretrained`: a model folder with its card, README.md, that transformers opens too.

    What the folder that the net was read from says of its task, its training and its results is carried over; of a net whose
    weights are others by now, its task alone. `name` is how the card calls it. Raises ValueError where the net has no method, or
    its folder is gone, OSError where the disk is full.
    """
    from latent_tokens.sharing.card import write_card

    folder, (about, beside, rows) = Path(folder), belongings(net)
    kept = deepcopy(net).to("cpu", dtype).float().eval()
    known = {**about, "fingerprint": fingerprint(kept), **for_transformers(kept)}
    files = {**beside, f"{MODULE}.py": CODE.encode()}
    pretrained.save_pretrained(net, folder, dtype=dtype, about=known, beside=files)
    write_card(folder, rows, license=license, name=name)


def push_to_hub(
    net: Transformer,
    name: str,
    *,
    dtype: torch.dtype | None = None,
    license: str = "apache-2.0",
    private: bool | None = None,
    token: str | bool | None = None,
    branch: str | None = None,
    create_pr: bool = False,
    commit_message: str = "A model of latent-tokens",
) -> str:
    """`net.push_to_hub`: saves the net as OWNER/NAME on the hub, in one commit; its address.

    Raises ValueError as `save_pretrained`, and where the hub takes it not.
    """
    if not is_name(name) and not is_name(f"me/{name}"):
        raise ValueError(f"name={name}: must be OWNER/NAME, of letters, digits and ._-")
    with TemporaryDirectory() as place:
        folder = Path(place) / name.rpartition("/")[2]
        save_pretrained(net, folder, dtype=dtype, license=license, name=name)
        return upload(
            folder,
            name,
            message=commit_message,
            private=private,
            token=token,
            branch=branch,
            create_pr=create_pr,
        )


def belongings(net: Transformer) -> tuple[dict[str, Any], dict[str, bytes], list[dict[str, Any]]]:
    """(what config.json says beside the model, the files beside it, its rows of results), of the folder that a net was read from."""
    if net.folder is None:
        return {}, {}, []
    if not (net.folder / "config.json").is_file():
        raise ValueError(
            f"{net.folder}: the net was read from it, and it is gone; set net.folder = None to save what is left, weights and method"
        )
    if SHIPPED not in net.folder.parents:
        check_links(net.folder, FILES)
    said = read_description(net.folder, "config.json", "model")
    about = {
        name: value
        for name, value in said.items()
        if name not in {*describe(net), *for_transformers(net), "fingerprint"}
    }
    check_about(about, net.folder / "config.json")
    beside = dict[str, bytes]()
    if about.get("task", {}).get("name") == Text.name:
        text = text_described(about["task"], net.folder)
        about["task"] = description(text)
        beside |= text.files()  # what was read as a tokenizer, whatever else its file holds
    if not unchanged(net, net.folder):
        return {name: about[name] for name in OF_THE_TASK if name in about}, beside, []
    rows = read_results((SHIPPED if SHIPPED in net.folder.parents else net.folder) / RESULTS, IN_RESULTS)
    if SHIPPED in net.folder.parents:
        rows = [row for row in rows if (row["task"], row["method"]) == (about["task"]["name"], about["name"])]
    if rows:
        beside[RESULTS] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return about, beside, rows


def unchanged(net: Transformer, folder: Path) -> bool:
    """Whether a net has the weights of a folder still, in the net's precision."""
    stored, own = read_tensor_file(folder / "model.safetensors"), net.state_dict()
    return stored.keys() == own.keys() and all(
        torch.equal(stored[name].to(weight.dtype), weight.cpu()) for name, weight in own.items()
    )


def for_transformers(net: Transformer) -> dict[str, Any]:
    """What config.json says to transformers, which counts MASK among the tokens."""
    return {
        "model_type": "latent_tokens",
        "architectures": ["LatentTokensForMaskedLM"],
        "auto_map": {
            "AutoConfig": f"{MODULE}.LatentTokensConfig",
            "AutoModelForMaskedLM": f"{MODULE}.LatentTokensForMaskedLM",
        },
        "vocab_size": net.vocab_size + 1,
        "mask_token_id": net.mask_id,
        "max_position_embeddings": net.max_length,
        "hidden_size": net.size.width,
        "num_attention_heads": net.size.heads,
        "num_hidden_layers": net.size.layers,
        "dtype": "float32",
    }


Transformer.from_pretrained = staticmethod(load_pretrained)
Transformer.save_pretrained = save_pretrained
Transformer.push_to_hub = push_to_hub
