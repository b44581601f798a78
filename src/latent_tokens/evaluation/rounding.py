"""The effect of rounding: how many tokens of the same samples differ between bf16 and fp32."""

from __future__ import annotations

from dataclasses import replace

from latent_tokens import processes
from latent_tokens.configs import EvalConfig, Precision
from latent_tokens.evaluation.evaluate import answer, checked_decodings, in_precision
from latent_tokens.evaluation.generative_perplexity import text_problems
from latent_tokens.evaluation.problems import find_problems, policy_for
from latent_tokens.evaluation.protocol import with_protocol
from latent_tokens.network.transformer import Transformer
from latent_tokens.tasks import Examples, Task, Text
from latent_tokens.tasks.base import Tokens

NUM_COMPARED = 64
"""Number of samples that are decoded in both precisions."""


def count_differing_tokens(net: Transformer, task: Task | Text, config: EvalConfig) -> tuple[int, int, int]:
    """Return (tokens that differ, tokens decoded, samples) of at most 64 samples in bf16 and in fp32.

    They are decoded with the first number of latent tokens of the config, from equal random numbers. A token
    that differs changes the input of all later steps, so one difference can cause many.

    Raises:
        ValueError: the net is not of the task, or its method cannot decode so.
    """
    config = config if isinstance(task, Text) else with_protocol(net, task, config)
    problems = problems_to_compare(net, task, config)

    def samples_in(precision: Precision) -> Tokens:
        model = in_precision(net, precision)
        with processes.limit_threads(config.threads):
            policy = policy_for(model, task, config)
            decoding = replace(checked_decodings(net, task, config)[0], latent_policy=policy)
            return answer(model, problems, config, decoding)[0]

    differing = int((samples_in("bf16") != samples_in("fp32")).sum())
    decoded = int((problems.lengths - problems.known.sum(1)).sum())
    return differing, decoded, len(problems.tokens)


def problems_to_compare(net: Transformer, task: Task | Text, config: EvalConfig) -> Examples:
    """Return the first problems of an evaluation, at most 64."""
    if isinstance(task, Text):
        count = min(NUM_COMPARED, config.num_samples or NUM_COMPARED)
        return text_problems(net, task, count)
    if config.data is None:
        config = replace(config, num_samples=min(NUM_COMPARED, config.num_samples or NUM_COMPARED))
    return find_problems(task, config).take(slice(NUM_COMPARED))
