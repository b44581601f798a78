"""The font of the page: small, with its license, and with every character of the page."""

import base64
import io
import re

from fontTools.ttLib import TTFont

from latent_tokens.page.document import document_with, policy, read_asset

MOST_BYTES = 60_000
LICENSE = 13  # its number in the name table


def fonts():
    """The fonts in font.css."""
    files = re.findall(r"base64,([^)]+)", read_asset("font.css"))
    return [TTFont(io.BytesIO(base64.b64decode(file))) for file in files]


def test_font_is_small_and_has_its_license():
    assert len(read_asset("font.css")) <= MOST_BYTES
    assert len(fonts()) == 2
    for font in fonts():
        assert "Bitstream Vera Fonts Copyright" in font["name"].getDebugName(LICENSE)


def test_font_has_the_characters_of_the_page():
    written = read_asset("page.html") + read_asset("page.css") + read_asset("page.js")
    escaped = re.findall(r"\\u([0-9a-f]{4})", written)
    characters = {ord(character) for character in written if not character.isspace()}
    for font in fonts():
        assert characters | {int(code, 16) for code in escaped} <= font.getBestCmap().keys()


def test_font_is_allowed_by_the_policy():
    page = document_with({})
    assert '@font-face { font-family: "Page";' in page
    assert "font-src data:" in policy(page)
