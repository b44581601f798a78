"""The placeholder of the public address: where it occurs, and the script that replaces it."""

import re
import shutil
import subprocess
import sys

import pytest

from helpers.documentation import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import set_owner

HOLDING = {
    ".github/ISSUE_TEMPLATE/config.yml",
    "CITATION.cff",
    "README.md",
    "SECURITY.md",
    "docs/index.md",
    "docs/install.md",
    "examples/tour.ipynb",
    "pyproject.toml",
    "src/latent_tokens/sharing/hub.py",
    "src/latent_tokens/page/page.html",
    "tests/test_page.py",
}


def test_placeholder_is_in_the_listed_files():
    assert {str(path.relative_to(ROOT)) for path in set_owner.holding()} == HOLDING


def test_placeholder_has_three_spellings():
    for name in HOLDING:
        text = (ROOT / name).read_text()
        for address in set_owner.ADDRESSES:
            text = text.replace(address, "")
        assert not re.search(r"OWNER(/latent-tokens|\.github)", text), name


def test_set_owner_replaces_every_address(tmp_path):
    for name in HOLDING:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    changed = set_owner.set_owner("some-lab", tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in changed} == HOLDING
    assert set_owner.holding(tmp_path) == []
    assert "https://github.com/some-lab/latent-tokens" in (tmp_path / "README.md").read_text()
    assert "https://some-lab.github.io/latent-tokens" in (tmp_path / "CITATION.cff").read_text()


@pytest.mark.parametrize("name", ["", "two words", "-lab", "lab-", "a" * 40, "lab/other"])
def test_set_owner_refuses_other_names(name, tmp_path):
    with pytest.raises(ValueError, match="is not a GitHub name"):
        set_owner.set_owner(name, tmp_path)
