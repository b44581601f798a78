"""Dependencies have bounds, are listed with their licenses, and are imported on first use only."""

import re
import subprocess
import sys
import tomllib

import pytest

from helpers.documentation import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS = [*PROJECT["dependencies"], *EXTRAS["text"], *EXTRAS["lm-eval"], *EXTRAS["lora"]]


def test_every_dependency_is_bounded_and_listed():
    page = (ROOT / "docs" / "install.md").read_text()
    listed = re.findall(r"^\| ([a-z_]+)(?: \(extra `(?:text|lm-eval|lora)`\))? \|", page, re.M)
    assert listed[1:] == [re.match(r"[a-z_]+", one)[0] for one in OURS]
    for one in OURS:
        assert re.fullmatch(r"[a-z_]+>=[0-9.]+,<[0-9.]+", one), one
    assert len(PROJECT["dependencies"]) < 15


def test_every_extra_that_is_named_exists():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *(ROOT / "src").rglob("*.py")]
    text = "".join(path.read_text() for path in pages)
    named = {name for names in re.findall(r"-e ['\"]\.\[([a-z,-]+)\]", text) for name in names.split(",")}
    assert {"text", "lm-eval"} <= named <= set(EXTRAS)


@pytest.mark.parametrize("module", ["latent_tokens", "latent_tokens.cli"])
def test_import_needs_neither_torch_nor_a_network(module):
    script = f"""
import socket, sys
def refuse(*arguments): raise SystemExit("reached for the network")
socket.socket.connect = socket.getaddrinfo = refuse
import {module}
heavy = ("torch", "transformers", "matplotlib", "accelerate", "lm_eval")
sys.exit(any(name in sys.modules for name in heavy))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
