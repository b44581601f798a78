"""Whether an installation is well: versions, extras, room on the disk. It needs none of what it looks for."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal, get_args

from packaging.requirements import Requirement

from latent_tokens.configs import TrackerName
from latent_tokens.storage import package_version, source_commit

GIGABYTE = 10**9
LITTLE, TOO_LITTLE = (
    5 * GIGABYTE,
    GIGABYTE // 2,
)  # free on the disk: what data sets of the paper take, what a run with its states takes

Verdict = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """What was found of one thing, and what to do about it where it is not well."""

    about: str
    verdict: Verdict
    found: str
    hint: str = ""


def examine(folder: Path) -> Iterator[Finding]:
    """What was found of versions, extras, the disk and the folder where files would be written."""
    yield from versions()
    yield from extras()
    yield disk(folder)
    yield writing(folder)


def versions() -> Iterator[Finding]:
    """Of Python, of this package, and of each library that it needs."""
    commit = source_commit()
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield Finding(
        "latent-tokens",
        "ok",
        f"{package_version()}{f' at {commit}' if commit else ''} in {Path(__file__).parents[1]}",
    )
    try:
        needed = [Requirement(text) for text in distribution("latent-tokens").requires or []]
    except PackageNotFoundError:
        yield Finding(
            "installation",
            "note",
            "runs from a checkout that is not installed",
            "pip install -e . lets its requirements be checked",
        )
        return
    yield from (installed(one) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""}))


def installed(one: Requirement) -> Finding:
    """Whether a library is there, in a version that suits."""
    hint = f"pip install '{one.name}{one.specifier}'"
    try:
        found = version(one.name)
    except PackageNotFoundError:
        return Finding(one.name, "problem", "not installed", hint)
    if not one.specifier.contains(found, prereleases=True):
        return Finding(one.name, "problem", f"{found}, and {one.specifier} is needed", hint)
    return Finding(one.name, "ok", found)


def extras() -> Iterator[Finding]:
    """What the package can do more where other libraries are there: its extras, and trackers of training."""
    try:
        about = distribution("latent-tokens")
    except PackageNotFoundError:
        return
    needed = [Requirement(text) for text in about.requires or []]
    for extra in about.metadata.get_all("Provides-Extra") or []:
        own = [one for one in needed if one.marker is not None and one.marker.evaluate({"extra": extra})]
        wrong = [finding for finding in map(installed, own) if finding.verdict != "ok"]
        if wrong and extra != "dev":
            said = ", ".join(f"{finding.about} ({finding.found})" for finding in wrong)
            yield Finding(
                f"extra {extra}", "note", f"missing: {said}", f"in a clone: pip install -e '.[{extra}]'"
            )
        elif extra != "dev":
            yield Finding(f"extra {extra}", "ok", ", ".join(one.name for one in own))
    found = [name for name in get_args(TrackerName) if find_spec(name) is not None]
    yield Finding(
        "trackers",
        "ok" if found else "note",
        ", ".join(found) or "none",
        "" if found else "pip install tensorboard, for train --track",
    )


def disk(folder: Path) -> Finding:
    """The room on the disk of a folder."""
    free = shutil.disk_usage(folder).free
    said, hint = f"{free / GIGABYTE:,.1f} GB free", "free some, or write elsewhere with --out"
    if free < TOO_LITTLE:
        return Finding(
            "disk", "problem", f"{said}; a run with its states takes {TOO_LITTLE / GIGABYTE:.1f}", hint
        )
    if free < LITTLE:
        return Finding("disk", "note", f"{said}; the paper's data sets take {LITTLE / GIGABYTE:.0f}", hint)
    return Finding("disk", "ok", said)


def writing(folder: Path) -> Finding:
    """Whether files can be written to a folder."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(b"latent-tokens")
    except OSError as error:
        return Finding(
            "folder",
            "problem",
            f"{folder} cannot be written ({error.strerror})",
            "go to another, or name one with --out",
        )
    return Finding("folder", "ok", f"{folder} can be written")
