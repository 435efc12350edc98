"""Processors: from a picture to the pixels that a tower reads, one file for each family."""

from oxibonsai.vision.processors.gemma3 import Gemma3Processor
from oxibonsai.vision.processors.idefics3 import Idefics3Processor
from oxibonsai.vision.processors.internvl import InternVLProcessor
from oxibonsai.vision.processors.llava import LlavaProcessor
from oxibonsai.vision.processors.llava_next import LlavaNextProcessor
from oxibonsai.vision.processors.pixtral import PixtralProcessor
from oxibonsai.vision.processors.processor import ImageProcessor
from oxibonsai.vision.processors.qwen2vl import Qwen2VLProcessor

__all__ = [
    "Gemma3Processor",
    "Idefics3Processor",
    "ImageProcessor",
    "InternVLProcessor",
    "LlavaNextProcessor",
    "LlavaProcessor",
    "PixtralProcessor",
    "Qwen2VLProcessor",
]
