"""The language of README, manual, help and errors: phrases, length of sentences, width of lines."""

import re

import pytest

from helpers.prose import (
    LONGEST_SENTENCE,
    MANUAL,
    OF_PAGES,
    OF_PARAGRAPHS,
    PAGES,
    PHRASES,
    ROOT,
    WIDEST_LINE,
    breaches,
    help_texts,
    messages,
    prose,
    sentences,
)


def of_pages(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(ROOT)))


def rules_of(line):
    return [*PHRASES, *OF_PAGES, *([] if line.in_table else OF_PARAGRAPHS)]


@of_pages(PAGES)
def test_page_uses_the_words_of_the_field(path):
    found = [
        f"line {line.number}: {breach}"
        for line in prose(path.read_text())
        for breach in breaches(line.text, rules_of(line))
    ]
    assert not found, "\n".join(found)


@of_pages(PAGES)
def test_sentences_of_a_page_are_short(path):
    found = [
        f"line {line.number}: {len(sentence.split())} words: {sentence}"
        for line in prose(path.read_text())
        for sentence in sentences(line.text)
        if len(sentence.split()) > LONGEST_SENTENCE
    ]
    assert not found, "\n".join(found)


def test_sentences_have_25_words_on_average_at_most():
    for path in PAGES:
        lengths = [
            len(sentence.split())
            for line in prose(path.read_text())
            if not line.in_table
            for sentence in sentences(line.text)
        ]
        assert sum(lengths) <= 25 * len(lengths), path.name


@of_pages(MANUAL)
def test_lines_of_a_page_are_narrow(path):
    """But for tables, code and pictures. The target of a link has no width."""
    text = re.sub(
        r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), path.read_text(), flags=re.M | re.S
    )
    wide = [
        f"line {number}: {line}"
        for number, line in enumerate(text.splitlines(), 1)
        if len(re.sub(r"\]\([^)]*\)|https?://\S+", "]", line)) > WIDEST_LINE
        and not re.match(r"\||<img|#|!?\[!\[", line)
    ]
    assert not wide, "\n".join(wide)


@of_pages(PAGES)
def test_page_speaks_of_a_dial_at_most_once(path):
    assert sum(len(re.findall(r"\bdials?\b", line.text)) for line in prose(path.read_text())) <= 1


def test_help_uses_the_words_of_the_field():
    found = [f"{name}: {breach}" for name, text in help_texts().items() for breach in breaches(text, PHRASES)]
    assert not found, "\n".join(found)


def test_errors_use_the_words_of_the_field():
    found = [
        f"{message.place}: {breach}"
        for message in messages()
        for part in message.parts
        for breach in breaches(part, PHRASES)
    ]
    assert not found, "\n".join(found)


def test_errors_are_sentences_without_semicolons():
    """But for a separator of a list."""
    found = [
        f"{message.place}: {part}"
        for message in messages()
        for part in message.parts
        if re.search(r"; ", part) and part != "; "
    ]
    assert not found, "\n".join(found)


def test_errors_are_one_line_with_a_value():
    """A message without a value names a setting, or is a reason to which the caller adds the file."""
    assert len(messages()) > 400
    for message in messages():
        assert not any("\n" in part for part in message.parts), message.place
    unnamed = [
        f"{message.place}: {message.parts[0]}"
        for message in messages()
        if not message.has_value
        and message.error != "HTTPException"
        and not re.match(r"\S+=|--|[\w ]+: |puzzle |(its?|an?) ", message.parts[0])
    ]
    assert not unnamed, "\n".join(unnamed)


def test_a_breach_is_found_in_prose_and_not_in_code():
    page = (
        "# Files\n\nA row a\nnumber; it goes\non.\n\n```\nit says\n```\n| `x` says; | 5 % |\n\n    stands\n"
    )
    assert [(line.number, line.in_table) for line in prose(page)] == [
        (1, False),
        (3, False),
        (10, True),
        (10, True),
    ]
    found = [breach.split(":")[0] for line in prose(page) for breach in breaches(line.text, rules_of(line))]
    assert found == ["'row a number'", "'goes on'", "';'", "'says'", "'5 %'"]
    assert sentences("Train a model. See Ye et al. (2025) or `x.y`. Done") == [
        "Train a model.",
        "See Ye et al (2025) or `x.y`.",
        "Done",
    ]
