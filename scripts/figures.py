"""Draw the manual's figures from the code that they show: python scripts/figures.py [FOLDER] [--format png].

Without FOLDER they are written into docs/figures, and latents.png and latents.svg into docs. Each .svg of
docs/figures contains the numbers that it was drawn from. tests/test_manual.py compares them with the code.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from latent_tokens import METHODS, Decoding, generate
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.cost import cached_cost, relative_cost
from latent_tokens.core.decoding import num_candidates_and_latents
from latent_tokens.core.layout import next_layout
from latent_tokens.core.objective import corrupt
from latent_tokens.demo import draw_bundled_figure
from latent_tokens.evaluation.report import darken
from latent_tokens.palette import PAGE

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
LENGTH, CLEAN, MASK = 8, 3, 9
NUM_STEPS = 3  # of the figure of decoding steps
ORDER = [2, 5, 0, 7, 1, 6, 3, 4]  # of the any-order methods: three positions are clean, position 7 is next
SHOWN = ("mdm", "sidm", "scdm", "esolm", "arm", "ar-mtp", "ar-mtp-window-3", "ar-ntp-3")
COLORS = {
    "clean": PAGE["soft"],
    "latent": PAGE["orange-line"],
    "candidate": PAGE["blue"],
    "left out": PAGE["faint"],
}
INK = PAGE["ink"]
ON_ORANGE = "#1b1b1b"  # on light and dark pages

Data = dict[str, Any]


def counting(ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return logits that depend on the position alone, so that a figure does not depend on weights."""
    return (torch.arange(MASK + 1) == positions[..., None]) * (1.0 + positions[..., None] * 3 % 7)


counting.mask_id = MASK


def steps() -> Data:
    """Return the first three steps of `generate` on eight positions, two of them given: n = 2, k = 2."""
    known = torch.zeros(1, LENGTH, dtype=torch.bool)
    known[0, [2, 5]] = True
    seen: list[Data] = []

    def on_step(step: Any) -> None:
        clean = step.layout.positions[0, : int(step.layout.num_clean[0])].tolist()
        roles = {"clean": clean, "latents": step.latents[0], "candidates": step.candidates[0]}
        seen.append({**roles, "chosen": step.chosen[0].tolist()})

    tokens = torch.full((1, LENGTH), 1)
    generate(counting, METHODS["scdm"], tokens, known, Decoding(2, 2), seed=1, on_step=on_step)
    return {"steps": seen[:NUM_STEPS]}


def masks() -> Data:
    """Return the input and the attention mask of each method if three of eight positions are clean.

    There are two latent tokens if their number is free, else the method's own number.
    """
    found = {}
    for name in SHOWN:
        method = METHODS[name]
        order = torch.tensor([list(range(LENGTH)) if method.is_left_to_right else ORDER])
        clean, left, one = (np.array([count]) for count in (CLEAN, LENGTH - CLEAN, 1))
        decoding = Decoding(1, latents=2 if method.latent_control == "free" else None)
        candidates, latents = num_candidates_and_latents(method, decoding, clean, left, one)
        layout = next_layout(order, *map(torch.from_numpy, (clean, candidates, latents)))
        found[name] = {
            "positions": layout.positions[0].tolist(),
            "clean": CLEAN,
            "latents": int(latents[0]),
            "mask": dense_mask(method.attention, layout)[0].int().tolist(),
        }
    return found


def training() -> Data:
    """Return a training pass with three of eight positions clean: mask, scored slots, latents of each."""
    found = {}
    for name in ("mdm", "sidm", "scdm", "esolm", "ar-mtp-window-3", "ar-ntp-3"):
        method = METHODS[name]
        tokens, known = torch.ones(1, LENGTH, dtype=torch.int64), torch.zeros(1, LENGTH, dtype=torch.bool)
        generator, drawn = torch.Generator(), None
        while drawn is None or int(drawn.layout.num_clean) != CLEAN:
            drawn = corrupt(method, tokens, known, generator, mask_id=MASK)
        mask = dense_mask(method.attention, drawn.layout)[0]
        others = mask & ~drawn.layout.clean & ~torch.eye(len(mask), dtype=torch.bool)
        scored = drawn.scored[0]
        found[name] = {
            "clean": CLEAN,
            "mask": mask.int().tolist(),
            "scored": scored.int().tolist(),
            "latents": others.sum(1)[scored].tolist(),
        }
    return found


def cost() -> Data:
    """Return the relative cost of a 9x9 board over n, by the paper's formula."""
    latents = list(range(82))
    curves: dict[str, Callable[[int], float]] = {
        "k = 1": lambda n: relative_cost(81, 1, n),
        "k = 8": lambda n: relative_cost(81, 8, n),
        "k = 1, with a KV cache (esolm)": lambda n: cached_cost(81, 1, n),
    }
    return {
        "latents": latents,
        "curves": {name: [round(curve(n), 6) for n in latents] for name, curve in curves.items()},
    }


def tutorial() -> Data:
    """Return the table of the tutorial, whose curve it draws."""
    page = (FIGURES.parent / "tutorial.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| scdm \| uniform \| 1 \| (\w+) \| ([\d.]+) \| .* \| ([\d.]+)x \|$", page, re.M)
    return {"points": [{"n": n, "valid": float(valid), "cost": float(cost)} for n, valid, cost in rows]}


def draw_tutorial(data: Data) -> Figure:
    """Return the figure that the code of the tutorial draws."""
    sheet = Figure(figsize=(5, 3.5), layout="constrained")
    axes = sheet.subplots()
    points = data["points"]
    axes.plot([each["cost"] for each in points], [each["valid"] for each in points], marker="o")
    for each in points:
        axes.annotate(f"n = {each['n']}", (each["cost"], each["valid"]), (4, -14), textcoords="offset points")
    axes.set(xlabel="tokens, relative to all", ylabel="valid boards, %", ylim=(0, 100))
    return sheet


def draw_steps(data: Data) -> Figure:
    """Return the figure of decoding steps, one row per step: the sequence, and the input of the network."""
    sheet = Figure(figsize=(9.5, 2.4), layout="constrained")
    left, right = sheet.subplots(1, 2)
    for row, step in enumerate(data["steps"]):
        names = {"clean": "clean", "latent": "latents", "candidate": "candidates"}
        role = {place: kind for kind, name in names.items() for place in step[name]}
        for place in range(LENGTH):
            text = str(place) if place in role else ""
            cell(left, row, place, role.get(place, "left out"), text, ring=place in step["chosen"])
        for slot, place in enumerate(role):
            cell(right, row, slot, role[place], str(place), ring=place in step["chosen"])
    frame(left, "Sequence: role of each position", "position")
    frame(right, "Input of the network: [clean | latents | candidates]", "slot")
    left.set_ylabel("step")
    num_steps = len(data["steps"])
    for axes in (left, right):
        axes.set(xlim=(0, LENGTH), ylim=(num_steps, 0))
        axes.set_yticks([row + 0.5 for row in range(num_steps)], list(range(1, num_steps + 1)))
        axes.set_xticks([place + 0.5 for place in range(LENGTH)], list(range(LENGTH)))
    legend(sheet, {role: role for role in COLORS}, "ring: the candidate that is decoded")
    return sheet


def draw_masks(data: Data) -> Figure:
    """Return one panel per method. A filled cell: the query slot of its row attends to the key slot."""
    sheet = Figure(figsize=(9, 5.9), layout="constrained")
    for axes, (name, seen) in zip(sheet.subplots(2, 4).flat, data.items(), strict=True):
        roles = ["clean"] * seen["clean"] + ["latent"] * seen["latents"]
        roles += ["candidate"] * (len(seen["positions"]) - len(roles))
        grid(axes, seen["mask"], roles)
        label_slots(axes, seen["positions"], roles)
        axes.set_title(f"{name}, n = {seen['latents']}", fontsize=10)
    names = {role: role for role in list(COLORS)[:3]}
    legend(sheet, names, "row: query slot, column: key slot, numbered by position")
    return sheet


def draw_training(data: Data) -> Figure:
    """Return one panel per method. At the right is the number of latent tokens of each scored slot."""
    sheet = Figure(figsize=(9.5, 6.2), layout="constrained")
    for axes, (name, seen) in zip(sheet.subplots(2, 3).flat, data.items(), strict=True):
        roles = [
            "clean" if slot < seen["clean"] else "candidate" if scored else "latent"
            for slot, scored in enumerate(seen["scored"])
        ]
        grid(axes, seen["mask"], roles)
        counts = iter(seen["latents"])
        for slot, scored in enumerate(seen["scored"]):
            if scored:
                text = f"n = {next(counts)}"
                axes.text(len(roles) + 0.25, slot + 0.5, text, va="center", fontsize=8.5, color=INK)
        axes.set(xlim=(-0.2, LENGTH + 1.7), ylim=(LENGTH, -0.2), xticks=[], yticks=[])
        axes.set_xlabel("key slot", fontsize=9)
        axes.set_ylabel("query slot", fontsize=9)
        axes.set_title(name, fontsize=10)
    names = {"clean": "clean", "candidate": "masked, scored", "latent": "masked, not scored"}
    legend(sheet, names, "n: number of other masked tokens that the slot attends to")
    return sheet


def draw_cost(data: Data) -> Figure:
    """Return the figure of relative cost: one curve per setting."""
    sheet = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = sheet.subplots()
    colors = (PAGE["blue"], PAGE["green"], PAGE["orange-line"])
    for (name, curve), color in zip(data["curves"].items(), colors, strict=True):
        axes.plot(data["latents"], curve, color=color, label=name)
    axes.set(xlabel="number of latent tokens n (board of 81 cells)", ylabel="relative cost (1: n = all)")
    axes.set(xlim=(0, 81), ylim=(0, 1.05))
    axes.legend(fontsize=8.5, frameon=False, loc="lower right")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return sheet


def cell(axes: Axes, row: float, column: float, role: str, text: str = "", ring: bool = False) -> None:
    """Draw one filled square with a number in it."""
    color = "white" if role in ("clean", "candidate") else ON_ORANGE
    axes.add_patch(
        Rectangle((column + 0.04, row + 0.04), 0.92, 0.92, facecolor=COLORS[role], edgecolor="none")
    )
    if ring:
        corner = (column + 0.08, row + 0.08)
        axes.add_patch(Rectangle(corner, 0.84, 0.84, facecolor="none", edgecolor=INK, linewidth=2))
    axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9, color=color)


def grid(axes: Axes, mask: list[list[int]], roles: list[str]) -> None:
    """Draw a mask: slots that are attended to in the color of their role, the others pale."""
    for q, row in enumerate(mask):
        for k, is_attended in enumerate(row):
            cell(axes, q, k, roles[k] if is_attended else "left out")
    axes.set_aspect("equal")
    frame(axes, "", "")


def label_slots(axes: Axes, positions: list[int], roles: list[str]) -> None:
    """Draw the positions of the slots along both sides, in the colors of their roles."""
    places = [slot + 0.5 for slot in range(len(positions))]
    axes.set(xlim=(0, LENGTH), ylim=(LENGTH, 0))
    axes.xaxis.tick_top()
    axes.set_xticks(places, positions)
    axes.set_yticks(places, positions)
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        for label, role in zip(labels, roles, strict=True):
            label.set(color=COLORS[role], fontsize=11, fontweight="bold")


def frame(axes: Axes, title: str, below: str) -> None:
    """Remove spines and tick marks, and set the title and the label below."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8.5)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(below, fontsize=9)


def legend(sheet: Figure, names: dict[str, str], also: str) -> None:
    """Draw the legend below: the color of each role, and one more line."""
    entries = [
        *(Patch(facecolor=COLORS[role], label=name) for role, name in names.items()),
        Patch(facecolor="none", label=also),
    ]
    sheet.legend(handles=entries, loc="outside lower center", ncols=len(entries), fontsize=8.5, frameon=False)


DRAWN: dict[str, tuple[Callable[[], Data], Callable[[Data], Figure]]] = {
    "steps": (steps, draw_steps),
    "masks": (masks, draw_masks),
    "training": (training, draw_training),
    "cost": (cost, draw_cost),
    "tutorial": (tutorial, draw_tutorial),
}


def held(svg: Path) -> Data:
    """Return the numbers that a figure was drawn from."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", svg.read_text(encoding="utf-8"), re.S)
    return {} if found is None else json.loads(unescape(found[1]))


def save(name: str, data: Data, path: Path) -> None:
    """Draw a figure from these numbers. An .svg contains them, and has the same bytes each time.

    NAME-dark.svg next to it is for dark pages.
    """
    about = {"Date": None, "Description": json.dumps(data)} if path.suffix == ".svg" else {}
    with mpl.rc_context({"svg.hashsalt": name}):
        sheet = DRAWN[name][1](data)
        sheet.savefig(path, dpi=110, metadata=about)
        if path.suffix == ".svg":
            darken(sheet)
            sheet.savefig(path.with_name(f"{path.stem}-dark.svg"), metadata={"Date": None})


def main() -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FIGURES)
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, (measured, _) in DRAWN.items():
        path = asked.folder / f"{name}.{asked.format}"
        save(name, measured(), path)
        print(path)
    folder = FIGURES.parent if asked.folder.samefile(FIGURES) else asked.folder
    for path in draw_bundled_figure(folder / "latents.png"):
        print(path)


if __name__ == "__main__":
    main()
