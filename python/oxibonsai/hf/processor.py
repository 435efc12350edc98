"""``AutoProcessor``: texts with images to what a model takes, with transformers' arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oxibonsai.errors import RequestError, needs_extra
from oxibonsai.hf.batch import Padding
from oxibonsai.hf.encoding import BatchEncoding
from oxibonsai.hf.pixels import as_columns
from oxibonsai.hf.tokenizer import PreTrainedTokenizer
from oxibonsai.output.messages import IMAGES
from oxibonsai.vision import ImageReader, PixelGrid
from oxibonsai.vision.image_input import image_of_part, read_image

Texts = str | Sequence[str]


class Processor:
    """A tokenizer and what prepares images; made by ``AutoProcessor``.

    Args:
        tokenizer: Of the model.
        image_reader: Of the model.

    Attributes:
        tokenizer: As given.
        image_token: What stands for an image in a text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizer, image_reader: ImageReader) -> None:
        self.tokenizer = tokenizer
        self.image_reader = image_reader
        self.image_token = image_reader.tower.marker

    def __repr__(self) -> str:
        return f"Processor({self.tokenizer!r}, {self.image_reader.processor!r})"

    def __call__(
        self,
        images: Any = None,
        text: Texts | None = None,
        *,
        padding: Padding = False,
        return_tensors: str | None = None,
        add_special_tokens: bool = True,
    ) -> BatchEncoding:
        """Return the ids of texts in which each image has its tokens, and the pixels of all images.

        Args:
            images: One image, several for one text, or a list of images for each text: images of
                Pillow, arrays, paths or bytes of files.
            text: One or several, with :attr:`image_token` in the place of each image.
            padding: As in calling a tokenizer.
            return_tensors: ``"np"``, ``"pt"``; None: lists of ids, and arrays of pixels.
            add_special_tokens: Begin with the bos token where the model has one.

        Returns:
            ``input_ids``, ``attention_mask``; with images ``pixel_values`` and what belongs to them:
            see :func:`oxibonsai.hf.pixels.as_columns`.

        Raises:
            RequestError: There are more or fewer images than places, or one can't be read.
        """
        if text is None:
            raise RequestError("text is missing: pictures stand in a text")
        texts = [text] if isinstance(text, str) else list(text)
        given = _of_each(images, texts, self.image_token)
        grids: list[PixelGrid] = []
        filled: list[str] = []
        for one, own in zip(texts, given, strict=True):
            prepared = [self._prepare(image) for image in own]
            grids += prepared
            filled.append(self._fill(one, prepared))
        encoding = self.tokenizer(
            filled[0] if isinstance(text, str) else filled,
            padding=padding,
            return_tensors=return_tensors,
            add_special_tokens=add_special_tokens,
        )
        if not grids:
            return encoding
        columns: dict[str, Any] = dict(
            as_columns(self.image_reader.processor, grids, [len(own) for own in given])
        )
        if return_tensors == "pt":
            with needs_extra("hf"):
                import torch

            columns = {name: torch.from_numpy(value) for name, value in columns.items()}
        encoding.update(columns)
        return encoding

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        *,
        tokenize: bool = False,
        return_dict: bool = True,
        return_tensors: str | None = None,
        add_generation_prompt: bool = False,
        processor_kwargs: Mapping[str, Any] | None = None,
        **variables: Any,
    ) -> Any:
        """Return a conversation's prompt; its images are parts ``{"type": "image", "image": ...}``.

        Args:
            conversation: Messages; those with images have a list of parts as content.
            tokenize: Give what the processor gives for text and images; False: the text.
            return_dict: False, with ``tokenize``: the ids alone.
            return_tensors: As in calling the processor.
            add_generation_prompt: End with the head of the assistant's turn.
            processor_kwargs: Further arguments of calling the processor.
            **variables: Of the template.
        """
        shown = [_without_images(message) for message in conversation]
        text = self.tokenizer.apply_chat_template(
            shown, add_generation_prompt=add_generation_prompt, tokenize=False, **variables
        )
        if not tokenize:
            return text
        limits, fetch = self.image_reader.limits, self.image_reader.fetch
        images = [image_of_part(part, limits, fetch) for part in _image_parts(conversation)]
        asked = {"add_special_tokens": False, **(processor_kwargs or {})}
        encoding = self(images, text, return_tensors=return_tensors, **asked)
        return encoding if return_dict else encoding["input_ids"]

    def decode(self, *args: Any, **options: Any) -> Any:
        """Do what the tokenizer's method of this name does."""
        return self.tokenizer.decode(*args, **options)

    def batch_decode(self, *args: Any, **options: Any) -> Any:
        """Do what the tokenizer's method of this name does."""
        return self.tokenizer.batch_decode(*args, **options)

    def post_process_image_text_to_text(
        self, generated_outputs: Any, skip_special_tokens: bool = True, **options: Any
    ) -> list[str]:
        """Return the texts of generated ids."""
        texts: list[str] = self.batch_decode(
            generated_outputs, skip_special_tokens=skip_special_tokens, **options
        )
        return texts

    def _prepare(self, image: Any) -> PixelGrid:
        return self.image_reader.processor.prepare(read_image(image, self.image_reader.limits))

    def _fill(self, text: str, grids: Sequence[PixelGrid]) -> str:
        """Return the text with as many placeholders for each image as it has rows."""
        pieces = text.split(self.image_token)
        tower = self.image_reader.tower
        token = self.tokenizer.tokenizer.vocabulary.texts[tower.placeholder]
        filled = [pieces[0]]
        for grid, piece in zip(grids, pieces[1:], strict=True):
            layout = tower.layout(grid)
            filled += [part if isinstance(part, str) else token * part for part in layout]
            filled.append(piece)
        return "".join(filled)


def _of_each(images: Any, texts: list[str], token: str) -> list[list[Any]]:
    """Return the images of each text; RequestError where their number is not that of its places."""
    places = [text.count(token) for text in texts]
    if images is None:
        given: list[list[Any]] = [[] for _ in texts]
    elif not isinstance(images, list | tuple):
        given = [[images]] + [[] for _ in texts[1:]]
    elif images and isinstance(images[0], list | tuple):
        given = [list(own) for own in images]
    else:
        rest = iter(images)
        given = [[p for _, p in zip(range(n), rest, strict=False)] for n in places]
        given[-1] += list(rest)
    counts = [len(own) for own in given]
    if counts != places:
        raise RequestError(
            f"the texts have places for {places} pictures ({token!r}), and {counts} are given"
        )
    return given


def _image_parts(conversation: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    contents = [message.get("content") for message in conversation]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part for part in parts if part.get("type") in IMAGES]


def _without_images(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates read it: an image is only told to be one."""
    content = message.get("content")
    if not isinstance(content, list):
        return dict(message)
    shown = [{"type": "image"} if part.get("type") in IMAGES else part for part in content]
    return {**message, "content": shown}
