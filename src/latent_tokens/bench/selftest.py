"""A self-test of seconds: attention, samples, the optimized implementation, and bundled models."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from latent_tokens.bench.doctor import Finding
from latent_tokens.bench.machine import describe_machine
from latent_tokens.checkpoints.directory import from_pretrained
from latent_tokens.checkpoints.files import BUNDLED, bundled_names
from latent_tokens.checks import first_line
from latent_tokens.core import sampling as reference
from latent_tokens.core.decoding import Decoding
from latent_tokens.core.method import BLOCK_MASK_FROM, METHODS
from latent_tokens.network.fast import generate
from latent_tokens.network.kernels import precision_reason, resolve_precision
from latent_tokens.processes import fastest_device

NUM_SAMPLES = 4_000  # of the oracle's joint distribution
MAX_DISTANCE = 0.05  # total variation, exceeded by 1 in 100,000 sets of exact samples
SAMPLERS = {"scdm": Decoding(candidates=2, latents=1), "mdm": Decoding(candidates=1), "ar-mtp": Decoding()}
FAST_MODEL = "sudoku-6-scdm"  # with which the optimized implementation is tested
FAST_DECODING = Decoding(candidates=4, latents=8)
FAST_SAMPLES = 4
REINSTALL = "reinstall from a clone: pip install --force-reinstall --no-deps -e ."


def examine() -> Iterator[Finding]:
    """Yield the findings about devices, samples, the optimized implementation, and each bundled model."""
    yield from devices()
    yield tested("oracle", check_samples)
    yield tested("fast = reference", check_optimized)
    for name in bundled_names():
        yield tested(f"model {name}", partial(check_model, name))
    if not bundled_names():
        yield Finding("models", "problem", f"no bundled models in {BUNDLED}", REINSTALL)


def devices() -> Iterator[Finding]:
    """Yield the device, the number of threads, the precision and the attention implementation."""
    device = fastest_device()
    if torch.backends.mps.is_available():
        yield Finding("device", "note", "the CPU: MPS has no float64, in which tokens are sampled")
    elif device.type == "cpu" and torch.version.cuda is not None:
        text = "the CPU: torch is built for CUDA but finds no GPU"
        yield Finding("device", "note", text, "run nvidia-smi to check the driver")
    else:
        yield Finding("device", "ok", describe_machine(device))
    yield threads(device)
    yield precision(device)
    yield attention(device)


def threads(device: torch.device) -> Finding:
    """Return the number of threads, with a note if OMP_NUM_THREADS limits it."""
    cores = os.cpu_count() or 1
    num_threads = torch.get_num_threads()
    text = f"{num_threads} of {cores} cores"
    limit = os.environ.get("OMP_NUM_THREADS")
    if device.type == "cpu" and num_threads < cores and limit is not None:
        return Finding("threads", "note", text, f"OMP_NUM_THREADS={limit} limits them")
    return Finding("threads", "ok", text)


def precision(device: torch.device) -> Finding:
    """Return what `--precision auto` is on the device, and why."""
    return Finding(
        "precision", "ok", f"auto is {resolve_precision('auto', device)}: {precision_reason(device)}"
    )


def attention(device: torch.device) -> Finding:
    """Return whether torch's attention equals its formula."""
    error = attention_error(device)
    if not error < 1e-3:
        text = f"SDPA differs from the formula of attention by {error:.1g}"
        return Finding("attention", "problem", text, "install torch again, or another version of it")
    flex = "no FlexAttention, which is used on CUDA only"
    if device.type == "cuda":
        flex = f"FlexAttention from {BLOCK_MASK_FROM:,} positions"
    return Finding("attention", "ok", f"SDPA, within {error:.0e} of the formula of attention, {flex}")


def attention_error(device: torch.device) -> float:
    """Return the largest difference between torch's masked attention and its formula."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 64, 32, generator=generator).to(device)
    mask = torch.ones(64, 64, dtype=torch.bool, device=device).tril()
    expected = (q @ k.mT / 32**0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ v
    return float((F.scaled_dot_product_attention(q, k, v, attn_mask=mask) - expected).abs().max())


def tested(about: str, test: Callable[[], str]) -> Finding:
    """Return the text of a test as a finding, or a problem if it raises."""
    try:
        return Finding(about, "ok", test())
    except Exception as error:  # of any kind: the other checks still run
        message = re.sub(r"\. (Save|Import|Make) .*", "", first_line(error))
        return Finding(about, "problem", message, REINSTALL)


class Oracle:
    """A denoiser with the exact conditionals of a joint over 3 positions of 3 tokens."""

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


def check_samples() -> str:
    """Return how far samples are from the joint of the oracle.

    Raise ValueError if the distance exceeds chance.
    """
    oracle = Oracle()
    tokens = torch.zeros(NUM_SAMPLES, 3, dtype=torch.int64)
    distances = []
    for name, decoding in SAMPLERS.items():
        samples = generate(oracle, METHODS[name], tokens, tokens.bool(), decoding, seed=0).tokens
        outcomes = samples @ torch.tensor([9, 3, 1])
        frequencies = torch.bincount(outcomes, minlength=27) / NUM_SAMPLES
        distance = 0.5 * (frequencies - oracle.joint).abs().sum().item()
        if not distance < MAX_DISTANCE:
            raise ValueError(
                f"samples of {name} are {distance:.3f} away from the joint of an exact network, "
                f"at most {MAX_DISTANCE} by chance"
            )
        distances.append(f"{name} {distance:.3f}")
    return f"samples match its joint: {', '.join(distances)} (total variation of {NUM_SAMPLES:,} samples)"


def check_optimized() -> str:
    """Return on what the optimized implementation was tested.

    Raise ValueError if its samples differ from the reference.
    """
    net = from_pretrained(FAST_MODEL)
    tokens = torch.zeros(FAST_SAMPLES, net.max_length, dtype=torch.int64)
    known = tokens.bool()
    optimized = generate(net, net.method, tokens, known, FAST_DECODING, seed=0)
    expected = reference.generate(net, net.method, tokens, known, FAST_DECODING, seed=0)
    pairs = (
        (optimized.tokens, expected.tokens),
        (optimized.order, expected.order),
        (optimized.processed, expected.processed),
    )
    if not all(torch.equal(first, second) for first, second in pairs):
        raise ValueError(f"the samples of {FAST_MODEL} differ from the reference")
    return f"{FAST_SAMPLES} boards of {FAST_MODEL}, bit for bit"


def check_model(name: str) -> str:
    """Return that the logits of a bundled model are unchanged. Raise ValueError if it is damaged."""
    from_pretrained(name)
    return "its logits are those it was saved with"
