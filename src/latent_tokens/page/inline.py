"""The scripts of the page: ES modules joined into one script, in the order of their imports."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parent / "js"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?function\b|const\b|class\b)", re.M)
NAME = re.compile(r"^(?:async )?(?:function\*?|const|let|class) ([\w$]+)", re.M)
OTHER = re.compile(r"^(?:import|export)\b.*|^(?:const|let) [\[{].*", re.M)


def script_of(entry: str, folder: Path = SOURCES) -> str:
    """Return a module and all that it imports as one script, in which no name is global.

    Args:
        entry: the name of the module, without .js.
        folder: where the modules are.

    Raises:
        ValueError: a module has an import or export of another form than `import {a} from "./x.js"`
            and `export [async] function[*]|const|class`, imports itself, or shares a top-level name.
    """
    bodies: dict[str, str] = {}

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(f"{name}.js: imports itself, through {' and '.join(importers)}.")
        if name in bodies:
            return
        text = (folder / f"{name}.js").read_text(encoding="utf-8")
        for imported in IMPORT.findall(text):
            add(imported, (*importers, name))
        bodies[name] = EXPORT.sub("", IMPORT.sub("", text))

    add(entry, ())
    owners: dict[str, str] = {}
    for module, body in bodies.items():
        if statement := OTHER.search(body):
            raise ValueError(f"{module}.js: {statement[0]!r} cannot be joined. Use another form.")
        for name in NAME.findall(body):
            if (owner := owners.setdefault(name, module)) != module:
                raise ValueError(f"{module}.js: {name} is also in {owner}.js. Rename one.")
    return '"use strict";\n(() => {\n' + "\n".join(bodies.values()) + "})();\n"
