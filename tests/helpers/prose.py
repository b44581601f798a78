"""The text of pages, help and errors, cut into sentences, and the phrases that it does not use."""

import ast
import re
from functools import cache
from typing import NamedTuple

from helpers.documentation import ROOT
from latent_tokens.cli import PURPOSE
from latent_tokens.commands import COMMANDS, DESCRIPTIONS
from latent_tokens.commands.options import options_of

MANUAL = sorted(path for path in ROOT.glob("docs/*.md") if path.name != "cli.md")  # of which help is checked
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md")),
    *MANUAL,
]
LONGEST_SENTENCE = 35  # words
WIDEST_LINE = 110  # columns


class Rule(NamedTuple):
    """A phrase that is not used, and what is written instead."""

    pattern: str
    instead: str


PHRASES = [
    Rule(r"(?:^|[.:?!] )(What|Of|Where|Who)\b", "start with the verb or the thing"),
    Rule(r"\b(only|true|[01]) where\b", "if or when for a condition; where is for places"),
    Rule(
        r"\b(nats|bits|bytes|seconds|minutes|hours|fewer|more|characters?|lines?|rows?|tokens?|numbers?|"
        r"files?) an? (step|token|row|line|cell|file|model|module|parameter|puzzle|run|board|number|minute|"
        r"second)\b",
        "per: nats per token, one row per n",
    ),
    Rule(r"(?<!here )\b(is|are) no (?!longer\b|more\b|less\b)", "negate the verb: is not a directory"),
    Rule(
        r"\b(finds|takes|gets|uses|needs|has|have|use) none\b|\b(takes|has|needs) it not\b", "negate the verb"
    ),
    Rule(r"\b(come|comes|came) along\b", "is bundled"),
    Rule(r"\b(go|goes|going|gone|went) on\b", "continue, resume"),
    Rule(r"\bstands?\b(?! for\b)|\bstood\b", "is"),
    Rule(r"\bholds?\b(?! out\b)", "contains, has"),
    Rule(r"\b(say|says|said)\b", "state, print, or the fact itself"),
    Rule(r"\bwhole\b(?!,? (even )?numbers?\b)", "all, complete"),
    Rule(r"\b(anew|afresh|so many|beside|likeliest|surest|whoever|nobody)\b", "again, next to, most likely"),
    Rule(r"\bat hand\b|\bby itself\b", "leave it out, or name the thing"),
    Rule(r"\b[Ww]hat (is|are|was|were) (shown|given|known|read|asked|made|wrong)\b", "name the thing: input"),
    Rule(r"\bwho sees\b|\bsees whom\b", "attention mask"),
    Rule(r"\d %", "95%, without a space"),
    Rule(r"(?<![.\w])folders?\b", "directory"),
    Rule(r"\b(gone|resumes?) on from\b|\bturns? the dial\b", "resume; vary n"),
]
OF_PAGES = [  # in addition
    Rule(r"\b[Tt]his machine\b|\bother work\b|\btimed once\b", "the hardware: 2 vCPUs (AMD EPYC)"),
]
OF_PARAGRAPHS = [Rule(r";(?=\s)", "two sentences")]  # of pages, in addition, but not of tables


class Line(NamedTuple):
    """One unit of a page's text: a paragraph, an item or a cell, and the line where it begins."""

    number: int
    text: str
    in_table: bool


def prose(page):
    """Return the text of a page as lines, one per paragraph, list item, heading and table cell.

    Code blocks, directives and tags are left out. Code in a line is one word, and a link is its text.
    """
    text = re.sub(r"^(```|~~~).*?^\1", lambda code: "\n" * code[0].count("\n"), page, flags=re.M | re.S)
    units, begun = [], True
    for number, line in enumerate(text.splitlines(), 1):
        is_code = line.startswith("    ") and begun
        if not line.strip() or is_code or re.fullmatch(r"\|[-| :]+\|", line):
            begun = True
        elif line.startswith("|"):
            units += [Line(number, words_of(cell), True) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            begun = True
        elif begun or re.match(r" *([-*]|\d+\.) |#", line):
            units.append(Line(number, words_of(line), False))
            begun = line.startswith("#")
        else:
            units[-1] = units[-1]._replace(text=f"{units[-1].text} {words_of(line)}")
    return [unit for unit in units if unit.text]


def words_of(line):
    """Return a line of Markdown as plain text."""
    line = re.sub(r"`+[^`]+`+", "CODE", line)
    line = re.sub(r"<[^>]+>", "", line)
    line = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", line)
    line = re.sub(r"^ *(?:[-*]|\d+\.|#+|>) +", "", line)
    return " ".join(line.replace("**", "").split())


def sentences(text):
    """Return the sentences of a text. A colon that ends an item or begins a list ends one, too."""
    text = re.sub(r"\b(et al|e\.g|i\.e|vs|cf)\.", r"\1", text)
    return [each for each in re.split(r"(?<=[.?!:]) (?=[A-Z0-9\"(*])", text) if each]


def help_texts():
    """Return the text of every command and option by its name."""
    texts = {"latent-tokens": PURPOSE} | DESCRIPTIONS
    for name, command in COMMANDS.items():
        for option in options_of(command):
            texts[f"{name} --{option.name}"] = f"{option.help} {option.default_in_words or ''}"
    return texts


class Message(NamedTuple):
    """The message of one raise statement: its constant parts, and whether it has a value."""

    place: str
    error: str
    parts: list[str]
    has_value: bool


@cache
def messages():
    """Return the message of every `raise` of the package."""
    raised = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                parts = [
                    part.value
                    for part in ast.walk(node.exc)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                plain = isinstance(node.exc.args[0], ast.Constant) and bool(parts)
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                raised.append(Message(place, ast.unparse(node.exc.func), parts, not plain))
    return raised


def breaches(text, rules):
    """Return the phrases of a text that a rule bans, each with what is written instead."""
    return [
        f"{match[0].strip()!r}: {rule.instead}" for rule in rules for match in re.finditer(rule.pattern, text)
    ]
