"""The backend of ``oxibonsai serve``: the engines of one model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server.access import current_owner
from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.registry.catalog import short_name
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.settings import Settings

if TYPE_CHECKING:
    from oxibonsai.chat_template import ChatTemplate
    from oxibonsai.devices import DevicePlan
    from oxibonsai.engine import Engine, EnginePool
    from oxibonsai.engine.speculation.methods import Speculation
    from oxibonsai.server.adapters import Adapters
    from oxibonsai.vision import ImageReader


class EngineBackend:
    """Loads the model that the settings name; see :class:`~oxibonsai.server.backend.Backend`.

    Created after the fork: the core starts threads.

    Args:
        settings: All settings.
        lifecycle: Told when a step has failed.
        device: Runs the model in place of the device that the settings name.
    """

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle | None = None,
        device: DevicePlan | None = None,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._device = device
        self._models: tuple[ModelInfo, ...] = ()
        self.pool: EnginePool | None = None
        self.chat_template: ChatTemplate | None = None
        self.generates = False
        self.speculation: Speculation | None = None
        self.ranks = False
        self.adapters: Adapters | None = None
        self.on_file_change: Callable[[], None] | None = None

    def load(self) -> None:
        """See :class:`~oxibonsai.server.backend.Backend`."""
        from oxibonsai.engine import EnginePool
        from oxibonsai.engine.placement import device_for_layers
        from oxibonsai.loading import split_scaled

        s = self._settings
        _check_slot_folder(s)
        device, gpu_layers = s.device, s.gpu_layers
        if self._device is None:
            device, gpu_layers = device_for_layers(device, gpu_layers)
        pool = EnginePool.from_pretrained(
            s.model,
            device=self._device or device,
            gpu_layers=gpu_layers,
            threads=s.threads,
            ctx_size=s.ctx_size,
            kv_type=s.kv_type,
            quant_type=s.quant_type,
            load_as=s.load_as,
            lora=[*s.lora, *map(split_scaled, s.lora_scaled)],
            replicas=s.replicas,
            parallel=s.parallel,
            ctx_checkpoints=s.ctx_checkpoints,
            checkpoint_min_step=s.checkpoint_min_step,
            cache_ram=s.cache_ram,
            cache_disk=s.cache_disk,
            slot_save_path=s.slot_save_path,
            queue=s.queue_size,
            parity=s.parity,
            packed_cache=s.packed_cache,
            kv_pressure=s.kv_pressure,
            mmproj=s.mmproj or (None if s.mmproj_auto else False),
            image_min_tokens=s.image_min_tokens,
            image_max_tokens=s.image_max_tokens,
            on_failure=self._failed,
        )
        try:
            self._prepare(pool)
        except BaseException:
            pool.close()  # its threads would keep it
            raise
        self.pool = pool

    def _failed(self) -> None:
        """Have the model loaded again where its file was changed; else the whole process is replaced."""
        changed = self.pool is not None and isinstance(self.pool.failure, FormatError)
        if changed and self.on_file_change is not None:
            self.on_file_change()
        elif self._lifecycle is not None:
            self._lifecycle.circuits.fail(str(self._settings.model))
            self._lifecycle.fail()

    def _prepare(self, pool: EnginePool) -> None:
        """Prepare everything but the engines."""
        from oxibonsai.engine.speculation.methods import choose_speculation
        from oxibonsai.server.adapters import Adapters

        s = self._settings
        most_waiting = s.threads_for_http // 4  # each blocks a thread
        queue = SerialQueue("pictures to read", most_waiting, current_owner)
        for engine in pool.engines:
            engine.image_reader = self._with_limits(engine.image_reader, queue)
        engine = pool.engines[0]
        if engine.has_tokenizer:
            engine.structures.queue = SerialQueue("new structures", most_waiting, current_owner)
        self.chat_template = self._chosen_template(engine)
        self.generates = engine.model.config.generates and not s.embedding
        if self.generates:
            self.speculation = choose_speculation(
                engine, s.speculate, s.draft_model, length=s.draft_length, least=s.draft_min,
                threshold=s.draft_threshold, parallel=pool.permits,
            )  # fmt: skip
        self.ranks = engine.model.config.classifier is not None
        self.adapters = Adapters(pool, s)
        names = s.alias or (short_name(s.model),)
        output = "text" if self.generates else "scores" if self.ranks else "embeddings"
        self._models = (
            ModelInfo(names[0], int(time.time()), names, _meta(engine), s.tags, output=output),
        )

    def models(self) -> Sequence[ModelInfo]:
        """Return the one model, once it is loaded."""
        return self._models

    def close(self) -> None:
        """Cancel what runs and end the engines' threads."""
        pool, self.pool, self.adapters = self.pool, None, None
        if pool is not None:
            pool.close()

    def _with_limits(self, images: ImageReader | None, queue: SerialQueue) -> ImageReader | None:
        """Return the reader with the settings' limits, and with a fetcher of images if they allow it."""
        from oxibonsai.vision.web import ImageFetcher

        if images is None:
            return None
        fetcher = ImageFetcher(images.limits.max_bytes)
        return replace(
            images,
            most_images=self._settings.max_images,
            fetch=fetcher.fetch if self._settings.allow_image_urls else None,
            queue=queue,
        )

    def _chosen_template(self, engine: Engine) -> ChatTemplate | None:
        """Return the template of the settings, else the model's own."""
        from oxibonsai.chat import choose_template, fallback_template
        from oxibonsai.chat_template import ChatTemplate

        s = self._settings
        template = choose_template(engine, s.chat_template, s.chat_template_file)
        if not engine.has_tokenizer:
            return template
        if not s.jinja:
            return ChatTemplate.chatml()
        if template is None and engine.model.config.generates:
            return fallback_template(engine)
        return template


def _meta(engine: Engine) -> dict[str, Any]:
    """Return facts about the model under llama-server's names."""
    config, checkpoint = engine.model.config, engine.model.weights.checkpoint
    return {
        "vocab_type": 0,
        "n_vocab": config.vocab_size,
        "n_ctx": engine.ctx_size,
        "n_ctx_train": config.max_position_embeddings,
        "n_embd": config.hidden_size,
        "n_params": sum(_elements(checkpoint.shape(n)) for n in checkpoint.tensor_names),
        "size": checkpoint.file.size,
    }


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


def _check_slot_folder(s: Settings) -> None:
    if s.slot_save_path is not None and not s.slot_save_path.is_dir():
        raise RequestError(f"--slot-save-path: there is no folder {s.slot_save_path}")


def _check_at_start(s: Settings) -> None:
    """Check what can be known of a model's settings before it is loaded.

    Raises:
        RequestError: A folder, a template or a device is named that there is none of.
        UnsupportedError: This machine lacks the device.
    """
    from oxibonsai.chat import read_template
    from oxibonsai.devices import AUTO, CPU, chosen_device, list_devices, open_device

    _check_slot_folder(s)
    read_template(s.chat_template, s.chat_template_file)
    usable = {AUTO, CPU}
    for name in chosen_device(s.device).split(","):
        if name not in usable:
            usable |= {device.name for device in list_devices() if device.usable}
        if name not in usable:
            open_device(name)  # says why it can't be used


def served_models(settings: Settings, lifecycle: Lifecycle) -> ModelRegistry:
    """Return the models that the settings name; made after the fork.

    Raises:
        OxiBonsaiError: A setting can't be, whichever model is loaded.
    """
    # Here and not in a loading thread: two threads that import modules of one package at the same
    # time can deadlock.
    import oxibonsai.engine  # noqa: F401

    registry = ModelRegistry(settings, lifecycle, EngineBackend)
    for entry in registry.entries():
        _check_at_start(entry.spec.settings)
    return registry
