"""The contract of a network, tested: what the logits of a `Denoiser` depend on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from latent_tokens.checks import check_int, first_line, refuse
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.denoiser import Denoiser, as_denoiser, token_logits, unwrap
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import Method
from latent_tokens.network.transformer import is_transformer

MOST_SLOTS = 3  # clean ones, and masked ones
FEWEST_POSITIONS = 4  # of a sequence with two clean and two masked tokens
SMALL_INFLUENCE = 1e-3  # the largest that is taken for none, relative to one that is allowed
ROUNDING = 4  # units in the last place of the largest logit, where shapes and sums are the same
REORDERING = 32  # likewise, where sums are in another order
LOWEST = -1e4  # replaces a logit of minus infinity
NOISE = 0.1  # standard deviation, on weights that may be zero before training
HUGGING_FACE_MASK = "attention_mask=mask[:, None] in Hugging Face"

PASSED: WeakValueDictionary[tuple[int, Method], Denoiser] = WeakValueDictionary()
"""Networks that `check_once` has checked, by id and method, as long as they exist."""
LONGEST_PASSED: dict[tuple[int, Method], int] = {}
"""The largest length that each of them was checked with."""


@dataclass(frozen=True)
class Probe:
    """A network and an input [clean | masked | padding] in equal rows, one per masked slot."""

    net: Denoiser
    vocab_size: int
    length: int
    num_clean: int
    num_shown: int
    ids: Int[Tensor, "B S"]
    positions: Int[Tensor, "B S"]
    mask: Bool[Tensor, "B S S"]
    other_ids: Int[Tensor, "B S"]  # other tokens at the same slots
    other_mask: Bool[Tensor, "B S S"]  # of an input with one clean token less, and without padding

    @property
    def masked(self) -> slice:
        """The masked slots."""
        return slice(self.num_clean, self.num_shown)

    @property
    def everything(self) -> Bool[Tensor, "B S S"]:
        """A mask that hides nothing."""
        return torch.ones_like(self.mask)

    def logits(
        self, ids: Tensor | None = None, positions: Tensor | None = None, mask: Tensor | None = None
    ) -> Float[Tensor, "B S V"]:
        """Return the logits of an input, in float64 and without MASK. None is the probe's own.

        Raises:
            ValueError: they are not one finite logit per slot and token.
        """
        ids = self.ids if ids is None else ids
        positions = self.positions if positions is None else positions
        logits = self.net(ids, positions, self.mask if mask is None else mask)
        if not isinstance(logits, Tensor):
            raise ValueError(f"returns a {type(logits).__name__}, not a tensor. Return its logits.")
        (rows, slots), columns = ids.shape, getattr(unwrap(self.net), "num_logits", self.vocab_size)
        if logits.dim() != 3 or logits.shape[:2] != ids.shape or logits.shape[2] < columns:
            raise ValueError(
                f"logits of shape {tuple(logits.shape)} for {rows} rows of {slots} slots. "
                f"Return ({rows}, {slots}, {columns}), or one column more for MASK."
            )
        if logits.isnan().any() or logits.isposinf().any():
            raise ValueError(
                "its logits are not finite. Let each slot attend where the mask is true, at least "
                "to itself, and check that the weights have not diverged."
            )
        return token_logits(self.net, logits).double().clamp(min=LOWEST)


def probe_of(
    net: Denoiser, method: Method, length: int, vocab_size: int, device: torch.device
) -> Probe:
    """Return the probe of a network for inputs of a method."""
    num_clean = min(length // 2, MOST_SLOTS)
    num_masked = min(length - num_clean, MOST_SLOTS)
    num_shown = num_clean + num_masked

    # Positions are shuffled, unless a slot is read or fed at its neighbor.
    order = torch.arange(length, device="cpu")
    if method.readout == "in_place":
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(length, generator=generator, device="cpu")
    positions = torch.cat([order[:num_shown], order.new_zeros(1)])  # (S,)
    positions = positions.expand(num_masked, -1).to(device)  # (B, S)
    clean = torch.full((num_masked,), num_clean, device=device)
    layout = Layout(positions, clean, torch.full_like(clean, num_shown))
    other_layout = Layout(positions, clean - 1, torch.full_like(clean, num_shown + 1))

    # Two sets of tokens. MASK may be any id.
    vocabulary = torch.arange(vocab_size)
    vocabulary = vocabulary[vocabulary != net.mask_id]
    tokens = [vocabulary[(torch.arange(length) + shift) % len(vocabulary)] for shift in (0, 1)]
    ids, other_ids = (
        method.input_ids(row.expand(num_masked, -1).to(device), layout, net.mask_id)
        for row in tokens
    )
    mask = dense_mask(method.attention, layout)
    other_mask = dense_mask(method.attention, other_layout)
    sizes = (vocab_size, length, num_clean, num_shown)
    return Probe(net, *sizes, ids, positions, mask, other_ids, other_mask)


def difference(logits: Tensor, others: Tensor) -> float:
    """Return the largest difference of two tensors."""
    return float((logits - others).abs().max())


def rounding(logits: Float[Tensor, "B S V"], units: float) -> float:
    """Return a number of units in the last place of the largest logit."""
    return units * float(logits.where(logits > LOWEST, 0).abs().max())


def ignored_input(probe: Probe, is_shifted: bool) -> str | None:
    """Return the problem if clean tokens, or positions, do not change the logits.

    A network in which neither does, as with a head of zeros, passes. With a shifted readout slot
    and position are equal, and positions need not matter.
    """
    logits = probe.logits()
    ids = probe.ids.clone()
    ids[:, : probe.num_clean] = probe.other_ids[:, : probe.num_clean]
    with_other_tokens = probe.logits(ids)
    positions = probe.positions.clone()
    positions[:, : probe.num_shown] = probe.positions[:, : probe.num_shown].flip(1)
    by_position = difference(logits, probe.logits(positions=positions))
    if difference(logits, with_other_tokens) == 0 < by_position:
        return "clean tokens do not change its logits. Embed ids."

    # Slots that influence each other at all do so at positions 0, 1, 2, ... under a mask of ones.
    # In an untrained network whose blocks add nothing yet, none does.
    first = torch.arange(ids.shape[1], device=ids.device).clamp(max=probe.length - 1).expand_as(ids)
    before = probe.logits(positions=first, mask=probe.everything)
    after = probe.logits(ids, first, probe.everything)
    by_unhidden = difference(before[:, probe.masked], after[:, probe.masked])
    by_token = difference(logits[:, probe.masked], with_other_tokens[:, probe.masked])
    if by_unhidden == 0 and not can_mix(probe, ids, first):
        return (
            "clean tokens change no other slot's logits. Let slots attend where the mask is true."
        )
    if by_token < SMALL_INFLUENCE * by_unhidden:
        return (
            "clean tokens do not change its logits at masked slots. Pass the mask, true if a slot "
            f"attends: {HUGGING_FACE_MASK}, ~mask in torch's MultiheadAttention."
        )
    if by_position == 0 < by_unhidden and not is_shifted:
        fix = "Pass them: position_ids=positions in Hugging Face."
        return f"positions do not change its logits. {fix}"
    return None


def can_mix(probe: Probe, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]) -> bool:
    """Return whether other clean tokens change masked slots' logits after noise on every weight.

    So they do in a network whose blocks add nothing only before it is trained.
    """
    if not isinstance(probe.net, nn.Module):
        return True
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: weight + NOISE * torch.randn(weight.shape, generator=generator).to(weight)
        for name, weight in probe.net.named_parameters()
        if weight.is_floating_point()
    }
    itself = torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
    inverted = itself.expand_as(probe.everything)  # admits every slot if the network inverts masks
    for mask in (probe.everything, inverted):
        before, after = (
            functional_call(probe.net, weights, (tokens, positions, mask))[:, probe.masked]
            for tokens in (probe.ids, ids)
        )
        if not torch.equal(before, after):
            return True
    return False


def visible_hidden_slots(probe: Probe) -> str | None:
    """Return the problem if a masked slot depends on slots that it cannot reach."""
    reached = probe.mask[0]
    for _ in range(len(reached)):
        reached = reached | (reached.float() @ reached.float() > 0)
    hidden = ~reached[probe.masked]  # (B, S): the masked slots are the queries, one per row
    ids = torch.where(hidden, probe.other_ids, probe.ids)
    moved = (probe.positions + probe.length // 2) % probe.length
    positions = torch.where(hidden, moved, probe.positions)

    row = torch.arange(len(hidden), device=hidden.device)
    query = probe.num_clean + row
    logits = probe.logits()
    by_hidden = difference(logits[row, query], probe.logits(ids, positions)[row, query])
    before = probe.logits(mask=probe.everything)
    after = probe.logits(ids, positions, probe.everything)
    by_unhidden = difference(before[row, query], after[row, query])
    if by_hidden <= max(
        SMALL_INFLUENCE * by_unhidden, rounding(logits, ROUNDING * torch.finfo().eps)
    ):
        return None
    fix = "attn_implementation='sdpa', or with 'eager' a float mask of 0 and -inf"
    return f"slots that the mask hides change its logits. Apply the mask: {HUGGING_FACE_MASK} with {fix}."


def order_of_slots(probe: Probe, eps: float) -> str | None:
    """Return the problem if exchanging two slots with equal masks changes the logits.

    Sums are then in another order. `eps` is the relative precision of the network.
    """
    logits = probe.logits()
    for kind, slot in (("clean", 0), ("masked", probe.num_clean)):
        exchanged = torch.arange(probe.ids.shape[1], device=logits.device)
        exchanged[slot] = slot + 1
        exchanged[slot + 1] = slot
        if not torch.equal(probe.mask, probe.mask[:, exchanged][:, :, exchanged]):
            continue
        positions = probe.positions[:, exchanged]
        reordered = probe.logits(probe.ids[:, exchanged], positions)[:, exchanged]
        moved = probe.logits(positions=positions)
        by_order = difference(logits[:, probe.masked], reordered[:, probe.masked])
        by_position = difference(logits[:, probe.masked], moved[:, probe.masked])
        if by_order > max(SMALL_INFLUENCE * by_position, rounding(logits, REORDERING * eps)):
            fix = f"Pass mask and positions: {HUGGING_FACE_MASK}, and position_ids=positions."
            return f"the order of {kind} slots changes its logits. {fix}"
    return None


def dependent_rows(probe: Probe) -> str | None:
    """Return the problem if the logits of a row depend on the other rows of its batch."""
    logits = probe.logits()
    ids = probe.other_ids.clone()
    positions = probe.positions.flip(1)
    mask = probe.other_mask.clone()
    by_input = difference(logits, probe.logits(ids, positions, mask))
    ids[-1] = probe.ids[-1]
    positions[-1] = probe.positions[-1]
    mask[-1] = probe.mask[-1]
    by_rows = difference(logits[-1], probe.logits(ids, positions, mask)[-1])
    if by_rows <= max(SMALL_INFLUENCE * by_input, rounding(logits, ROUNDING * torch.finfo().eps)):
        return None
    return (
        "its logits of a row depend on the other rows of its batch. Use its own mask in each row."
    )


def problem_of(net: Denoiser, method: Method, length: int, vocab_size: int) -> str | None:
    """Return the first problem of a network, or None if it passes `check_network`."""
    weights = [weight for module in modules_of(net) for weight in module.parameters()]
    device = weights[0].device if weights else torch.device("cpu")
    dtypes = {weight.dtype for weight in weights if weight.is_floating_point()} | {torch.float32}
    eps = max(torch.finfo(dtype).eps for dtype in dtypes)
    probe = probe_of(net, method, length, vocab_size, device)
    try:
        probe.logits()
        if length < FEWEST_POSITIONS or vocab_size == 1:
            return None
        return (
            ignored_input(probe, is_shifted=method.readout == "shifted")
            or visible_hidden_slots(probe)
            or order_of_slots(probe, eps)
            or dependent_rows(probe)
        )
    except ValueError as error:
        return first_line(error)
    except IndexError as error:
        sizes = f"{length} positions, {vocab_size} tokens and MASK, {net.mask_id}"
        return f"fails on {sizes} ({first_line(error)}). Enlarge its embeddings."


def check_network(net: Denoiser, method: Method, length: int, vocab_size: int) -> None:
    """Raise ValueError, naming the fix, if a network breaks the contract of a `Denoiser`.

    About 15 forward passes of 7 slots in eval mode test that

    - logits are finite, one per slot and token,
    - clean tokens and positions change them, also those of other slots,
    - slots that the mask hides do not,
    - the order of slots that the mask does not tell apart does not,
    - other rows of the batch do not.

    `generate` and `evaluate` call it once per method, and again for longer sequences, for a network
    other than `Transformer` that is a torch module, or has one as an attribute.

    Args:
        net: the network, trained or not.
        method: whose attention rule and readout the inputs have.
        length: the number of positions. Below 4, only the logits' shape and values are tested.
        vocab_size: the number of tokens without MASK.

    Raises:
        ValueError: the network does not pass.

    Example:
        >>> net = Transformer(SIZES["pico"], vocab_size=4, max_length=16)
        >>> check_network(net, METHODS["scdm"], length=16, vocab_size=4)
    """
    check_int("length", length, 1)
    check_int("vocab_size", vocab_size, 1)
    as_denoiser(net)
    with eval_mode(net), torch.no_grad():
        problem = problem_of(net, method, length, vocab_size)
    if problem is not None:
        raise ValueError(f"net={type(net).__name__}: {problem}")


def check_once(net: Denoiser, method: Method, length: int) -> None:
    """Call `check_network` unless the net is ours, has no weights, or has passed with such a length."""
    net = unwrap(net)
    if is_transformer(net) or not modules_of(net):
        return
    key = (id(net), method)
    if key in PASSED and length <= LONGEST_PASSED[key]:
        return
    vocab_size = getattr(net, "vocab_size", net.mask_id)
    if vocab_size == 0:
        refuse("net.mask_id=0", "the number of tokens is not known", "net.vocab_size to state it")
    check_network(net, method, length, vocab_size)
    PASSED[key] = net
    LONGEST_PASSED[key] = length


def modules_of(net: Denoiser) -> list[nn.Module]:
    """Return the network if it is a torch module, else those of its attributes that are."""
    parts = [net] if isinstance(net, nn.Module) else getattr(net, "__dict__", {}).values()
    return [part for part in parts if isinstance(part, nn.Module)]


@contextmanager
def eval_mode(net: Denoiser) -> Iterator[None]:
    """Put every module of a network in eval mode, and back in the end."""
    training = [part for module in modules_of(net) for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
