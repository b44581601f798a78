"""latent-tokens doctor. It imports none of the libraries it checks, until the self-test."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

from latent_tokens.checks import first_line
from latent_tokens.storage import package_version, source_commit

REINSTALL = "pip install --force-reinstall --no-deps latent-tokens, or -e . in a clone"


@dataclass(frozen=True)
class Doctor:
    """Check the installation and suggest fixes. The exit code is 1 if there is a problem.

    Examples:
        latent-tokens doctor
        latent-tokens doctor --json
    """

    json: bool = False
    """Print the findings as JSON lines instead of text."""


class Finding(NamedTuple):
    """The result of a check: its subject, its verdict, what was found, and a hint if it is not ok."""

    about: str
    verdict: Literal["ok", "note", "problem"]
    found: str
    hint: str = ""


def run_doctor(command: Doctor) -> int:
    """Run `latent-tokens doctor`. Print one line per finding. Return 1 if there is a problem."""
    problems = 0
    for finding in examine():
        problems += finding.verdict == "problem"
        hint = f" -> {finding.hint}" if finding.hint else ""
        text = f"{finding.verdict:8}{finding.about}: {finding.found}{hint}"
        print(json.dumps(finding._asdict()) if command.json else text, flush=True)
    if not command.json:
        print(f"{problems or 'no'} problem{'' if problems == 1 else 's'} found")
    return int(problems > 0)


def examine() -> Iterator[Finding]:
    """Yield the findings on versions and the device, then those of the self-test."""
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield Finding("latent-tokens", "ok", f"{package_version()} at {source_commit() or 'a release'}")
    try:
        requirements = distribution("latent-tokens").requires or []
    except PackageNotFoundError:
        fix = "pip install -e . checks its requirements"
        yield Finding("installation", "note", "is not installed", fix)
        return
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement_finding(requirement)
    try:
        yield from self_test()
    except Exception as error:  # a missing or broken library can raise anything
        found = f"cannot start ({first_line(error)})"
        yield Finding("self-test", "problem", found, "fix the problems above")


def requirement_finding(requirement: Requirement) -> Finding:
    """Return whether a library is installed in a supported version."""
    name = requirement.name
    fix = f"pip install '{name}{requirement.specifier}'"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, "problem", "not installed", fix)
    if not requirement.specifier.contains(found, prereleases=True):
        return Finding(name, "problem", f"{found}, and {requirement.specifier} is needed", fix)
    return Finding(name, "ok", found)


def tell(text: str) -> None:
    """Print what is being done, so that a slow check is not silent."""
    print(f"{text} ...", file=sys.stderr, flush=True)


def self_test() -> Iterator[Finding]:
    """Yield the device and its precision, whether optimized = reference, and each bundled model."""
    tell("importing PyTorch")
    import torch

    from latent_tokens.checkpoints.files import bundled_names
    from latent_tokens.core import sampling as reference
    from latent_tokens.core.decoding import Decoding
    from latent_tokens.devices import (
        device_name,
        fastest_device,
        precision_reason,
        resolve_precision,
    )
    from latent_tokens.hf.directory import from_pretrained
    from latent_tokens.network.fast import generate

    device = fastest_device()
    yield Finding("device", "ok", f"{device_name(device)}, {torch.get_num_threads()} threads")
    reason = f"auto is {resolve_precision('auto', device)}: {precision_reason(device)}"
    yield Finding("precision", "ok", reason)
    names = bundled_names()
    for number, name in enumerate(names, start=1):
        tell(f"decoding with {name}, {number} of {len(names)}")
        try:
            # Loading compares its logits with those it was saved with, on the CPU.
            net = from_pretrained(name).to(device)
            tokens = torch.zeros(1, net.max_length, dtype=torch.int64, device=device)
            decoding = Decoding(candidates=None if net.method.is_left_to_right else 4)
            arguments = (net, net.method, tokens, tokens.bool(), decoding)
            optimized = generate(*arguments, seed=0)
            expected = reference.generate(*arguments, seed=0)
            if not torch.equal(optimized.tokens, expected.tokens):
                raise ValueError("its samples differ from the reference implementation")
        except Exception as error:  # of any kind: the other models are still checked
            message = re.sub(r"\. (Save|Import|Make) .*", "", first_line(error))
            yield Finding(f"model {name}", "problem", message, REINSTALL)
        else:
            found = "logits as saved, samples as by the reference implementation"
            yield Finding(f"model {name}", "ok", found)
