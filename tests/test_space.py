"""The files of a Space: its header has the required entries, and its page has the models in it."""

import re
import subprocess
import sys

import yaml
from PIL import Image

from helpers.documentation import ROOT

PAGE = (ROOT / "src/latent_tokens/page/page.html").read_text()


def test_make_space_writes_a_static_space(tmp_path):
    folder = tmp_path / "space"
    run = f"PYTHON={sys.executable}"
    subprocess.run(["make", "space", f"OUT={folder}", run], cwd=ROOT, check=True, capture_output=True)
    head = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    assert (head["sdk"], head["license"]) == ("static", "apache-2.0")
    assert len(head["short_description"]) <= 60
    names = {path.name for path in folder.iterdir()}
    assert {"README.md", "card.png", "sudoku-6-mdm.json", "sudoku-9-scdm.json"} < names
    assert "sudoku-6-scdm" in (folder / head["app_file"]).read_text()


def test_picture_of_links_to_the_page_has_its_size():
    address = re.search(r'<meta property="og:image" content="([^"]+)">', PAGE)[1]
    assert address.endswith(".github.io/latent-tokens/page/card.png")
    with Image.open(ROOT / "docs" / address.rpartition("/")[2]) as card:
        size = [re.search(rf'"og:image:{side}" content="(\d+)"', PAGE)[1] for side in ("width", "height")]
        assert [str(length) for length in card.size] == size
