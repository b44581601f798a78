"""The page's GIF encoder: its files have the frames, the colors and the durations that it was given."""

import base64
import io
import json

import numpy as np
from PIL import Image

from helpers.engine import node

NUM_COLORS = 127  # one more index is transparent


def encoded(images, durations):
    """Return the GIF of images (frames, height, width, 3)."""
    shifts = np.array([1, 1 << 8, 1 << 16])
    frames = [(image.astype(int) @ shifts).ravel().tolist() for image in images]
    animation = {
        "width": images.shape[2],
        "height": images.shape[1],
        "frames": list(zip(frames, durations, strict=True)),
    }
    (line,) = node("tests/gif.js", stdin=json.dumps(animation))
    return Image.open(io.BytesIO(base64.b64decode(line)))


def frames_of(gif):
    """Return the frames (frames, height, width, 3) and their durations in milliseconds."""
    images, durations = [], []
    for index in range(gif.n_frames):
        gif.seek(index)
        images.append(np.asarray(gif.convert("RGB")))
        durations.append(gif.info["duration"])
    return np.stack(images), durations


def test_gif_of_few_colors_is_exact():
    rng = np.random.default_rng(0)
    colors = rng.integers(0, 16, (NUM_COLORS, 3), dtype=np.uint8) * 16
    images = np.repeat(colors[rng.integers(0, NUM_COLORS, (1, 70, 90))], 4, axis=0)
    images[1, 20:30, 40:60] = colors[0]
    images[3, 69, 89] = colors[1] if (images[3, 69, 89] == colors[0]).all() else colors[0]
    decoded, durations = frames_of(encoded(images, [50, 60, 70, 300]))
    np.testing.assert_array_equal(decoded[[0, 1, 3]], images[[0, 1, 3]])
    assert durations == [500, 600, 700, 3000]


def test_gif_of_many_colors_is_near():
    level = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 40, axis=1)
    ramp = np.stack([level, 255 - level, level], -1)  # as between the two colors of a smooth edge
    decoded, _ = frames_of(encoded(np.stack([ramp, ramp[::-1]]), [5, 5]))
    difference = np.abs(decoded.astype(int) - np.stack([ramp, ramp[::-1]]))
    assert 0 < difference.max() <= 8
