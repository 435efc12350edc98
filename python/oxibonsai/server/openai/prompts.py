"""Converts prompts of requests to token ids and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oxibonsai.chat import PreparedPrompt, place_images
from oxibonsai.errors import RequestError
from oxibonsai.output.messages import NO_IMAGES
from oxibonsai.server.inputs import InputWatch, PromptLimit, TooLongError, read_text
from oxibonsai.server.openai.schemas.completion import MOST_PROMPTS, Prompts
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.vision import ImageReader, PlacedImage

# What stands for an image of multimodal_data in prompt_string, as /props says.
MEDIA_MARKER = "<__media__>"


@dataclass(frozen=True)
class ReadPrompt:
    """A prompt as the engine takes it.

    Attributes:
        ids: Its tokens, a placeholder for each row of an image among them.
        images: Its images.
    """

    ids: list[int]
    images: tuple[PlacedImage, ...] = ()


def read_prompts(
    prompt: Prompts,
    tokenizer: Tokenizer,
    name: str,
    prompt_limit: PromptLimit | None = None,
    most: int = MOST_PROMPTS,
    image_reader: ImageReader | None = None,
) -> list[ReadPrompt]:
    """Return token ids and images of each prompt.

    A list of ids, or of ids and texts, is one prompt; a list of texts or of lists is several.

    Args:
        prompt: The value of the request's field.
        tokenizer: The model's tokenizer.
        name: Name of the field, for error messages.
        prompt_limit: Applied to each prompt; None: no limit.
        most: Maximum number of prompts.
        image_reader: Reads ``multimodal_data``; None: the model reads text only.

    Raises:
        RequestError: A prompt is empty or has an unsupported form.
        TooLongError: A text does not fit into the context; ids are checked by the caller.
        ClientGoneError: The client disconnected.
    """
    one = not isinstance(prompt, list) or any(isinstance(p, int) for p in prompt)
    prompts: list[Any] = [prompt] if one or not isinstance(prompt, list) else prompt
    if not prompts:
        raise RequestError(f"{name} is an empty list")
    if len(prompts) > most:
        raise RequestError(f"{name} has {len(prompts)} entries: at most {most} are allowed")
    return [_read(p, tokenizer, name, prompt_limit, image_reader) for p in prompts]


def is_several(prompt: Prompts) -> bool:
    """Return whether a field is a list of prompts rather than a single one."""
    return isinstance(prompt, list) and not any(isinstance(p, int) for p in prompt)


def _read(
    prompt: Any,
    tokenizer: Tokenizer,
    name: str,
    prompt_limit: PromptLimit | None,
    image_reader: ImageReader | None,
) -> ReadPrompt:
    data = prompt.get("multimodal_data") if isinstance(prompt, dict) else None
    if data:
        return _seen(prompt, data, tokenizer, f"{name}.multimodal_data", prompt_limit, image_reader)
    return ReadPrompt(_ids(prompt, tokenizer, name, prompt_limit))


def _seen(
    prompt: dict[str, Any],
    data: Any,
    tokenizer: Tokenizer,
    name: str,
    prompt_limit: PromptLimit | None,
    image_reader: ImageReader | None,
) -> ReadPrompt:
    """Return llama-server's object of a text with markers and its images in base64."""
    if image_reader is None:
        raise RequestError(f"{name}: {NO_IMAGES}")
    if not isinstance(data, list) or not all(isinstance(d, str) for d in data):
        raise RequestError(f"{name} is no list of pictures in base64")
    text = prompt.get("prompt_string")
    if not isinstance(text, str):
        raise RequestError(f"{name} goes with prompt_string, which is no text")
    if text.count(MEDIA_MARKER) != len(data):
        raise RequestError(
            f"{name} has {len(data)} pictures, prompt_string {text.count(MEDIA_MARKER)} times "
            f"{MEDIA_MARKER}: each picture has its place"
        )
    ids, images = place_images(
        text.replace(MEDIA_MARKER, image_reader.tower.written),
        [{"type": "image", "base64": d} for d in data],
        image_reader,
        tokenizer,
        InputWatch(prompt_limit),
        add_special=True,
    )
    return ReadPrompt(ids, images)


def _ids(
    prompt: Any, tokenizer: Tokenizer, name: str, prompt_limit: PromptLimit | None
) -> list[int]:
    if isinstance(prompt, dict):
        prompt = _text_of(prompt, name)
    if isinstance(prompt, str):
        ids = read_text(prompt, tokenizer, prompt_limit)
        # An empty text has no tokens if the model has no BOS token.
        return ids or _beginning(tokenizer, name)
    ids = []
    for i, part in enumerate(prompt):
        if isinstance(part, int):
            ids.append(part)
        else:
            ids += read_text(part, tokenizer, prompt_limit, add_special=i == 0)
    if not ids:
        raise RequestError(f"{name} is empty: there is nothing to continue")
    return ids


def _beginning(tokenizer: Tokenizer, name: str) -> list[int]:
    """Return the prompt of an empty text: the BOS token, or the EOS token if there is none."""
    token = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    if token is None:
        raise RequestError(f"{name} is empty: there is nothing to continue")
    return [token]


def _text_of(prompt: dict[str, Any], name: str) -> str:
    """Return the text of llama-server's object forms."""
    if isinstance(prompt.get("prompt_string"), str):
        return str(prompt["prompt_string"])
    parts = prompt.get("content")
    if not isinstance(parts, list) or not parts:
        raise RequestError(f"{name} is an object without prompt_string and content parts")
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RequestError(
                f"{name}.content: only parts of type text are supported, not {kind!r}"
            )
    return "".join(part["text"] for part in parts)


def text_of(ids: list[int], tokenizer: Tokenizer) -> str:
    """Return the text of a prompt, including control tokens."""
    data = b"".join(tokenizer.token_bytes(i) for i in ids)
    return data.decode("utf-8", "replace")


def fitting_prompt(
    prepare: Callable[[int], PreparedPrompt], most_left_out: int, most_tokens: int
) -> PreparedPrompt:
    """Return the prompt of a conversation from which messages may be dropped.

    Args:
        prepare: Makes the prompt without the given number of messages; it shrinks with that number.
        most_left_out: How many messages may be dropped.
        most_tokens: Maximum length of the prompt.

    Returns:
        The prompt with the fewest messages dropped that is short enough; if none is, the shortest.

    Raises:
        RequestError, TooLongError: Raised by ``prepare`` for the shortest prompt.
    """

    def fitting(left_out: int) -> PreparedPrompt | None:
        try:
            tried = prepare(left_out)
        except TooLongError:
            return None
        return tried if len(tried.ids) <= most_tokens else None

    if most_left_out < 1:
        return prepare(0)
    if (whole := fitting(0)) is not None:
        return whole
    low, fits, best = 1, most_left_out, prepare(most_left_out)
    while low < fits:
        middle = (low + fits) // 2
        if (tried := fitting(middle)) is not None:
            fits, best = middle, tried
        else:
            low = middle + 1
    return best
