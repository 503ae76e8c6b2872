"""Draws a BabaIsAI level."""

import numpy as np

from envs.games.baba_game import GROUND, Level

TILE = 32  # pixels
COLOURS = {"#": "dimgray", "obj:baba": "palevioletred", "obj:wall": "sienna"}


def draw(level: Level) -> np.ndarray:
    """Return a picture, (height, width, 3) uint8: objects are filled, text blocks are framed."""
    from PIL import Image, ImageDraw  # imported here: training draws no pictures

    image = Image.new("RGB", (level.width * TILE, level.height * TILE))
    pen = ImageDraw.Draw(image)
    for cell, thing in enumerate(level.tops):
        x, y = cell % level.width * TILE, cell // level.width * TILE
        square = (x + 1, y + 1, x + TILE - 2, y + TILE - 2)
        if thing.word:
            pen.rectangle(square, outline="white")
        elif thing is not GROUND:
            pen.rectangle(square, fill=COLOURS.get(thing.token, thing.token.split(":")[-1]))
        pen.text((x + 4, y + 9), thing.word or thing.noun, fill="white")
    return np.array(image)
