"""The page as one file: page.html with its style, its scripts, models or recorded decodes, and its policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from latent_tokens.address import addresses
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import OrderName
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.rows import read_results
from latent_tokens.page.models import (
    model_entry,
    weights_entry,
    weights_of,
    why_not_in_page,
    why_recorded,
    why_too_large,
)
from latent_tokens.storage import Json, read_description, sha256_of
from latent_tokens.trace.examples import PAGE_RECORD, SENTENCES
from latent_tokens.trace.record import LoadedModel, Start, StartSettings, TraceRecord

FOLDER = Path(__file__).parent
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?function\b|const\b|class\b)", re.M)
MOST_BYTES = 2_000_000  # of the traces in a page
CURVE = ("sudoku-6", "top_prob", 4)  # task, order and k of the curve of accuracy over tokens

# With the address of the repository only: what other sites show for a link to the page, and its own links.
SOCIAL_TAGS = """\
<meta property="og:url" content="{pages}/page/">
<meta property="og:image" content="{pages}/page/card.png">
<meta property="og:image:width" content="1200">
<meta property="og:image:height" content="630">
<meta property="og:image:alt" content="A pointer taps a square of a Sudoku, and a wrong 2 becomes a right 6">
<meta name="twitter:card" content="summary_large_image">
"""
PROJECT_LINKS = """\
    <a href="{pages}">Manual</a>
    <a href="{repository}">Code</a>
"""


def page_of(models: Sequence[LoadedModel]) -> str:
    """Return the page that decodes with these models in the browser.

    Args:
        models: models of different names, the first of which the page opens with.

    Raises:
        ValueError: the engine cannot decode with a model, or the weights exceed MOST_WEIGHTS.
    """
    check_models(models)
    if reason := why_too_large(models):
        names = " ".join(model.name for model in models)
        raise ValueError(f"{names}: {reason} Name fewer or smaller models.")
    return filled_page(models=models, inside=models)


def site_of(models: Sequence[LoadedModel]) -> dict[str, str]:
    """Return the files of a web site that decodes with these models: the page, and weights next to it.

    The page has the weights of the first model in it, and fetches the others when they are chosen.

    Raises:
        ValueError: the engine cannot decode with a model.
    """
    check_models(models)
    entries = {model.name: weights_entry(model) for model in models[1:]}
    entries |= text_weights(record_of(models))
    weights = {f"{name}.json": json.dumps(entry) for name, entry in entries.items()}
    return {"index.html": filled_page(models=models, inside=models[:1]), **weights}


def check_models(models: Sequence[LoadedModel]) -> None:
    """Raise ValueError if the engine of the page cannot decode with a model."""
    instead = "Leave it out, or record one decode: latent-tokens trace RUN PUZZLE -o FILE."
    for model in models:
        if reason := why_not_in_page(model):
            raise ValueError(f"{model.name}: {reason} {instead}")


def page_with(traces: Sequence[TraceRecord], caption: str, models: Sequence[LoadedModel]) -> str:
    """Return the page that shows recorded decodes.

    The page decodes with the models if `why_recorded` accepts them and `why_not_repeated` the
    settings. Else it has the recorded steps only, and states why.

    Args:
        traces: one decode, or two to compare.
        caption: how the puzzle was chosen, empty if it was not.
        models: the models of the decodes.

    Raises:
        ValueError: the traces exceed MOST_BYTES.
    """
    size = len(json.dumps(traces, separators=(",", ":")))
    if size > MOST_BYTES:
        raise ValueError(
            f"the decode has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB. "
            "Use fewer latent tokens, a smaller board, or one decode."
        )
    settings = [trace["start"]["settings"] for trace in traces]
    reasons = [why_recorded(models), *map(why_not_repeated, settings)]
    reason = next(filter(None, reasons), "")
    own = [] if reason else list({model.name: model for model in models}.values())
    words = f"These are recorded steps: their settings are fixed. {reason}" if reason else ""
    return filled_page(models=own, inside=own, traces=traces, caption=caption, reason=words)


def why_not_repeated(settings: StartSettings) -> str:
    """Return why the engine cannot decode with these settings, in one sentence, or ""."""
    if settings["order"] not in get_args(OrderName):
        return f"A page does not decode in the order {settings['order']}."
    if settings.get("off_distribution", False):
        return "A page does not decode off-distribution."
    return ""


def entry_with(model: LoadedModel, start: Start, caption: str) -> dict[str, Any]:
    """Return the entry of a model, with the recorded puzzle as its first example."""
    entry = model_entry(model)
    cells = ["." if token is None else str(token + 1) for token in start["tokens"]]
    recorded = {
        "puzzle": " ".join(cells),
        "label": "the recorded puzzle",
        "caption": caption,
        "settings": None,
    }
    return {**entry, "examples": [recorded, *entry["examples"]]}


def record_of(models: Sequence[LoadedModel]) -> Any:
    """Return what the page shows of a bundled model, if one of the models is that one."""
    record = json.loads(PAGE_RECORD.read_text())
    hashes = {model.name: sha256_of(weights_of(model)) for model in models}
    return record if hashes.get(record["model"]) == record["sha256"] else None


def sentences_of(record: Any) -> Any:
    """Return the sentences of the page, if they are stored and it shows what is stored of a bundled model."""
    return None if record is None or not SENTENCES.is_file() else json.loads(SENTENCES.read_text())


def text_weights(record: Any) -> dict[str, dict[str, Json]]:
    """Return the entry of the text model of the page by its name, if it shows sentences."""
    sentences = sentences_of(record)
    if sentences is None:
        return {}
    name = sentences["model"]
    config = read_description(BUNDLED / name, "config.json", "model")
    weights = base64.b64encode((BUNDLED / name / "model.safetensors").read_bytes()).decode()
    return {
        name: {
            "config": {key: config[key] for key in ("model", "method", "task")},
            "weights": weights,
        }
    }


def stored_curve() -> list[dict[str, Any]]:
    """Return the points of bundled/results.jsonl that the page plots: accuracy over relative cost."""
    points = []
    for row in read_results(BUNDLED / "results.jsonl"):
        is_in_curve = (row["task"], row["order"], row["candidates"]) == CURVE
        if not is_in_curve and (row["task"], row["method"]) != ("sudoku-6", "ar-mtp"):
            continue
        accuracy = row["valid"] / 100
        low, high = wilson(accuracy, row["num_samples"])
        point = {key: row[key] for key in ("method", "latents")}
        interval = {"accuracy": accuracy, "low": low, "high": high}
        points.append({**point, **interval, "relative": row["relative_cost"]})
    return points


def left_to_right_words(method: str, latents: int | str) -> str:
    """Return the accuracy and cost of a bundled 6x6 model from left to right, in words."""
    setting = {"task": "sudoku-6", "order": "left_to_right", "method": method, "latents": latents}
    row = next(
        row for row in read_results(BUNDLED / "results.jsonl") if setting.items() <= row.items()
    )
    return f"{row['valid']:.1f}% valid at {row['relative_cost']:.2f}\u00d7"


def still_boards(record: dict[str, Any]) -> str:
    """Return the board of the first scene without and with its guess, for a browser without JavaScript."""
    board = record["corrected"]
    predictions = board["predictions"]
    at = board["others"].index(board["latent"])
    wrong = predictions["without"][0][0]
    right = predictions["with_one"][at][0][0]
    guess = predictions["guesses"][at][0][0]
    alone = {board["target"]: ("target bad", wrong)}
    guessed = {board["target"]: ("target good", right), board["latent"]: ("latent", guess)}
    pictures = "".join(still_board(board["puzzle"], shown) for shown in (alone, guessed))
    return (
        f'<div class="still-boards">{pictures}<p>A model must fill the blue square. Alone it says '
        f"{wrong + 1}, which is wrong. If it also guesses the orange square, it says {right + 1}, which is "
        "right. The guess is thrown away: it is a latent token.</p></div>"
    )


def still_board(puzzle: str, shown: dict[int, tuple[str, int]]) -> str:
    """Return a 6x6 board with the predictions of some cells."""
    cells = []
    for index, sign in enumerate(puzzle):
        kind, text = ("given", sign) if sign != "." else ("", "")
        if index in shown:
            kind, token = shown[index]
            text = str(token + 1)
        edges = f"{' right-edge' if index % 6 == 2 else ''}{' low-edge' if index // 6 in (1, 3) else ''}"
        cells.append(f'<div class="cell{edges} {kind}">{text}</div>')
    rows = "".join(f'<div class="row">{"".join(cells[i : i + 6])}</div>' for i in range(0, 36, 6))
    return f'<div class="board"><div class="grid sudoku">{rows}</div></div>'


def filled_page(
    *,
    models: Sequence[LoadedModel],
    inside: Sequence[LoadedModel],
    traces: Sequence[TraceRecord] = (),
    caption: str = "",
    reason: str = "",
) -> str:
    """Return page.html with contents. Weights come last, so that the page is drawn before they arrive.

    Args:
        models: those that the page offers.
        inside: the first of them, whose weights are in the page.
        traces: recorded decodes.
        caption: how the puzzle of the traces was chosen.
        reason: why the page cannot decode it again.
    """
    style = read_asset("page.css")
    script = script_of("page")
    entries = (
        [entry_with(model, traces[0]["start"], caption) for model in models]
        if traces
        else [model_entry(model) for model in models]
    )
    record = None if traces else record_of(models)
    contents = {
        "entries": entries,
        "record": record,
        "sentences": sentences_of(record),
        "curve": [] if traces else stored_curve(),
        "caption": caption,
        "reason": reason,
    }
    entries_inside = dict(enumerate(map(weights_entry, inside)))
    if len(inside) == len(models):
        entries_inside |= {len(models): entry for entry in text_weights(record).values()}
    weights = [
        f'<script type="application/json" id="weights-{index}">{inline_json(entry)}</script>'
        for index, entry in entries_inside.items()
    ]
    address = addresses()
    parts = {
        "policy": policy(f"\n{script}", f"\n{style}", fetches=len(inside) < len(models)),
        "style": style,
        "card": SOCIAL_TAGS.format(**address) if address else "",
        "links": PROJECT_LINKS.format(**address) if address else "",
        "contents": inline_json(contents),
        "traces": inline_json(traces),
        "still": "" if record is None else still_boards(record),
        "scdm": left_to_right_words("scdm", 4),
        "mdm": left_to_right_words("mdm", "all"),
        "worker": script_of("worker"),
        "script": script,
        "weights": "\n".join(weights),
    }
    return re.sub(r"\{\{([a-z]+)\}\}", lambda match: parts[match[1]], read_asset("page.html"))


def script_of(entry: str, folder: Path = FOLDER / "js") -> str:
    """Return a module and all that it imports as one script, in which no name is global.

    Modules have no other imports and exports than those of `IMPORT` and `EXPORT`, and no
    top-level name twice, which a test checks.

    Args:
        entry: the name of the module, without .js.
        folder: where the modules are.
    """
    bodies: dict[str, str] = {}

    def add(name: str) -> None:
        if name in bodies:
            return
        text = (folder / f"{name}.js").read_text(encoding="utf-8")
        for imported in IMPORT.findall(text):
            add(imported)
        bodies[name] = EXPORT.sub("", IMPORT.sub("", text))

    add(entry)
    return '"use strict";\n(() => {\n' + "\n".join(bodies.values()) + "})();\n"


def inline_json(content: object) -> str:
    """Return JSON that can stand in a script element: no </script> is within."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def read_asset(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def policy(script: str, style: str, *, fetches: bool = False) -> str:
    """Return the Content-Security-Policy that allows the page's own script and style.

    The engine compiles WebAssembly, in a worker that is made from its own text. Only a page of a web
    site makes requests: to its own folder, for weights.
    """
    directives = [
        "default-src 'none'",
        f"script-src {digest(script)} 'wasm-unsafe-eval'",
        "worker-src blob:",
        f"style-src {digest(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*directives, "connect-src 'self'"] if fetches else directives)


def digest(text: str) -> str:
    """Return the source of a policy that allows exactly this inline text."""
    encoded = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{encoded}'"
