"""One palette: strips, figures and the page have the same colors."""

import io
import re

from PIL import Image, ImageColor

from helpers.page import SIX, model
from latent_tokens.configs import SamplingConfig
from latent_tokens.page.document import read_asset
from latent_tokens.palette import PAGE
from latent_tokens.trace.drawing import strip
from latent_tokens.trace.record import DecodeRequest, trace


def test_page_css_has_the_colors_of_the_palette():
    light = read_asset("page.css").partition("}")[0]
    colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", light))
    assert colors == PAGE


def test_strip_has_the_colors_of_the_palette():
    scdm = model("sudoku-6-scdm")
    setting = SamplingConfig(4, 4)
    picture = strip([trace(DecodeRequest(scdm, scdm.task.encode(SIX), setting))])
    shown = {color for _, color in Image.open(io.BytesIO(picture)).convert("RGB").getcolors(1 << 24)}
    names = ("ink", "faint", "blue", "blue-wash", "orange-wash", "orange-line")
    assert {ImageColor.getrgb(PAGE[name]) for name in names} <= shown
