"""Check the text of the repository: pages, help, errors, docstrings, what they refer to, and unique names.

    python scripts/lint_docs.py     # prints one line per problem; exit code 1 if there is one

`make check` runs it. The commands and the Python of the pages run in the tests.
"""

import ast
import doctest
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import latent_tokens
from latent_tokens.cli import PURPOSE

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MANUAL = sorted(path for path in DOCS.glob("*.md") if path.name != "cli.md")  # of which help is checked
ABOUT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md")]
KINDS = ("*.md", "docs/*.md", "examples/*.md", "results/*/*.md", "research/**/*.md", "space/*.md")
PAGES = sorted(path for kind in KINDS for path in ROOT.glob(kind))
FOLDERS = ("src", "tests", "examples", "scripts", "research", "space")
ENDINGS = (".py", ".ipynb", ".js", ".html")
SOURCES = sorted(path for name in FOLDERS for path in (ROOT / name).rglob("*.*") if path.suffix in ENDINGS)
LONGEST_SENTENCE = 35  # words
LONGEST_ON_AVERAGE = 25
WIDEST_LINE = 110  # columns
DEFINITION = ast.FunctionDef | ast.ClassDef
TAUGHT = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in ("tutorial", "own-task", "own-method"))]
METHODS_OF = {
    "Model": ("generate", "evaluate", "likelihood", "save_pretrained", "push_to_hub"),
    "ResultTable": ("to_pandas",),
    "Samples": ("to_pandas",),
    "DiffusionCollator": ("loss",),
}
MAY_REPEAT = {  # names at the top level of several modules, and why
    "T": "a type variable",
    "__all__": "what a module exports",
    "generate": "network/fast.py has the optimized implementation of core/sampling.py, tested equal to it",
}


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
    Rule(r"\b[Tt]his machine\b|\bother work\b|\btimed once\b", "the hardware: 2 vCPUs (AMD EPYC)")
]
OF_PARAGRAPHS = [Rule(r";(?=\s)", "two sentences")]  # of pages, in addition, but not of tables


# The text of a page.


class Unit(NamedTuple):
    """One unit of a page's text: a paragraph, an item or a cell, and the line where it begins."""

    number: int
    text: str
    in_table: bool


def prose(page: str) -> list[Unit]:
    """Return the text of a page, one unit per paragraph, list item, heading and table cell.

    Code blocks, directives and tags are left out. Code in a line is one word, and a link is its text.
    """
    units: list[Unit] = []
    begun = True
    for number, line in enumerate(without_code(page).splitlines(), 1):
        is_code = line.startswith("    ") and begun
        if not line.strip() or is_code or re.fullmatch(r"\|[-| :]+\|", line):
            begun = True
        elif line.startswith("|"):
            units += [Unit(number, words_of(cell), True) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            begun = True
        elif begun or re.match(r" *([-*]|\d+\.) |#", line):
            units.append(Unit(number, words_of(line), False))
            begun = line.startswith("#")
        else:
            units[-1] = units[-1]._replace(text=f"{units[-1].text} {words_of(line)}")
    return [unit for unit in units if unit.text]


def without_code(page: str) -> str:
    """Return a page with empty lines for its code blocks."""
    return re.sub(r"^(```|~~~).*?^\1", lambda code: "\n" * code[0].count("\n"), page, flags=re.M | re.S)


def words_of(line: str) -> str:
    """Return a line of Markdown as plain text."""
    line = re.sub(r"`+[^`]+`+", "CODE", line)
    line = re.sub(r"<[^>]+>", "", line)
    line = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", line)
    line = re.sub(r"^ *(?:[-*]|\d+\.|#+|>) +", "", line)
    return " ".join(line.replace("**", "").split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text. A colon that ends an item or begins a list ends one, too."""
    text = re.sub(r"\b(et al|e\.g|i\.e|vs|cf)\.", r"\1", text)
    return [each for each in re.split(r"(?<=[.?!:]) (?=[A-Z0-9\"(*])", text) if each]


def breaches(text: str, rules: list[Rule]) -> list[str]:
    """Return the phrases of a text that a rule bans, each with what is written instead."""
    hits = [(rule, hit) for rule in rules for hit in re.finditer(rule.pattern, text)]
    return [f"{hit[0].strip()!r}: {rule.instead}" for rule, hit in hits]


def language(page: str) -> Iterator[str]:
    """Yield the phrases, long sentences and dials of a page."""
    units = prose(page)
    for unit in units:
        rules = [*PHRASES, *OF_PAGES, *([] if unit.in_table else OF_PARAGRAPHS)]
        yield from (f"{unit.number}: {breach}" for breach in breaches(unit.text, rules))
        for sentence in sentences(unit.text):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield f"{unit.number}: {len(sentence.split())} words: {sentence}"
    counts = [len(each.split()) for unit in units if not unit.in_table for each in sentences(unit.text)]
    if sum(counts) > LONGEST_ON_AVERAGE * len(counts):
        yield f"1: sentences of more than {LONGEST_ON_AVERAGE} words on average"
    if sum(len(re.findall(r"\bdials?\b", unit.text)) for unit in units) > 1:
        yield "1: speaks of a dial twice"


def wide_lines(page: str) -> Iterator[str]:
    """Yield the wide lines but tables, code and pictures. The target of a link has no width."""
    for number, line in enumerate(without_code(page).splitlines(), 1):
        is_wide = len(re.sub(r"\]\([^)]*\)|https?://\S+", "]", line)) > WIDEST_LINE
        if is_wide and not re.match(r"\||(<!-- published: )?\[?( -->)?<img|<picture|#|!?\[!\[", line):
            yield f"{number}: more than {WIDEST_LINE} columns"


# References of a page.


def files_linked(page: str, folder: Path) -> Iterator[str]:
    """Yield the links and the literal includes of a page that lead to no file."""
    found = re.findall(r"\]\(((?!http|\{)[^)#]+)\)|src=\"((?!http)[^\"]+)\"|\{literalinclude\} (\S+)", page)
    for place in map("".join, found):
        if not (folder / place).exists():
            yield f"1: {place} does not exist"


def slug(heading: str) -> str:
    """Return the anchor of a heading on GitHub and in the built manual."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    """Return the anchors of a page: its headings, and its HTML anchors."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.M)
    return {*map(slug, headings), *re.findall(r'<a id="([^"]+)">', page)}


def headings_linked(page: str, folder: Path) -> Iterator[str]:
    """Yield the links of a page to headings that are not there."""
    for place, anchor in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", page):
        other = page if not place else "" if place.startswith("http") else (folder / place).read_text()
        if not place.startswith("http") and anchor not in anchors(other):
            yield f"1: {place}#{anchor} is not a heading"


def decisions_named(text: str, titles: dict[str, str], is_page: bool) -> Iterator[str]:
    """Yield the references to decisions without their title, or on a page without a link to it."""
    text = " ".join(re.sub(r"^### D-\d+ .*$", "", text, flags=re.M).split())
    for found in re.finditer(r"\b(D-\d+)\b(?!\\d)", text):
        expected = f"{found[1]}, {titles.get(found[1], '(no such decision)')}"
        if not text[found.start() :].lower().startswith(expected.lower()):
            yield f"1: {found[1]} without its title: {expected}"
        link = re.match(r"\[([^]]+)\]\([^)#]*#([^)]+)\)", text[max(0, found.start() - 1) :])
        is_link = link and (link[1].lower(), link[2]) == (expected.lower(), slug(expected))
        if is_page and not is_link:
            yield f"1: {expected}: not a link to its heading"
    if re.search(r"\bdecisions? \(?[0-9]", text, re.I):
        yield "1: a decision by number alone"


def reference(page: str, names: list[str]) -> Iterator[str]:
    """Yield the public names that the reference does not have once."""
    listed = re.findall(r"^\.\. (?:autoclass|autofunction|data):: (\w+)$", page, re.M)
    yield from (f"1: lists {name} {listed.count(name)} times" for name in names if listed.count(name) != 1)
    yield from (f"1: lists {name}, which is not public" for name in listed if name not in names)
    yield from (
        f"1: {name} has no docstring" for name in names if not getattr(latent_tokens, name, "").__doc__
    )


def promises(page: str, root: Path) -> Iterator[str]:
    """Yield the promises of the security page that name no test, or one that does not exist."""
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("| ") and "tested by" not in line and "`tests/" not in line:
            yield f"{number}: names no test"
        for file, name in re.findall(r"`(tests/\w+\.py)::(\w+)`", line):
            path = root / file
            if not path.is_file() or not re.search(rf"^def {name}\(", path.read_text(), re.M):
                yield f"{number}: {file}::{name} does not exist"


def answers(page: str, root: Path) -> Iterator[str]:
    """Yield the names of a table of files to open that are not at the top level of the files of their row."""
    for number, line in enumerate(page.splitlines(), 1):
        files = re.findall(r"`([\w/]+\.py)`", line)
        if not line.startswith("| ") or not re.search(r"`: `", line):
            continue
        texts = [(root / "src/latent_tokens" / file).read_text() for file in files]
        defined = set().union(*(names_defined(ast.parse(text).body) for text in texts))
        for name in re.findall(r"`(\w+)`", line):
            if name not in defined:
                yield f"{number}: {name} is not in {' or '.join(files)}"


def names_taught(page: str, fates: dict[str, str]) -> Iterator[str]:
    """Yield the public names in the Python of a page that tests/data/public_names.txt does not keep."""
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.S))
    imported = " ".join(re.findall(r"^from latent_tokens import (.+)$", code, re.M))
    names = {*re.findall(r"\w+", imported), *re.findall(r"\blt\.(\w+)", code)}
    yield from (f"1: teaches {name}, which is not kept" for name in names if fates.get(name) != "keep")


# Help, errors and docstrings.


def help_texts() -> dict[str, str]:
    """Return the text of every command and option by its name: the docstrings of classes and attributes."""
    package = ROOT / "src" / "latent_tokens"
    texts = {"latent-tokens": PURPOSE}
    configs = ("configs.py", "data/config.py", "training/config.py")
    for path in (*map(package.joinpath, configs), *sorted((package / "commands").glob("*.py"))):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                texts[node.name] = (ast.get_docstring(node) or "").partition("Examples:")[0]
                for field, below in zip(node.body, node.body[1:], strict=False):
                    if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                        texts[f"{node.name}.{ast.unparse(field.target)}"] = ast.literal_eval(below.value)
    return {name: " ".join(text.split()) for name, text in texts.items()}


def errors_raised(source: str) -> Iterator[str]:
    """Yield the problems of the messages of a module: their words, lines, and the value that they name.

    A message without a value names a setting, or is a reason to which the caller adds the file.
    """
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
            continue
        constants = [part for part in ast.walk(node.exc) if isinstance(part, ast.Constant)]
        parts = [part.value for part in constants if isinstance(part.value, str)]
        for part in parts:
            yield from (f"{node.lineno}: {breach}" for breach in breaches(part, PHRASES))
            if "; " in part and part != "; ":  # but for a separator of a list
                yield f"{node.lineno}: a semicolon in {part!r}"
            if "\n" in part:
                yield f"{node.lineno}: a line break in {part!r}"
        is_plain = isinstance(node.exc.args[0], ast.Constant) and parts
        names_a_value = not is_plain or re.match(r"\S+=|--|[\w ]+: |puzzle |(its?|an?) ", parts[0])
        if not names_a_value and ast.unparse(node.exc.func) != "HTTPException":
            yield f"{node.lineno}: names no value: {parts[0]!r}"


def names_defined(body: list[ast.stmt]) -> set[str]:
    """Return the names that the statements of a module define: not those that they import."""
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return names | {node.name for node in body if isinstance(node, DEFINITION)}


def names_repeated(sources: dict[str, str], may_repeat: Collection[str]) -> Iterator[str]:
    """Yield the names that several modules define at their top level. A reader would take one for another."""
    modules: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name in names_defined(ast.parse(source).body) - set(may_repeat):
            modules.setdefault(name, []).append(path)
    for name, paths in sorted(modules.items()):
        if len(paths) > 1:
            yield f"{', '.join(paths)}: define {name}. A name means one thing: rename all but one"


@cache
def public() -> dict[str, Any]:
    """Return the public functions and classes by name, with some of their methods."""
    things = {name: getattr(latent_tokens, name) for name in sorted(latent_tokens.__all__)}
    methods = {
        f"{name}.{method}": getattr(things[name], method)
        for name, names in METHODS_OF.items()
        for method in names
    }
    return {name: thing for name, thing in things.items() if callable(thing)} | methods


def example(docstring: str) -> str:
    """Return the code of the example of a docstring, empty if it has none."""
    _, *rest = re.split(r"^Example::?\n", docstring, flags=re.M)
    return dedent(re.split(r"^\S", rest[0], flags=re.M)[0]).strip() if rest else ""


def docstring_of(thing: Any) -> Iterator[str]:
    """Yield the sections that a docstring lacks, and an example that is not Python."""
    text = inspect.getdoc(thing) or ""
    code = example(text)
    if ">>>" in code:
        code = "".join(each.source for each in doctest.DocTestParser().get_examples(code))
    try:
        if not ast.parse(code).body:
            yield "has no Example"
    except SyntaxError as error:
        yield f"its Example is not Python: {error.msg}"
    if inspect.isclass(thing):
        return
    found = set(re.findall(r"^(Args|Returns|Yields|Raises):", text, re.M))
    signature = inspect.signature(thing)
    if set(signature.parameters) - {"self"} and "Args" not in found:
        yield "has no Args"
    returns = signature.return_annotation not in (None, "None") and "eturn" not in text.split("\n\n")[0]
    if returns and "Returns" not in found:
        yield "has no Returns"
    if re.search(r"^ +raise \w+Error", inspect.getsource(thing), re.M) and "Raises" not in found:
        yield "has no Raises"


def problems() -> Iterator[str]:
    """Yield every problem of the repository, as PATH:LINE: PROBLEM."""

    def of(path: Path, rule: Callable[..., Iterator[str]], *arguments: Any) -> Iterator[str]:
        text = path.read_text()
        return (f"{path.relative_to(ROOT)}:{line}" for line in rule(text, *arguments))

    titles = dict(re.findall(r"^### (D-\d+) (.+)$", (DOCS / "decisions.md").read_text(), re.M))
    for path in (*ABOUT, *MANUAL):
        yield from of(path, language)
    for path in MANUAL:
        yield from of(path, wide_lines)
    for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        yield from of(path, files_linked, path.parent)
    for path in PAGES:
        yield from of(path, headings_linked, path.parent)
    for path in (*PAGES, *SOURCES):
        yield from of(path, decisions_named, titles, path.suffix == ".md")

    yield from of(DOCS / "reference.md", reference, latent_tokens.__all__)
    yield from of(ROOT / "SECURITY.md", promises, ROOT)
    yield from of(ROOT / "CONTRIBUTING.md", answers, ROOT)
    lines = (ROOT / "tests" / "data" / "public_names.txt").read_text().splitlines()
    fates = dict(line.split() for line in lines if not line.startswith("#"))
    for path in (*TAUGHT, DOCS / "own-network.md"):
        yield from of(path, names_taught, fates)
    for name, text in help_texts().items():
        yield from (f"help of {name}: {breach}" for breach in breaches(text, PHRASES))
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield from of(path, errors_raised)
    package = ROOT / "src" / "latent_tokens"
    sources = {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}
    yield from names_repeated(sources, MAY_REPEAT)
    for name, thing in public().items():
        yield from (f"docstring of {name}: {problem}" for problem in docstring_of(thing))


def main() -> int:
    found = list(problems())
    for line in found:
        print(line)
    print(f"{len(PAGES)} pages and {len(SOURCES)} sources: {len(found) or 'no'} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
