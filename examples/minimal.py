"""The paper in one file: masked diffusion models, and latent tokens as a number n that is set at inference.

    python examples/minimal.py        # two minutes on two CPU cores

A masked diffusion model decodes one token per step, but predicts all masked tokens. Tokens that it predicts
and does not decode are *latent tokens*: they influence the decoded one by attention. Three attention rules
make three models, which learn to write 4x4 Sudoku boards:

    MDM   a masked token attends to all others      n = all, as in training
    SIDM  a masked token attends to no other one    n = 0
    SCDM  a masked token attends to those before    n is free

Equations and algorithms are those of arXiv 2602.03769. A name in parentheses, with its file in
src/latent_tokens/, is the same in the package: for prompts, other orders and several tokens per step.
Shapes: B boards, L positions, S slots of the input, K candidates, V tokens.
"""

import itertools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

V, L = 4, 16  # digits and cells of a board
MASK = V  # the id after the vocabulary
WIDTH, HEADS, LAYERS = 32, 4, 4
STEPS, BATCH, RATE = 2_500, 64, 3e-3


def is_valid(boards):
    """Return which boards (B, L) have all four digits in each row, column and box."""
    rows = boards.reshape(-1, 4, 4)
    boxes = boards.reshape(-1, 2, 2, 2, 2).swapaxes(2, 3).reshape(-1, 4, 4)
    units = np.concatenate([rows, rows.swapaxes(1, 2), boxes], axis=1)  # (B, 12, 4)
    return (np.sort(units) == np.arange(4)).all(axis=(1, 2))


def all_boards():
    """Return the 288 valid boards (B, L), found among all boards whose rows are permutations."""
    permutations = np.array(list(itertools.permutations(range(4))))
    boards = permutations[np.indices((24, 24, 24, 24)).reshape(4, -1).T].reshape(-1, L)
    return boards[is_valid(boards)]


# An attention rule: does query slot q attend to key slot k, if the first c slots are clean? (`semi_causal`,
# core/attention.py. A rule and an order make a method: `METHODS`, core/method.py.)


def bidirectional(q, k, c):
    """Attend to every slot (MDM)."""
    return (q >= 0) & (k >= 0)


def independent(q, k, c):
    """Attend to clean slots and to the slot itself (SIDM, equation 1)."""
    return (k < c) | (k == q)


def semi_causal(q, k, c):
    """Attend to clean slots and to all slots up to the slot itself (SCDM, equation 2)."""
    return (k < c) | (k <= q)


def attention_mask(rule, num_clean, num_slots):
    """Return the mask (B, S, S), the first num_clean (B,) slots clean (`dense_mask`, core/attention.py)."""
    slots = torch.arange(num_slots)
    return rule(slots[:, None], slots, num_clean[:, None, None]).expand(len(num_clean), -1, -1)


class Block(nn.Module):
    """Attention, then MLP, each of a LayerNorm of the residual stream (`Block`, network/block.py)."""

    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attention_out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.mlp_in = nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp_out = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, HEADS, S, WIDTH / HEADS)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
        x = x + self.attention_out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh"))


class Transformer(nn.Module):
    """(ids (B, S), positions (B, S), mask (B, S, S)) -> logits (B, S, V). The slots may be in any order."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V + 1, WIDTH)
        self.position_embedding = nn.Embedding(L, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, V)

    def forward(self, ids, positions, mask):
        x = self.embedding(ids) + self.position_embedding(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def loss(net, rule, boards, generator):
    """Return the negative ELBO in nats per token (appendix B): the mean NLL of each board's masked tokens."""
    # Draw an order, and numbers of clean tokens, evenly spread on 0..L-1 (`corrupt`, core/objective.py).
    order = torch.rand(boards.shape, generator=generator, dtype=torch.float64).argsort(dim=1)
    shift = torch.rand(1, generator=generator, dtype=torch.float64)
    num_clean = ((torch.arange(len(boards)) / len(boards) + shift) % 1 * L).long()

    # Arrange the input in that order, [clean | masked]. Each token keeps its position (section 3.2).
    tokens = boards.gather(1, order)
    is_masked = torch.arange(L) >= num_clean[:, None]
    logits = net(tokens.masked_fill(is_masked, MASK), order, attention_mask(rule, num_clean, L))

    # Weight each board's masked tokens by 1 / their number (`weighted_nll`, core/objective.py).
    nll = F.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")  # (B, L)
    return ((nll * is_masked).sum(1) / is_masked.sum(1)).mean()


@torch.no_grad()
def generate(net, rule, num_boards, n, k, seed=0):
    """Return boards decoded with n latent tokens and k candidates (Algorithm 5), and the tokens processed."""
    generators = [np.random.default_rng((seed, board)) for board in range(num_boards)]

    def uniform(count):
        return torch.from_numpy(np.stack([generator.random(count) for generator in generators]))

    # Algorithm 4, lines 2-3: all is masked, the tentative order is random (`first_state`, core/state.py).
    x = torch.full((num_boards, L), MASK)
    order = uniform(L).argsort(dim=1)
    processed = 0
    for num_clean in range(L):
        # Algorithm 5, lines 6-9: [clean | latents | candidates]. The next k masked tokens are candidates, and
        # the n after them latent tokens, or as many as are left (`next_layout`, core/layout.py).
        clean = order[:, :num_clean]
        masked = order[:, num_clean:]
        candidates = masked[:, :k]
        latents = masked[:, k : k + n]
        positions = torch.cat([clean, latents, candidates], dim=1)  # (B, S)
        processed += positions.shape[1]

        # Lines 10-12: predict candidates, choose the most confident (`most_confident`, core/confidence.py).
        mask = attention_mask(rule, torch.full((num_boards,), num_clean), positions.shape[1])
        logits = net(x.gather(1, positions), positions, mask)[:, -candidates.shape[1] :]
        probabilities = logits.double().softmax(-1)  # (B, K, V)
        chosen = probabilities.amax(-1).argmax(1, keepdim=True)  # (B, 1)

        # Line 13: sample its token, by the inverse of the CDF (`sample_tokens`, core/distribution.py).
        position = candidates.gather(1, chosen)
        cdf = probabilities.take_along_dim(chosen[:, :, None], dim=1).cumsum(-1)  # (B, 1, V)
        token = torch.searchsorted(cdf / cdf[..., -1:], uniform(1)[:, :, None], right=True)
        x.scatter_(1, position, token[:, :, 0])

        # Line 14, then a shuffle, as in the paper's code (`promote` and `shuffle`, core/order.py).
        others = masked[masked != position].view(num_boards, -1)
        others = others.gather(1, uniform(others.shape[1]).argsort(dim=1))
        order = torch.cat([clean, position, others], dim=1)
    return x, processed


def train(name, rule, boards):
    """Return a network that has learned the boards under a rule."""
    torch.manual_seed(0)
    net = Transformer()
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for step in range(1, STEPS + 1):
        batch = boards[torch.randint(len(boards), (BATCH,), generator=generator)]
        value = loss(net, rule, batch, generator)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"\r{name}: step {step} of {STEPS}, loss {value:.3f}", end="", flush=True)
    print()
    return net


def main():
    """Train each model, and print accuracy and cost for each n, in uniform (k = 1) and top-prob decoding."""
    boards = torch.from_numpy(all_boards())
    models = {
        "MDM": (bidirectional, ["all"]),
        "SIDM": (independent, [0]),
        "SCDM": (semi_causal, [0, 4, "all"]),
    }
    for name, (rule, latents) in models.items():
        net = train(name, rule, boards)
        for n in latents:
            for k in (1, 4):
                x, processed = generate(net, rule, 1_000, n=L if n == "all" else n, k=k)
                valid = is_valid(x.numpy()).mean()
                print(f"  {name:4}  n = {n:<3}  k = {k}  {valid:6.1%} valid  {processed:4} tokens per board")
    print("One SCDM, three costs: n is set when it decodes. In the package: evaluate RUN --latents 0 4 all")


if __name__ == "__main__":
    main()
