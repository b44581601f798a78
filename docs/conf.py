"""Sphinx settings of the manual (make docs). The root is the repository, so relative links of pages work."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tokenize
import tomllib
from io import StringIO
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts"))

from cli_page import explained  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project, release, copyright = PROJECT["name"], PROJECT["version"], "the latent-tokens team, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
PROJECT_PAGES = ["CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "SECURITY.md"]
include_patterns = ["docs/*.md", "results/*/*.md", "research/*.md", "research/*/*.md", *PROJECT_PAGES]
# Directories that are not searched for pages: the environment alone has tens of thousands of files.
exclude_patterns = [".*", "runs", "site", "src", "tests", "**/node_modules"]
highlight_language = "text"

myst_enable_extensions = ["html_image"]  # a figure with its width is a tag
myst_heading_anchors = 3

default_role = "code"  # docstrings write names in single backticks
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 110
add_module_names = False

html_theme = "furo"
html_title = f"latent-tokens {release}"
html_static_path = ["static"]
html_js_files = ["code.js"]
html_css_files = ["code.css"]
html_extra_path = ["front"]  # index.html, which leads to docs/index.html


PICTURE = re.compile(
    r'<picture><source media="[^"]+" srcset="([^"]+)">\n<img src="([^"]+)"([^>]+)></picture>'
)


HIDDEN = re.compile(r"<!-- published:.*?-->\n?|<!-- (?:unpublished|end) -->", re.S)  # scripts/set_owner.py


def with_title(app: Sphinx, page: str, source: list[str]) -> None:
    """Mark pages outside of the contents, and add a title to tables, which programs write, and their figure.

    A picture with a dark variant becomes two images, of which the theme shows one.
    """
    both = r'<img class="only-light" src="\2"\3><img class="only-dark" src="\1"\3>'
    source[0] = PICTURE.sub(both, HIDDEN.sub("", source[0]))
    if page.startswith("research/") and not page.endswith("/table"):
        source[0] = f"---\norphan: true\n---\n{source[0]}"
    elif page == "docs/cli":
        source[0] = explained(source[0])
    elif page.startswith(("results/", "research/")):
        name = page.rpartition("/")[2]
        has_figure = (ROOT / f"{page}.png").is_file()
        figure = f'<img src="{name}.png" alt="The figure of this table" width="820">\n\n' * has_figure
        source[0] = f"---\norphan: true\n---\n# {name}\n\n{figure}{source[0]}"


def fields_of(kind: type) -> list[str]:
    """Return the fields of a class as list lines: annotation, default and comment, from the source."""
    source = inspect.getsource(kind)
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    comments = {
        token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT
    }
    lines = []
    for line in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(line, ast.AnnAssign):
            comment = f": {comments[line.lineno]}" if line.lineno in comments else ""
            lines.append(re.sub(r"' (\w)'", r"'\1'", f"* ``{ast.unparse(line)}``{comment}"))
    return lines


def is_record(kind: Any) -> bool:
    """Return whether the comments of a class's fields document it. Configs have docstrings instead."""
    return (
        inspect.isclass(kind)
        and (hasattr(kind, "__dataclass_fields__") or hasattr(kind, "_fields"))
        and not kind.__name__.endswith("Config")
    )


def without_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Omit the signature of a record, whose fields are listed, and that of a protocol."""
    return ("", "") if is_record(obj) or getattr(obj, "_is_protocol", False) else None


def with_fields(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Add the fields of a record to its docstring."""
    if what == "class" and is_record(obj):
        end = lines.index(".. rubric:: Example") if ".. rubric:: Example" in lines else len(lines)
        lines[end:end] = ["", *fields_of(obj), ""]


def setup(app: Sphinx) -> None:
    """Register the functions of this module with Sphinx."""
    app.connect("source-read", with_title)
    app.connect("autodoc-process-signature", without_signature)
    app.connect("autodoc-process-docstring", with_fields)
