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
    LlavaProcessor,
    PixtralProcessor,
    Qwen2VLProcessor,
)

__all__ = [
    "Gemma3Processor",
    "Idefics3Processor",
    "ImageProcessor",
    "InternVLProcessor",
    "Llama4Processor",
    "LlavaNextProcessor",
    "LlavaProcessor",
    "PixtralProcessor",
    "Qwen2VLProcessor",
]
