"""Processors: from an image to the pixels that a tower reads."""

from oxibonsai.vision.processors.processor import ImageProcessor
from oxibonsai.vision.processors.tiles import (
    Idefics3Processor,
    InternVLProcessor,
    Llama4Processor,
    LlavaNextProcessor,
)
from oxibonsai.vision.processors.whole import (
    Gemma3Processor,
    Glm4VProcessor,
    LlavaProcessor,
    PixtralProcessor,
    Qwen2VLProcessor,
)

__all__ = [
    "Gemma3Processor",
    "Glm4VProcessor",
    "Idefics3Processor",
    "ImageProcessor",
    "InternVLProcessor",
    "Llama4Processor",
    "LlavaNextProcessor",
    "LlavaProcessor",
    "PixtralProcessor",
    "Qwen2VLProcessor",
]
