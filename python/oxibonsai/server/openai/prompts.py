"""Converts prompts of requests to token ids and back."""

from __future__ import annotations

from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.server.inputs import PromptLimit, read_text
from oxibonsai.server.openai.schemas.completion import MOST_PROMPTS, Prompts
from oxibonsai.tokenizer import Tokenizer


def read_prompts(
    prompt: Prompts,
    tokenizer: Tokenizer,
    name: str,
    prompt_limit: PromptLimit | None = None,
    most: int = MOST_PROMPTS,
) -> list[list[int]]:
    """Token ids of each prompt.

    A list of ids, or of ids and texts, is one prompt; a list of texts or of lists is several.

    Args:
        prompt: The value of the request's field.
        tokenizer: The model's tokenizer.
        name: Name of the field, for error messages.
        prompt_limit: Applied to each prompt; None: no limit.
        most: Maximum number of prompts.

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
    return [_ids(p, tokenizer, name, prompt_limit) for p in prompts]


def is_several(prompt: Prompts) -> bool:
    """Whether a field is a list of prompts rather than a single one."""
    return isinstance(prompt, list) and not any(isinstance(p, int) for p in prompt)


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
    """The prompt of an empty text: the BOS token, or the EOS token if there is none."""
    token = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    if token is None:
        raise RequestError(f"{name} is empty: there is nothing to continue")
    return [token]


def _text_of(prompt: dict[str, Any], name: str) -> str:
    """The text of llama-server's object forms."""
    if isinstance(prompt.get("prompt_string"), str):
        if prompt.get("multimodal_data"):
            raise RequestError(f"{name}.multimodal_data: this model only reads text")
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
    """The text of a prompt, including control tokens."""
    data = b"".join(tokenizer.token_bytes(i) for i in ids)
    return data.decode("utf-8", "replace")
