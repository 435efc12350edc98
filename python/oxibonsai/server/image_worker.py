"""The image model of the server: drawn one image at a time, beside the texts of the engines."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from oxibonsai.errors import RequestError
from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server.access import current_owner
from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.errors import ApiError
from oxibonsai.server.settings import Settings

if TYPE_CHECKING:
    from oxibonsai.diffusion.diffusion_pipeline import DiffusionPipeline, OnStep, Step
    from oxibonsai.diffusion.pixels import Pixels
    from oxibonsai.diffusion.request import ImageRequest


_MEGAPIXEL = 1 << 20


class ImageWorker:
    """Draws one step of one image at a time for all requests; keys take turns.

    The files are opened at once, so that a server without them does not start; the networks are
    packed for the first image. Each waiting request blocks a thread and no more memory than its
    input images.

    Args:
        settings: Name the model; without one, every request is refused.

    Raises:
        OxiBonsaiError: The model can't be opened.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._queue = SerialQueue("pictures to draw", settings.image_queue, current_owner)
        self._reading = SerialQueue("pictures to edit", settings.image_queue, current_owner)
        self._diffusion: DiffusionPipeline | None = None
        self._opened_at = int(time.time())
        self._files = None
        if settings.image_model is not None:
            from oxibonsai.diffusion.model_files import PartNames, open_image_model

            self._files = open_image_model(settings.image_model, PartNames())

    @property
    def name(self) -> str:
        """Return the model's name."""
        return self._files.name if self._files is not None else ""

    @property
    def info(self) -> ModelInfo | None:
        """The model as ``/v1/models`` lists it; None if there is none."""
        if self._files is None:
            return None
        return ModelInfo(self.name, self._opened_at, (self.name,), output="image")

    @property
    def default_size(self) -> tuple[int, int]:
        """Width and height of an image for which none is asked; only where there is a model."""
        assert self._files is not None
        return self._files.default_pixels, self._files.default_pixels

    def require(self) -> None:
        """Raise ApiError 501 if there is no image model."""
        if self._files is None:
            raise ApiError(
                501,
                "This server has no image model: start it with --image-model.",
                code="not_supported",
            )

    def reading(self, look: Callable[[], None]) -> AbstractContextManager[None]:
        """Wait for the turn to decode the images of a request, which takes much memory.

        Args:
            look: Called while it waits; what it raises ends the waiting.
        """
        return self._reading.turn(look)

    def check(self, request: ImageRequest, count: int) -> None:
        """Refuse images that are too large or too much work for this server, before they wait.

        Args:
            request: One of the images.
            count: How many of them are asked for.

        Raises:
            ApiError: They are.
        """
        most = self._settings.image_max_pixels
        if request.width * request.height > most:
            raise ApiError(
                400,
                f"size: {request.width}x{request.height} has more than the {most} pixels that this "
                "server generates (--image-max-pixels).",
                param="size",
            )
        seen = [(request.width, request.height), *(image.size for image in request.references)]
        pixels = sum(width * height for width, height in seen)
        work, limit = pixels * request.steps * count, self._settings.image_max_work
        if work > limit * _MEGAPIXEL:
            references = f" with {len(seen) - 1} references" if len(seen) > 1 else ""
            raise ApiError(
                400,
                f"{_counted(count, 'picture')} of {request.width}x{request.height}{references} in "
                f"{_counted(request.steps, 'step')} are {work / _MEGAPIXEL:.1f} megapixels times steps, "
                f"more than the {limit:g} that this server generates for one request "
                "(--image-max-work): ask for fewer or smaller pictures, steps or references.",
                param="n" if count > 1 else "steps",
            )

    def draw(
        self, request: ImageRequest, look: Callable[[], None], on_step: OnStep | None = None
    ) -> Pixels:
        """Draw an image: uint8 [height, width, 3]; between its steps other keys have their turns.

        Args:
            request: Checked.
            look: Called while it waits and after each step; what it raises ends the drawing.
            on_step: Called after each step.

        Raises:
            CapacityError: Too many images wait.
            RequestError: The request can't be drawn.
        """
        with self._queue.turn(look):
            diffusion = self._opened()
            try:
                diffusion.check(request)
            except RequestError as e:
                # The API has one field for both sides.
                field = "size" if e.param in ("width", "height") else e.param
                raise RequestError(str(e), param=field) from None

            def each(step: Step) -> None:
                look()
                if on_step is not None:
                    on_step(step)
                self._queue.give_way(look)

            return diffusion.draw(request, each)

    def preview(self, step: Step) -> Pixels:
        """Return an image as it looks after a step; only within ``on_step``."""
        from oxibonsai.diffusion.pixels import to_pixels

        return to_pixels(self._opened().decode(step.estimate, step.grid))

    def _opened(self) -> DiffusionPipeline:
        """Return the networks; in its turn, so they are packed once."""
        if self._diffusion is None:
            from oxibonsai.devices import AUTO, CPU, chosen_device, open_device
            from oxibonsai.diffusion.diffusion_pipeline import DiffusionPipeline

            assert self._files is not None
            name = chosen_device(self._settings.device)
            device = open_device(CPU if name == AUTO else name, self._settings.threads)
            self._diffusion = DiffusionPipeline(self._files, device)
        return self._diffusion


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
