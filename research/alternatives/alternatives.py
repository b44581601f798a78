"""Latent tokens against loops, registers, more samples and remasking, by floating-point operations.

python research/alternatives/alternatives.py                    # print table.md from the rows
python research/alternatives/alternatives.py --draw-figure      # draw the figure, too
python research/alternatives/alternatives.py --measure boards   # train and measure what is missing

The directory of --runs has the models of research/order, and gets the others.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import tyro

import latent_tokens as lt

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent), str(HERE.parent / "order"), str(HERE.parent / "remasking")]

import larger  # noqa: E402
import order as by_order  # noqa: E402
import remasking  # noqa: E402
from networks import QUIET, Looped, Quiet, Registers, flops  # noqa: E402
from tables import (  # noqa: E402
    Cell,
    Claim,
    Line,
    claims_table,
    compared,
    error_bars,
    lines_in,
    mean_and_bounds,
)

from latent_tokens.evaluation.report import as_markdown, legend_of, save_sheet, style  # noqa: E402
from latent_tokens.evaluation.rows import append_result, read_results  # noqa: E402
from latent_tokens.palette import METHOD_COLORS  # noqa: E402
from latent_tokens.paper.run import ready, ready_model  # noqa: E402
from latent_tokens.training.checkpoint import saved_step  # noqa: E402

SEEDS = range(3)
STEPS = 3_400  # of a plain network
SAMPLES = 300
LENGTH = 36
FIXED, ADAPTIVE = "left to right", "top-prob"
REMASKED = "remasked every second step"
CANDIDATES = {FIXED: 1, ADAPTIVE: by_order.CHOICES[ADAPTIVE]["candidates"]}


class Network(NamedTuple):
    """A network by its kind, looped, registers or quiet, and the number of its registers."""

    kind: str
    method: str
    registers: int = 0

    @property
    def name(self) -> str:
        """The name of its directory, without the seed."""
        return f"{self.kind}{self.registers or ''}-{self.method}"

    def build(self, seed: int) -> lt.Transformer:
        """Return it untrained."""
        torch.manual_seed(seed)
        task = lt.TASKS["sudoku-6"]
        shape: Any = ("nano", task.vocab_size, task.length)
        kinds = {"looped": Looped, "quiet": Quiet, "registers": partial(Registers, self.registers)}
        return kinds[self.kind](*shape, positions="learned", gelu="exact")

    def steps(self) -> int:
        """Return the steps that take as many operations as `STEPS` of a plain network."""
        net = plain()
        loops = range(1, Looped.most_loops + 1) if self.kind == "looped" else (1,)
        mean = sum(flops(net, LENGTH, number, self.registers) for number in loops) / len(loops)
        return round(STEPS * flops(net, LENGTH) / mean)

    def trained(self, seed: int, runs: Path) -> Path:
        """Train it with the settings of research/order, and return its directory."""
        own = lt.load_method("networks:quiet") if self.kind == "quiet" else None  # also to open it
        folder = runs / "alternatives" / f"{self.name}-{seed}"
        if saved_step(folder) == self.steps():
            return folder
        recipe = by_order.recipe_of("scdm" if self.kind == "quiet" else self.method, seed, runs)
        ready(recipe.data)
        config = replace(recipe.training, out=folder, steps=self.steps(), resume="auto")
        return lt.fit(config, own, net=self.build(seed))


@cache
def plain() -> lt.Transformer:
    """Return a network whose operations are counted. All have its shape."""
    task = lt.TASKS["sudoku-6"]
    return lt.Transformer("nano", task.vocab_size, task.length)


LOOPED = {method: Network("looped", method) for method in ("sidm", "scdm", "mdm")}
REGISTERS = (QUIET, 4 * QUIET)  # as many as the latent tokens without a loss, and more
WITH_REGISTERS = {number: Network("registers", "sidm", number) for number in REGISTERS}
WITHOUT_LOSS = Network("quiet", "quiet")
NUMBERS_OF_LOOPS = {FIXED: (1, 2, 4, 8), ADAPTIVE: (2,)}
TRIES = (1, 2, 4)
SAMPLED = (("sidm", None), ("scdm", 4))
"""Methods, with n, whose samples are compared by their likelihood."""


def looped(method: str, order: str, latents: Any, number: int) -> Cell:
    """Return the setting of a network with loops."""
    return Cell(method, order, latents, f"{number} loops")


def with_registers(order: str, number: int = QUIET) -> Cell:
    """Return the setting of sidm with registers."""
    return Cell("sidm", order, None, f"{number} registers")


def without_loss(order: str) -> Cell:
    """Return the setting of latent tokens without a loss."""
    return Cell("quiet", order, QUIET, "no loss")


def best_of(method: str, latents: Any, tries: int) -> Cell:
    """Return the setting of the most probable of some samples."""
    return Cell(method, FIXED, latents, f"best of {tries}")


def measured() -> Iterator[tuple[Cell, Network]]:
    """Yield each setting with another network."""
    for order, numbers in NUMBERS_OF_LOOPS.items():
        for method in ("sidm", "mdm"):
            yield from ((looped(method, order, None, number), LOOPED[method]) for number in numbers)
        yield from ((with_registers(order, number), net) for number, net in WITH_REGISTERS.items())
        yield without_loss(order), WITHOUT_LOSS
    yield from ((looped("scdm", FIXED, n, Looped.most_loops), LOOPED["scdm"]) for n in (0, 4))


def number_of(cell: Cell, what: str) -> int | None:
    """Return how many loops, registers or samples (best of) a setting has, or None for another kind."""
    variant = cell.variant or ""
    return int(re.sub(r"\D", "", variant)) if what in variant else None


def flops_of(cell: Cell) -> int:
    """Return the operations of a sample: those of each step's clean, latent and candidate slots."""
    net = plain()
    if cell.variant == REMASKED:
        return (2 * LENGTH - 1) * flops(net, LENGTH)
    k = CANDIDATES[cell.order]
    n = {"mdm": LENGTH, "sidm": 0}.get(cell.method, LENGTH if cell.latents == "all" else cell.latents)
    slots = [LENGTH - masked + min(k + n, masked) for masked in range(1, LENGTH + 1)]
    loops, registers = number_of(cell, "loops") or 1, number_of(cell, "registers") or 0
    return (number_of(cell, "best of") or 1) * sum(flops(net, each, loops, registers) for each in slots)


def measure_boards(runs: Path, path: Path = HERE / "rows.jsonl") -> None:
    """Train and measure what a file lacks of 6x6 boards."""
    torch.set_num_threads(1)
    done = set()
    if path.exists():
        done = {(Cell(**row["cell"]), row["train_seed"]) for row in read_results(path)}
    for seed, (cell, network) in product(SEEDS, measured()):
        if (cell, seed) not in done:
            measure_network(cell, network, seed, runs, path)
    for seed, (method, n) in product(SEEDS, SAMPLED):
        if (best_of(method, n, 1), seed) not in done:
            measure_tries(method, n, seed, runs, path)


def measure_network(cell: Cell, network: Network, seed: int, runs: Path, path: Path) -> None:
    """Append the row of a setting with another network."""
    folder = network.trained(seed, runs)
    net = lt.from_pretrained(folder, net=network.build(seed))
    net.loops = number_of(cell, "loops") or 1
    n = None if cell.latents is None else (cell.latents,)
    settings = by_order.settings_of(cell.order)
    (row,) = lt.evaluate(net, "sudoku-6", latents=n, num_samples=SAMPLES, seed=seed, **settings)
    append_result(path, {**row, "cell": cell._asdict(), "train_seed": seed, "steps": network.steps()})


def measure_tries(method: str, latents: Any, seed: int, runs: Path, path: Path) -> None:
    """Append the rows of samples that are chosen by their exact likelihood in the decoding order."""
    model = lt.load(ready_model(by_order.recipe_of(method, seed, runs)))
    decoding = lt.Decoding(order="left_to_right", latents=latents)
    start = remasking.empty(LENGTH, SAMPLES)
    tries = [remasking.draw(model, start, decoding, seed + 10 * number) for number in range(max(TRIES))]
    nats = torch.stack([of_sample for _, of_sample in tries])  # (tries, B)
    tokens = torch.stack([samples.tokens for samples, _ in tries])
    for number in TRIES:
        best = tokens[nats[:number].argmin(0), torch.arange(SAMPLES)]
        share = model.task.score(best.numpy(), None)["valid"].mean()
        row = {"metric": "valid", "valid": 100 * float(share), "num_samples": SAMPLES, "seed": seed}
        append_result(path, {**row, "cell": best_of(method, latents, number)._asdict(), "train_seed": seed})


def stored() -> dict[Cell, Line]:
    """Return the rows of this folder, of research/order and of research/remasking by their setting."""
    lines = {**lines_in(HERE.parent / "order" / "rows.jsonl"), **lines_in(HERE / "rows.jsonl")}
    found: dict[Cell, list[Any]] = {}
    for row in read_results(HERE.parent / "remasking" / "rows.jsonl"):
        setting = row["setting"]
        name = {remasking.BEST: "best of 2", "every second step": REMASKED}.get(setting["rule"])
        if "task" not in setting and setting["order"] == "top_prob" and name is not None:
            cell = Cell(setting["method"], ADAPTIVE, "all", name)
            extra = {"metric": "valid", "num_samples": remasking.SAMPLES, "train_seed": setting["seed"]}
            found.setdefault(cell, []).append({**row, **extra})
    return lines | {cell: Line(cell, tuple(rows)) for cell, rows in found.items()}


def curves(order: str) -> dict[str, list[Cell]]:
    """Return the settings of an order, by what their operations are spent on."""
    made = {
        "n latent tokens: scdm": [Cell("scdm", order, n) for n in by_order.NUMBERS],
        "all latent tokens: mdm": [Cell("mdm", order)],
        "R loops: sidm": [looped("sidm", order, None, number) for number in NUMBERS_OF_LOOPS[order]],
        "one sample: sidm": [Cell("sidm", order)],
        "R loops: mdm": [looped("mdm", order, None, number) for number in NUMBERS_OF_LOOPS[order]],
        "r registers: sidm": [with_registers(order, number) for number in REGISTERS],
        "4 latent tokens without a loss": [without_loss(order)],
    }
    if order == FIXED:
        made["n latent tokens: scdm, 4 loops"] = [looped("scdm", order, n, 4) for n in (0, 4)]
        for method, n in SAMPLED:
            name = method if n is None else f"{method}, n = {n}"
            made[f"best of N: {name}"] = [best_of(method, n, number) for number in TRIES]
    else:
        for method in remasking.METHODS:
            made[f"best of two: {method}"] = [Cell(method, order, "all", "best of 2")]
            made[f"remasking: {method}"] = [Cell(method, order, "all", REMASKED)]
    return made


def table(lines: dict[Cell, Line]) -> str:
    """Return the accuracy of each setting, with its operations relative to those of sidm."""
    rows = [("order", "spent on", "setting", "operations", "valid % (95% interval)", "each seed")]
    for order in CANDIDATES:
        unit = flops_of(Cell("sidm", order))
        for name, cells in curves(order).items():
            for cell in cells:
                if (line := lines.get(cell)) is not None:
                    n = None if cell.latents is None else f"n = {cell.latents}"
                    setting = ", ".join(filter(None, (n, cell.variant)))
                    seeds = " ".join(f"{value:.1f}" for value in line.by_seed.values())
                    cost = f"{flops_of(cell) / unit:.2f}x"
                    rows.append((order, name, setting, cost, mean_and_bounds(line), seeds))
    return as_markdown(rows)


def claims() -> Iterator[Claim]:
    """Yield the claims on what the operations are worth."""
    sidm, mdm = Cell("sidm", FIXED), Cell("mdm", FIXED)
    none, four = Cell("scdm", FIXED, 0), Cell("scdm", FIXED, 4)
    loops = {number: looped("sidm", FIXED, None, number) for number in NUMBERS_OF_LOOPS[FIXED]}
    loops_of_mdm = looped("mdm", FIXED, None, 1)
    for number in (2, 4, 8):
        yield Claim(f"sidm: {number} loops > 1 loop", loops[number], loops[1])
        yield Claim(f"scdm n=4 > sidm, {number} loops", four, loops[number])
        yield Claim(f"mdm: {number} loops > 1 loop", looped("mdm", FIXED, None, number), loops_of_mdm)
    yield Claim("mdm, 4 loops > mdm", looped("mdm", FIXED, None, 4), mdm)
    yield Claim("mdm, 4 loops > sidm, 4 loops", looped("mdm", FIXED, None, 4), loops[4])
    for number in REGISTERS:
        yield Claim(f"sidm: {number} registers > none", with_registers(FIXED, number), sidm)
        yield Claim(f"scdm n=4 > sidm, {number} registers", four, with_registers(FIXED, number))
    yield Claim("sidm: 16 registers > 4", with_registers(FIXED, 16), with_registers(FIXED))
    yield Claim("4 latent tokens without a loss > sidm", without_loss(FIXED), sidm)
    yield Claim("scdm n=4 > 4 latent tokens without a loss", four, without_loss(FIXED))
    of_loops = {n: looped("scdm", FIXED, n, 4) for n in (0, 4)}
    yield Claim("scdm, 4 loops: n=4 > n=0", of_loops[4], of_loops[0])
    yield Claim("scdm n=4: 4 loops > plain", of_loops[4], four)
    yield Claim("n=0: scdm, 4 loops > sidm, 4 loops", of_loops[0], loops[4])
    for method, n in SAMPLED:
        tries = {number: best_of(method, n, number) for number in TRIES}
        yield Claim(f"{method}{'' if n is None else f' n={n}'}: best of 2 > 1", tries[2], tries[1])
    yield Claim("scdm n=4 > best of 2 of sidm", four, best_of("sidm", None, 2))
    yield Claim("best of 2 of scdm n=4 > mdm", best_of("scdm", 4, 2), mdm)
    yield Claim("scdm: n=4 > n=0", four, none)
    order = ADAPTIVE
    sidm, every = Cell("sidm", order), Cell("scdm", order, "all")
    two = looped("sidm", order, None, 2)
    yield Claim(f"{order}: sidm, 2 loops > sidm", two, sidm)
    yield Claim(f"{order}: scdm n=all > sidm, 2 loops", every, two)
    yield Claim(f"{order}: mdm, 2 loops > mdm", looped("mdm", order, None, 2), Cell("mdm", order))
    for number in REGISTERS:
        yield Claim(f"{order}: sidm, {number} registers > sidm", with_registers(order, number), sidm)
    yield Claim(f"{order}: 4 latent tokens without a loss > sidm", without_loss(order), sidm)
    for method in remasking.METHODS:
        rivals = (Cell(method, order, "all", name) for name in (REMASKED, "best of 2"))
        yield Claim(f"{order}: {method}, remasking > best of 2", *rivals)


STYLES = {
    "n latent tokens: scdm": (METHOD_COLORS["scdm"], "o-"),
    "all latent tokens: mdm": (METHOD_COLORS["mdm"], "D"),
    "R loops: sidm": (METHOD_COLORS["sidm"], "s-"),
    "one sample: sidm": (METHOD_COLORS["sidm"], "o"),
    "R loops: mdm": (METHOD_COLORS["mdm"], "s-"),
    "r registers: sidm": (METHOD_COLORS["sidm"], "^-"),
    "4 latent tokens without a loss": (METHOD_COLORS["esolm"], "v"),
    "n latent tokens: scdm, 4 loops": (METHOD_COLORS["scdm"], "s--"),
    "best of N: scdm, n = 4": (METHOD_COLORS["scdm"], "x-."),
    "best of N: sidm": (METHOD_COLORS["sidm"], "x-."),
    "remasking: mdm": (METHOD_COLORS["mdm"], "*"),
    "remasking: scdm": (METHOD_COLORS["scdm"], "*"),
    "best of two: mdm": (METHOD_COLORS["mdm"], "x"),
    "best of two: scdm": (METHOD_COLORS["scdm"], "x"),
}
"""The curves of the figure: color, and marker with line."""


def draw(lines: dict[Cell, Line]) -> None:
    """Draw accuracy over operations, a panel per order."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(9.6, 5.4), layout="constrained")
    panels = sheet.subplots(1, 2, sharey=True)
    for axes, order in zip(panels, CANDIDATES, strict=True):
        unit = flops_of(Cell("sidm", order))
        for name, (color, form) in STYLES.items():
            cells = [cell for cell in curves(order).get(name, ()) if cell in lines]
            if not cells:
                continue
            at = [flops_of(cell) / unit for cell in cells]
            error_bars(axes, at, [lines[cell] for cell in cells], color=color, fmt=form, label=name)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set(ylim=(0, 100))
        metric = "valid boards (%)" if axes is panels[0] else ""
        style(axes, "operations per board, relative to sidm", metric, order)
    legend_of(sheet, columns=3)
    caption = (
        f"6x6 boards, networks of 0.8M parameters, trained with equal operations. {SAMPLES} boards per point "
        f"and seed (1,000 for plain networks, {remasking.SAMPLES} for remasking), three training seeds, "
        "95% intervals over seeds. Top-prob: k = 4."
    )
    named = (Cell("scdm", FIXED, 4), looped("sidm", FIXED, None, 4), looped("mdm", FIXED, None, 4))
    shares = "four latent tokens {:.0f}%, four loops {:.0f}% without and {:.0f}% with latent tokens"
    title = "Valid boards from left to right: " + shares.format(*(lines[cell].mean for cell in named))
    save_sheet(sheet, title, caption, HERE / "alternatives", dark=True)


def main(
    measure: Literal["boards", "larger"] | None = None,
    draw_figure: bool = False,
    runs: Path = HERE.parents[1] / "runs" / "paper",
) -> None:
    """Print the tables, or train and measure first.

    Args:
        measure: 6x6 boards, or the larger tasks.
        draw_figure: draw the figure.
        runs: directory of data sets and models.
    """
    if measure is not None:
        {"boards": measure_boards, "larger": larger.measure}[measure](runs)
    lines = stored()
    if draw_figure:
        draw(lines)
    print("\n".join([table(lines), claims_table(lines, compared(lines, claims())), larger.tables()]), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
