"""The form fields of an upload, and the bodies of ``/v1/images``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from oxibonsai.server.schemas.fields import Fields, Metadata
from oxibonsai.server.schemas.known import EveryRequest, Ignored, Unsupported

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


class ExpiresAfter(Fields):
    """When a file expires."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000)


class UploadForm(Fields):
    """The form fields other than the file."""

    purpose: Purpose
    expires_after: ExpiresAfter | None = None


Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]


class BatchCreate(Fields):
    """A file of requests to one route."""

    input_file_id: str
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


_ONE_QUALITY = Ignored("there is one quality; send steps for more", "auto", "standard")
_PNG_ONLY = Unsupported("pictures are PNG files", "png")


class ImageFields(EveryRequest):
    """Fields of both requests."""

    prompt: str = Field(min_length=1, max_length=32_000)
    model: str | None = None
    n: int | None = Field(None, ge=1, le=10)
    size: str | None = Field(
        None,
        pattern=r"^(auto|\d{1,5}x\d{1,5})$",
        description="WIDTHxHEIGHT. Default: as the model says, usually 512x512.",
    )
    response_format: Literal["b64_json", "url"] | None = Field(
        None, description="url: of a file that is stored for an hour. Default: b64_json."
    )
    stream: bool | None = None
    partial_images: int | None = Field(None, ge=0, le=3, description="Previews in a stream.")
    seed: int | None = Field(
        None, ge=0, lt=2**63, description="Of the first picture; the next ones count on from it."
    )
    steps: int | None = Field(None, ge=1, le=100)
    rng: Literal["mlx", "torch"] | None = None

    quality: Annotated[Any, _ONE_QUALITY] = None
    output_format: Annotated[Any, _PNG_ONLY] = None
    output_compression: Annotated[Any, Unsupported("pictures are PNG files", 100)] = None
    background: Annotated[Any, Unsupported("pictures are opaque", "auto", "opaque")] = None
    moderation: Annotated[Any, Ignored("nothing is moderated", "auto", "low")] = None
    style: Annotated[Any, Ignored("say it in the prompt")] = None
    negative_prompt: Annotated[Any, Unsupported("the model is distilled and reads none", "")] = None
    guidance: Annotated[Any, Unsupported("the model is distilled and reads none", 1, 1.0)] = None


class GenerationBody(ImageFields):
    """``POST /v1/images/generations``."""


class EditForm(ImageFields):
    """The fields of ``POST /v1/images/edits`` other than the pictures."""

    strength: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Start from the one picture and keep so much of it. Default: the picture is what "
        "the prompt is about.",
    )
    mask: Annotated[Any, Unsupported("say in the prompt what is to change")] = None
    input_fidelity: Annotated[Any, Unsupported("there is one fidelity")] = None
