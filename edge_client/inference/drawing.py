"""Draws boxes into pictures."""

import io
from collections.abc import Sequence

import numpy as np

from edge_client.data.dataset import Pixels
from edge_client.inference.onnx_model import Box

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#46f0f0", "#f032e6", "#bcf60c")
"""Of one class after the other, and again."""


def draw_boxes(pixels: Pixels, scale: float, boxes: Sequence[Box]) -> bytes:
    """A PNG of raw pixels [C, H, W] up to `scale` with boxes in them, their classes and scores."""
    from PIL import Image, ImageDraw

    bright = np.clip(pixels.astype(np.float32) * (255 / scale), 0, 255).astype(np.uint8)
    picture = Image.fromarray(bright[0] if len(bright) < 3 else bright[:3].transpose(1, 2, 0)).convert("RGB")
    draw = ImageDraw.Draw(picture)
    for box in reversed(boxes):
        colour = COLOURS[box.index % len(COLOURS)]
        draw.rectangle(box.corners, outline=colour)
        draw.text(box.corners[:2], f"{box.name} {box.score:.0%}", fill=colour)
    made = io.BytesIO()
    picture.save(made, "PNG")
    return made.getvalue()
