"""What the core refuses: a method, a decoding, rows, a batch or an order that it cannot use.

A row is a call, the setting or value that the answer names, and the fix or limit that it names.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import latent_tokens as lt
from helpers.oracle import Oracle, small_joint
from helpers.refusals import refused
from latent_tokens.core.selection import FixedCount
from latent_tokens.network.kernels import compile_blocks

JOINT = small_joint()
NOTHING = torch.zeros(2, 3, dtype=torch.bool)
TOKENS = torch.zeros(2, 3, dtype=torch.int64)
GAP = torch.tensor([[True, False, False], [False, True, False]])
LENGTHS = torch.full((2,), 3)
LEFT = replace(lt.METHODS["mdm"], readout="left")
CAUSAL_LEFT = replace(lt.METHODS["esolm"], order=lt.left_to_right, readout="left")
NAN = float("nan")
NOISY = lt.Decoding(2, confidence_noise=1)


def method_with(entry, **fields):
    return lambda: replace(lt.METHODS[entry], **fields)


def decoding_with(**settings):
    return lambda: lt.Decoding(**settings)


def decode(name_or_method, decoding=None, known=NOTHING, tokens=TOKENS, joint=JOINT, **options):
    method = lt.METHODS[name_or_method] if isinstance(name_or_method, str) else name_or_method

    def call():
        net = Oracle(joint, shifted=method.readout == "shifted")
        if joint is not JOINT:
            net.joint = joint
        lt.generate(net, method, tokens, known, decoding or lt.Decoding(1), options.pop("seed", 0), **options)

    return call


def train(name_or_method, tokens=TOKENS, known=NOTHING):
    method = lt.METHODS[name_or_method] if isinstance(name_or_method, str) else name_or_method
    return lambda: lt.loss(Oracle(JOINT), method, tokens, known, torch.Generator().manual_seed(0))


def score_with_padding():
    net = Oracle(JOINT)
    net.vocab_size = 3
    order = torch.arange(3).expand(2, -1)
    lt.log_likelihood(net, lt.METHODS["scdm"], TOKENS + 4, order, torch.zeros(2).long(), LENGTHS)


def score(name_or_method, order=(0, 1, 2), num_known=(0, 0), tokens=TOKENS, **settings):
    method = lt.METHODS[name_or_method] if isinstance(name_or_method, str) else name_or_method
    rows = torch.tensor([order]).expand(2, -1)
    return lambda: lt.log_likelihood(
        Oracle(JOINT), method, tokens, rows, torch.tensor(num_known), LENGTHS, **settings
    )


ONE_OF = "must be one of"
METHOD_ROWS = [
    (method_with("mdm", latents=2), "latents=2 with attention=bidirectional", "window=3"),
    (method_with("mdm", window=4, latents=2), "latents=2", "depth=('uniform', 0.5)"),
    (method_with("ar-mtp-window-4", latents=4), "latents=4", "window=5"),
    (method_with("sidm", latents=1), "latents=1", "latents=0"),
    (method_with("arm", latents=1), "latents=1", "latents=0"),
    (method_with("scdm", latents=-1), "latents=-1", "from 0"),
    (method_with("scdm", latents=None), "latents=None", "'all'"),
    (method_with("scdm", window=None), "window=None", "'all'"),
    (method_with("scdm", readout="right"), "readout=right", "in_place"),
    (method_with("scdm", readout="shifted"), "readout=shifted", "order=left_to_right"),
    (method_with("arm", attention=LEFT.attention), "readout=shifted with attention=bidirectional", "=causal"),
    (method_with("arm", targets="next"), "targets=next with readout=shifted", "targets=all"),
    (method_with("scdm", readout="left"), "readout=left", "order=left_to_right"),
    (method_with("mdm", readout="left", window=4), "readout=left", "without window"),
    (method_with("sidm", readout="left"), "readout=left", "attention=bidirectional"),
    (method_with("mdm-depth", readout="left"), "readout=left", "depth"),
    (method_with("mdm", attention=lt.block_causal(4)), "block_causal(4)", "order=blockwise(4)"),
    (method_with("scdm", masked_slots="shuffled"), "masked_slots=shuffled", "order=left_to_right"),
    (method_with("arm", masked_slots="shuffled"), "masked_slots=shuffled", "readout=in_place"),
    (method_with("ar-ntp-4", masked_slots="shuffled"), "masked_slots=shuffled", "targets=all"),
    (method_with("ar-mtp", masked_slots="random"), "masked_slots=random", "in_order, shuffled"),
    *((method_with("scdm", name=name), "name=", "1 to 100") for name in ("", "  ", "a\nb", "x" * 101, 7)),
    *((lambda name=name: lt.METHODS[name], name, ONE_OF) for name in ("gpt", "ar-ntp-0", "block-mdm-0", "")),
    (lambda: lt.blockwise(0), "block=0", "from 1"),
    *(
        (method_with("scdm", depth=depth), f"depth={depth}", "('none', SHARE) or")
        for depth in (
            "none:0.5",
            ("some", 0.5),
            ("none",),
            ("none", 0),
            ("none", 1.5),
            ("uniform", torch.nan),
        )
    ),
    (method_with("sidm", depth=("none", 0.5)), "depth=none:0.5", "attends to no other one"),
    (method_with("arm", depth=("uniform", 0.5)), "depth=uniform:0.5", "attends to no other one"),
    (method_with("scdm", depth=("uniform", 0.5), targets="next"), "depth=uniform:0.5", "Use targets=all"),
    (method_with("ar-ntp-4", depth=("none", 0.5)), "with targets=next", "Use targets=all"),
]
DECODING_ROWS = [
    *((decoding_with(candidates=k), f"candidates={k!r}", "from 1") for k in (0, -1, "some")),
    *((decoding_with(latents=n), f"latents={n!r}", "from 0") for n in (-1, 1.5, "none", np.arange(2))),
    *(
        (decoding_with(**{name: value}), f"{name}={value!r}", f"{name}.item()")
        for name, value in (
            ("latents", np.int64(4)),
            ("temperature", np.float32(0.5)),
            ("tokens_per_step", torch.tensor(2)),
            ("threshold", np.float32(0.5)),
            ("remask_below", np.float32(0.1)),
        )
    ),
    *((decoding_with(temperature=t), "temperature", "0 or more") for t in (-0.1, NAN, float("inf"), "1")),
    *((decoding_with(candidates=4, confidence_noise=c), "confidence_noise", "0 or more") for c in (-1, NAN)),
    *((decoding_with(top_p=p), f"top_p={p}", "at most 1") for p in (0, 1.1, None)),
    *((decoding_with(threshold=t), f"threshold={t!r}", "from 0") for t in (-1, "high")),
    (decoding_with(factor=NAN), "factor=nan", "from 0"),
    (decoding_with(entropy_bound=-1), "entropy_bound=-1", "from 0"),
    (decoding_with(frechet_bound=-1), "frechet_bound=-1", "from 0"),
    (decoding_with(t_max=0.8), "t_max=0.8 with t_min=None", "t_max=0.8, t_min=0.4"),
    (decoding_with(t_max=0.4, t_min=0.8), "t_max=0.4 with t_min=0.8", "falls"),
    (decoding_with(t_max=0.8, t_min=0.4, temperature=0), "temperature=0 with t_max=0.8", "one of them"),
    (decoding_with(tokens_per_step=0), "tokens_per_step=0", "from 1"),
    (decoding_with(select=FixedCount(4), candidates=2), "tokens_per_step=4", "candidates=4"),
    (decoding_with(candidates=1, confidence_noise=1), "confidence_noise=1", "candidates=8"),
    (decoding_with(candidates=1, threshold=0.9), "threshold=0.9 with candidates=1", "candidates=8"),
    (decoding_with(order="uniform", factor=1.0), "factor=1.0 with candidates=1", "order=top_prob"),
    (decoding_with(threshold=0.9, factor=1.0), "threshold=0.9 and factor=1.0", "one of them"),
    (decoding_with(threshold=0.9, confidence_noise=1), "confidence_noise=1", "leave one"),
    (decoding_with(threshold=0.9, tokens_per_step=lt.equal_parts(2)), "tokens_per_step", "leave one"),
    (decoding_with(entropy_bound=0.1, confidence=lt.top_prob), "confidence=top_prob", "out"),
    (decoding_with(entropy_bound=0.1, confidence=lt.margin), "confidence=margin", "out"),
    (decoding_with(order="entropy", confidence="margin"), "order=entropy with confidence", "one of the two"),
    (decoding_with(order="uniform", candidates=4), "order=uniform with candidates", "one of the two"),
    (decoding_with(order="uniform", confidence="margin"), "order=uniform with confidence", "one of the two"),
    (decoding_with(order="diagonal"), "order=diagonal", "blockwise:N"),
    (decoding_with(confidence="largest"), "confidence=largest", "top_prob, margin"),
    (decoding_with(confidence=0.9), "confidence=0.9", "must be a function"),
    (decoding_with(latent_policy="relevant"), "latent_policy=relevant", "must be one of nearest"),
    (decoding_with(select=lt.Threshold(0.9), threshold=0.8), "threshold=0.8", "one of them"),
    (decoding_with(select=FixedCount(2), tokens_per_step=3), "select=FixedCount", "leave one"),
    (decoding_with(select=0.9), "select=0.9", "select=Threshold(0.9)"),
    (lambda: lt.given(torch.arange(3.0)), "schedule", "0..2"),
    (lambda: lt.given_partition([[0], [2]]), "schedule", "0..1"),
    (lambda: lt.equal_parts(36 / 4), "steps=9.0", "whole number"),
    (lambda: lt.reverse_process(0), "steps=0", "from 1"),
    *(
        (lambda relation=relation: lt.relevant(relation), "relation of shape", "must be square, finite")
        for relation in (torch.zeros(4, 4), torch.ones(4, 3), -torch.eye(4), torch.full((4, 4), NAN))
    ),
]
BLOCK = lt.METHODS["block-mdm-2"]
PAIR_ROWS = [
    (decode("mdm", lt.Decoding(1, latents=16)), "latents=16 is not supported by mdm", "train mdm-depth"),
    (decode("ar-mtp", lt.Decoding(1, latents=16)), "latents=16", "train ar-mtp-window-17"),
    (decode("mdm", lt.Decoding(1, latents=lambda masked: 1)), "latents=", "latents=all"),
    (decode("mdm", lt.Decoding(1, latents=all)), "latents=all", "mdm-depth"),
    (decode("ar-mtp", lt.Decoding(1, latents=0)), "latents=0", "off_distribution=True"),
    (decode("ar-mtp-window-2", lt.Decoding(1, latents=0)), "latents=0", "latents=all"),
    (decode("ar-ntp-2", lt.Decoding(1, latents=2)), "latents=2", "latents=all"),
    (decode("sidm", lt.Decoding(1, latents=4, off_distribution=True)), "latents=4", "latents=0"),
    (decode("ar-mtp", lt.Decoding(candidates=lt.growing)), "candidates=growing", "candidates=1"),
    (decode("arm", lt.Decoding(1, order=lt.given([0, 2, 1]))), "order", "order=left_to_right"),
    (decode(CAUSAL_LEFT, lt.Decoding(1, order=lt.any_order)), "order", "order=left_to_right"),
    (decode("arm", lt.Decoding(threshold=0.9)), "threshold=0.9", "mdm or scdm model"),
    (decode("ar-mtp-window-2", lt.Decoding(1, tokens_per_step=3)), "window of 2", "tokens_per_step=2"),
    (decode(LEFT, lt.Decoding(1, latents=2, off_distribution=True)), "readout=left", "latents=all"),
    (decode(BLOCK, lt.Decoding(1, order=lt.any_order)), "blocks of 2", "order=blockwise(2)"),
    (decode(BLOCK, lt.Decoding(1, order=lt.blockwise(3))), "order=blockwise(3)", "order=blockwise(2)"),
    (decode(BLOCK, lt.Decoding(1, tokens_per_step=lt.equal_parts(2))), "tokens_per_step", "a number"),
    (decode(BLOCK, lt.Decoding(1, latents=0)), "latents=0", "latents=all"),
    (decode(BLOCK, lt.Decoding(1, latent_policy=lt.random)), "latent_policy=random", "latent_policy=nearest"),
    (
        decode("scdm", lt.Decoding(1, latent_policy=lambda step: step.order.flip(1))),
        "latent_policy",
        "may move",
    ),
    (decode("scdm", lt.Decoding(1, latent_policy=lambda step: step.order * 0)), "lambda", "permutation"),
    (
        decode("scdm", lt.Decoding(1, 2, latent_policy=lt.relevant(torch.ones(4, 4)))),
        "of 4 positions",
        "of 3",
    ),
    (decode("scdm", lt.Decoding(1, order=lambda known: known.long() * 0)), "lambda", "permutation"),
    (decode("scdm", lt.Decoding(1, order=lt.given([1, 0]))), "schedule of shape (1, 2)", "its length"),
    (decode("scdm", lt.Decoding(1, latents=lambda masked: -1)), "latents gives", "from 0"),
    (decode("mdm", lt.Decoding(candidates=lambda clean: 0)), "candidates gives", "from 1"),
    (decode("mdm", lt.Decoding(candidates=lambda clean: 1.5)), "candidates gives", "whole numbers"),
    (decode("mdm", lt.Decoding(2, confidence=lambda logits: logits.amax(-1))), "confidence=", "of_logits"),
    (decode("mdm", lt.Decoding(2, confidence=lambda step: step.logits)), "confidence=", "per candidate"),
    (decode("mdm", lt.Decoding(2, confidence=lambda step: step.positions * NAN)), "confidence=", "entr(p)"),
    (decode("scdm", lt.Decoding(order=lt.given([0, 2, 1]), confidence=lt.margin)), "=margin", "without an"),
    (decode("ar-mtp", lt.Decoding(confidence_noise=1)), "confidence_noise=1", "mdm or scdm"),
    (decode("mdm", lt.Decoding(2, select=lambda step: step.logits.amax(-1))), "select=", "how many"),
    (
        decode("mdm", lt.Decoding(1, tokens_per_step=lambda masked, noise: torch.ones(2, 2).long())),
        "tokens_per_step gives",
        "add up",
    ),
]
DATA_ROWS = [
    (decode("scdm", lengths=torch.tensor([3, 4])), "lengths=[3, 4]", "0..3"),
    (decode("scdm", tokens=TOKENS[0]), "tokens (3,)", "tokens[None]"),
    (decode("scdm", rows=torch.tensor([0])), "rows (1,)", "of its first"),
    (decode("scdm", known=NOTHING[:, :2]), "known (2, 2)", "of the shape of tokens"),
    (decode("scdm", rows=torch.tensor([0, -1])), "-1", "start at 0"),
    (decode("scdm", seed=-1), "seed=-1", "start at 0"),
    (decode("scdm", known=~NOTHING, tokens=TOKENS + 3), "row 0, position 0: token 3", "known to false"),
    (decode(LEFT, known=GAP), "row 1: position 0", "BOS"),
    (decode("mdm", joint=JOINT * torch.nan), "logits are not finite", "diverged"),
    (decode("mdm", NOISY, joint=JOINT * torch.nan), "logits are not finite", "diverged"),
    (train("mdm", TOKENS[:0], NOTHING[:0]), "tokens", "at least one sequence"),
    (train("scdm", known=~NOTHING), "row 0", "no unknown position"),
    (train("scdm", tokens=TOKENS + 3), "token 3 is MASK", "complete"),
    (train("scdm", known=NOTHING.long()), "int64", "known.bool()"),
    (train(LEFT, known=GAP), "row 1: position 0", "BOS"),
    (score("scdm", order=(0, 0, 1)), "order", "permutation"),
    (score("scdm", latents="ALL"), "latents='ALL'", "or 'all'"),
    (score("scdm", tokens=TOKENS + 3), "token 3 is MASK", "complete"),
    (score_with_padding, "token 4: the network has 3 tokens", "0-2"),
    (score("ar-mtp", order=(2, 0, 1)), "order", "order=left_to_right"),
    (score(BLOCK, order=(2, 1, 0)), "order", "order=blockwise(2)"),
    (score(BLOCK, latent_policy=lt.random), "latent_policy=random", "latent_policy=nearest"),
    (score(LEFT, num_known=(1, 0)), "row 1: position 0", "BOS"),
    (score(LEFT, num_known=(1, 1), latents=1, off_distribution=True), "readout=left", "latents=all"),
    (score("mdm", latents=0), "latents=0 is not supported by mdm", "off_distribution=True"),
    (score("sidm", latents=3), "latents=3", "latents=0"),
    (lambda: lt.check_network(nn.Linear(2, 2), lt.METHODS["scdm"], 8, 4), "net=Linear", "mask_id"),
    (
        lambda: lt.check_network(lt.Transformer(lt.Size(8, 2, 1), 4, 8), lt.METHODS["scdm"], 16, 4),
        "16 positions",
        "Enlarge",
    ),
    (lambda: compile_blocks(nn.Linear(1, 1)), "net=Linear", "Transformer"),
    (
        lambda: lt.influence(Oracle(JOINT), lt.METHODS["arm"], TOKENS, NOTHING, torch.Generator()),
        "shifted readout",
        "Use another method",
    ),
]


@pytest.mark.parametrize(("call", "setting", "fix"), [*METHOD_ROWS, *DECODING_ROWS, *PAIR_ROWS, *DATA_ROWS])
def test_refusal_names_the_setting_and_the_fix(call, setting, fix):
    with refused(setting, fix):
        call()
