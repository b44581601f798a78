"""A self-test of seconds: what torch computes here, and what the package decodes, against what is known exactly."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from latent_tokens.bench.doctor import Finding
from latent_tokens.bench.machine import describe_machine, fastest_device
from latent_tokens.checkpoints.pretrained import SHIPPED, from_pretrained, shipped_names
from latent_tokens.checks import first_line
from latent_tokens.core import sampling as reference
from latent_tokens.core.decoding import Decoding
from latent_tokens.core.methods import BLOCK_MASK_FROM, METHODS
from latent_tokens.network.fast import generate

DRAWS = 4_000  # samples of the oracle's joint
APART = 0.05  # total variation, which so many exact samples are below in all but one trial of 100,000
TRIED = {"scdm": Decoding(candidates=2, latents=1), "mdm": Decoding(), "ar-mtp": Decoding()}
FAST = (
    "sudoku-6-scdm",
    Decoding(candidates=4, latents=8),
    4,
)  # the model, decoding and number of boards on which the fast way is tested


def examine() -> Iterator[Finding]:
    """What was found of devices, of samples of an exact network, of the fast way, and of each model that comes along."""
    yield from devices()
    for about, test in (("oracle", oracle_is_drawn), ("fast = reference", fast_is_reference)):
        yield tested(about, test)
    yield from (tested(f"model {name}", partial(model_is_whole, name)) for name in shipped_names())
    if not shipped_names():
        yield Finding(
            "models",
            "problem",
            f"no bundled models in {SHIPPED}",
            "reinstall from a clone: pip install --force-reinstall --no-deps -e .",
        )


def devices() -> Iterator[Finding]:
    """What the models run on: device, threads, attention."""
    device, cores, threads = fastest_device(), os.cpu_count() or 1, torch.get_num_threads()
    if torch.backends.mps.is_available():
        yield Finding("device", "note", "the CPU: MPS has no float64, in which tokens are drawn")
    elif device.type == "cpu" and torch.version.cuda is not None:
        yield Finding(
            "device",
            "note",
            "the CPU, and torch is a build for CUDA: it sees no GPU",
            "nvidia-smi says whether the driver does",
        )
    else:
        yield Finding("device", "ok", describe_machine(device))
    few = device.type == "cpu" and threads < cores and "OMP_NUM_THREADS" in os.environ
    said = f"{threads} of {cores} cores"
    yield Finding(
        "threads",
        "note" if few else "ok",
        said,
        f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']} holds them" if few else "",
    )
    blocks = (
        f"FlexAttention from {BLOCK_MASK_FROM:,} positions"
        if device.type == "cuda"
        else "no FlexAttention, which this package uses on CUDA only"
    )
    apart = attention_error(device)
    if apart < 1e-3:
        yield Finding("attention", "ok", f"SDPA, {apart:.0e} from attention written out; {blocks}")
    else:
        yield Finding(
            "attention",
            "problem",
            f"SDPA is {apart:.1g} from attention written out",
            "install torch again, or another version of it",
        )


def attention_error(device: torch.device) -> float:
    """How far torch's masked attention is from its formula."""
    q, k, v = torch.randn(3, 2, 4, 64, 32, generator=torch.Generator().manual_seed(0)).to(device)
    mask = torch.ones(64, 64, dtype=torch.bool, device=device).tril()
    plain = (q @ k.mT / 32**0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ v
    return float((F.scaled_dot_product_attention(q, k, v, attn_mask=mask) - plain).abs().max())


def tested(about: str, test: Callable[[], str]) -> Finding:
    """What a test says; a problem where it raises."""
    try:
        return Finding(about, "ok", test())
    except Exception as error:  # whatever is broken, the others are still looked at
        said = re.sub(r"; (save|import|make) .*", "", first_line(error))
        return Finding(
            about, "problem", said, "reinstall from a clone: pip install --force-reinstall --no-deps -e ."
        )


class Oracle:
    """A denoiser (ids, positions, mask) -> logits that answers with the exact conditionals of a joint over 3 positions of 3 tokens."""

    mask_id = 3

    def __init__(self) -> None:
        self.joint = (
            torch.rand(27, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3 + 0.002
        )
        self.joint /= self.joint.sum()
        self.outcomes = torch.cartesian_prod(*[torch.arange(3)] * 3)  # (27, L)

    def __call__(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        agrees = ((self.outcomes[:, positions] == ids) | (ids == self.mask_id)).all(-1)  # (27, B)
        weight = (self.joint[:, None] * agrees)[..., None, None]
        return (weight * F.one_hot(self.outcomes[:, positions], self.mask_id)).sum(0).log()


def oracle_is_drawn() -> str:
    """Says how far samples of an exact network are from its joint. Raises ValueError where that is more than chance."""
    oracle, said = Oracle(), []
    nothing = torch.zeros(DRAWS, 3, dtype=torch.int64)
    for name, how in TRIED.items():
        tokens = generate(oracle, METHODS[name], nothing, nothing.bool(), how, seed=0).tokens
        shares = torch.bincount(tokens @ torch.tensor([9, 3, 1]), minlength=27) / DRAWS
        apart = 0.5 * (shares - oracle.joint).abs().sum().item()
        if not apart < APART:
            raise ValueError(
                f"{name} draws {apart:.3f} away from the joint of an exact network, where chance gives {APART} at most"
            )
        said.append(f"{name} {apart:.3f}")
    return f"its joint is drawn, to {', '.join(said)} (total variation of {DRAWS:,} samples)"


def fast_is_reference() -> str:
    """Says on what the fast way gave the reference's samples. Raises ValueError where it did not, bit for bit."""
    name, how, boards = FAST
    net = from_pretrained(name)
    nothing = torch.zeros(boards, net.max_length, dtype=torch.int64)
    one, other = (
        ways(net, net.method, nothing, nothing.bool(), how, seed=0) for ways in (generate, reference.generate)
    )
    if not (
        torch.equal(one.tokens, other.tokens)
        and torch.equal(one.order, other.order)
        and torch.equal(one.processed, other.processed)
    ):
        raise ValueError(f"{name} decodes other samples than the reference")
    return f"{boards} boards of {name}, bit for bit"


def model_is_whole(name: str) -> str:
    """Says that a model that came along is as it was made. Raises ValueError where it is not."""
    from_pretrained(name)
    return "its logits are those it was saved with"
