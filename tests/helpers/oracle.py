"""A denoiser that knows a small joint distribution exactly."""

import torch

BASE = 8  # above every token and position: a row's are the digits of a number


class Oracle:
    """The exact conditionals of `joint`, a tensor of L dimensions of size V, given the clean tokens.

    shifted: slot j receives the token of position j-1 and predicts position j. left: the slot of position i
    predicts position i + 1, the last one any. The added MASK column is high.
    """

    def __init__(self, joint, shifted=False, left=False):
        self.joint, self.shifted, self.left = joint / joint.sum(), shifted, left
        self.mask_id = joint.shape[0]
        self.outcomes = torch.cartesian_prod(*(torch.arange(size) for size in joint.shape)).reshape(
            -1, joint.dim()
        )  # (outcomes, L)
        self.calls = []

    def __call__(self, ids, positions, mask):
        """Return the logits of each row, computed once for equal rows."""
        self.calls.append((ids, positions, mask))
        slots = ids.shape[1]
        code = torch.cat([ids, positions], dim=1) @ BASE ** torch.arange(2 * slots)
        _, alike = code.unique(return_inverse=True)
        first = torch.empty(int(alike.max()) + 1, dtype=torch.int64).scatter_(
            0, alike, torch.arange(len(ids))
        )
        return self.answers(ids[first], positions[first])[alike]

    def answers(self, ids, positions):
        """Return logits (B, S, V + 1)."""
        batch, slots = ids.shape
        token_of = positions - 1 if self.shifted else positions  # whose token a slot shows
        shows = ids != self.mask_id
        agrees = (self.outcomes[:, token_of.clamp(min=0)] == ids) | ~shows  # (outcomes, B, S)
        so_far, everywhere = (
            agrees.long().cumprod(-1).bool(),
            agrees.all(-1, keepdim=True).expand(-1, batch, slots),
        )
        agrees = so_far if self.shifted else everywhere
        weight = self.joint.reshape(-1)[:, None, None] * agrees  # (outcomes, B, S)
        predicted = (positions + self.left).clamp(max=self.joint.dim() - 1)
        here = torch.nn.functional.one_hot(self.outcomes[:, predicted], self.mask_id)  # (outcomes, B, S, V)
        mass = (weight[..., None] * here).sum(0)
        return torch.cat([mass.log(), torch.full((batch, slots, 1), 9.0)], dim=-1).float()


def small_joint(length=3, vocab=3, seed=0):
    """Return a joint distribution of vocab**length outcomes with strongly dependent positions."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((vocab,) * length, generator=generator, dtype=torch.float64) ** 3 + 0.002


def frequencies(tokens, vocab=3):
    """Return the frequency of each outcome, in the order of Oracle.outcomes."""
    length = tokens.shape[1]
    code = (tokens * vocab ** torch.arange(length - 1, -1, -1)).sum(1)
    return torch.bincount(code, minlength=vocab**length).double() / len(tokens)


def total_variation(a, b):
    return 0.5 * (a.reshape(-1) - b.reshape(-1)).abs().sum().item()
