"""From a model's name to a running engine."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from oxibonsai import _core
from oxibonsai.devices import (
    AUTO,
    CPU,
    Device,
    DevicePlan,
    chosen_device,
    default_threads,
    keep_in_forks,
)
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.kv_policy import AGGRESSIVE, BALANCED, PRESSURE_KV_TYPES, KvPressurePolicy
from oxibonsai.engine.memory import (
    cache_ram_bytes,
    default_ctx_size,
    default_kv_type,
    fit_ctx_size,
    kv_bytes_per_token,
    make_cache,
    make_store,
    plan_slots,
    spare_slots,
)
from oxibonsai.engine.placement import place_model
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.files.progress import Progress
from oxibonsai.known_models import missing_rotation
from oxibonsai.loading import LoraChoice, QuantizedCache, open_adapters, open_model
from oxibonsai.loading.image_reader import load_image_reader
from oxibonsai.models import Model, PackedCache, Parity, check_parity, load_model
from oxibonsai.tokenizer import Tokenizer

KvPressure = Literal["balanced", "aggressive"]
# Beside saved slots, of which none can have this name.
_STATE_FOLDER = ".prefix-cache"
_PROFILES = {"balanced": BALANCED, "aggressive": AGGRESSIVE}


def load(
    source: str | os.PathLike[str] | None = None,
    *,
    device: str | DevicePlan | None = None,
    gpu_layers: int | None = None,
    threads: int | None = None,
    ctx_size: int | None = None,
    kv_type: str | None = None,
    quant_type: str = "",
    load_as: str | None = None,
    lora: LoraChoice | None = None,
    parallel: int = 4,
    ctx_checkpoints: int | None = None,
    checkpoint_min_step: int | None = None,
    cache_ram: int | None = None,
    cache_disk: int = 16384,
    slot_save_path: str | os.PathLike[str] | None = None,
    prefix_cache: bool = True,
    kv_pressure: KvPressure | None = None,
    parity: Parity = "quick",
    packed_cache: bool = False,
    mmproj: str | os.PathLike[str] | bool | None = None,
    image_min_tokens: int | None = None,
    image_max_tokens: int | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Load a model and make an engine.

    Args:
        source: What :func:`oxibonsai.loading.open_model` takes: a file, a folder with one or
            with safetensors, ``hf:...``, ``pip:...``; None for the default model.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"metal"``, ``"opencl"``, or ``"auto"``: a GPU if
            one can run the model and gives the definition's bytes, else the CPU and a warning that says
            why. None: ``OXIBONSAI_DEVICE``, else the CPU. ``"cuda:0,cuda:1"``: these cards share the
            layers. The text does not depend on it. A plan: what several processes run together
            (:mod:`oxibonsai.distributed`), with threads of its own.
        gpu_layers: Only so many of the last layers run on the GPU, what follows the last one counted
            as one more, and the others on the CPU; None: all of them. As llama.cpp's.
        threads: Worker threads; None: ``OXIBONSAI_THREADS`` or all usable cores.
        ctx_size: Positions of a sequence; what exceeds the model's own number is cut, with a warning.
            None: the model's own, cut to suit the memory of the device. One within the original context
            of a model with LongRoPE chooses its short factors; one beyond that of a model with dynamic
            NTK scaling, up to its factor times as many, stretches its base for a text of that size.
        kv_type: ``"f32"``, ``"f16"``, ``"q8_0"``, ``"q4_0"`` or ``"fp8_e4m3"``; None: f32 for models
            with a small cache, else f16.
        quant_type: Layout of tensors of type id 42, where the file leaves it open.
        load_as: A weight type or mix, as ``oxibonsai quantize`` takes it: the model is quantized to it
            when it is first loaded, and the result is kept in the cache folder for the next time.
            None: the types of the file.
        lora: Low-rank adapters, llama.cpp's GGUF files or folders that PEFT saved: one, or a list in
            which each may have a scale, ``["a.gguf", ("b.gguf", 0.5)]``. They are added in this order;
            one of scale 0 leaves every byte as it is.
        parallel: Sequences that fit in the cache at full length; of a model with recurrent state, those
            that run at once.
        ctx_checkpoints: Snapshots of recurrent state to keep in host memory for each of these, from which
            equal beginnings are continued; None: those that fit in ``cache_ram``, at least 2. Results
            don't depend on it, nor on the next four.
        checkpoint_min_step: Tokens from one snapshot to the next, where no end of a turn asks for one,
            0 for 64; None: so many that a sequence's snapshots cover a context.
        cache_ram: MiB of host memory for snapshots, and for pages that the cache has no more room for;
            -1: no limit; 0: none; None: 8192 but at most an eighth of the machine's memory for a model
            with recurrent state, none for others.
        cache_disk: MiB of disk for what this memory has no room for; the least recently used goes first.
        slot_save_path: A folder for that, in which the next start finds it again; None: nothing goes to
            disk.
        prefix_cache: Keep computed pages, so that equal beginnings are computed once. Results don't
            depend on it.
        kv_pressure: Let new sequences have keys and values of smaller types (q8_0, q4_0) while
            memory for them is short: ``"balanced"`` or ``"aggressive"``, from f16 on. Their text
            then depends on the load; None: always ``kv_type``. Not on devices with memory of
            their own.
        parity: What to compare with the definition first: ``"quick"`` every kind of kernel on
            slices of the weights, ``"full"`` a greedy decode too, ``"off"`` nothing.
        packed_cache: Keep the packed weights on disk, and use them at the next start.
        mmproj: The model's vision tower: an mmproj GGUF file as llama.cpp has it, ``hf:org/repo:FILE``,
            ``https://...`` or the folder of a whole model; None: the one beside the model, in its
            repository or in its own folder, that fits it; False: none.
        image_min_tokens: Tokens of an image at least, for models that read images in their own
            size; None: the model's own bound.
        image_max_tokens: At most.
        progress: Told the bytes of weights that are packed, and how many there are.

    Raises:
        CapacityError: The device has too little memory for the weights or the context.
        DeviceError: The device failed.
        ParityError: The device's kernels give other bytes than the definition.
        SourceError: No such model.
        FormatError: The file is damaged.
        UnsupportedError: The file asks for what this version does not implement.
        RequestError: An argument is out of range.
    """
    counts = {
        "gpu_layers": gpu_layers,
        "threads": threads,
        "ctx_size": ctx_size,
        "ctx_checkpoints": ctx_checkpoints,
        "checkpoint_min_step": checkpoint_min_step,
        "cache_ram": cache_ram,
        "image_min_tokens": image_min_tokens,
        "image_max_tokens": image_max_tokens,
    }
    for name, value in {**counts, "parallel": parallel, "cache_disk": cache_disk}.items():
        if value is None and name in counts:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{name} is {value!r}; it must be a whole number")
    for name in ("threads", "image_min_tokens", "image_max_tokens", "parallel"):
        value = {**counts, "parallel": parallel}[name]
        if value is not None and value < 1:
            raise RequestError(f"{name} is {value}; it must be at least 1")
    if gpu_layers is not None and gpu_layers < 0:
        raise RequestError(f"gpu_layers is {gpu_layers}; it must be 0 or more")
    checkpoint = open_model(source, quant_type)
    if not checkpoint.has_weights:
        raise FormatError(f"{checkpoint.path} holds a vocabulary but no weights")
    stored = {t.quant_type for t in checkpoint.file.tensors}
    if (doubt := missing_rotation(checkpoint.file, checkpoint.path, stored)) is not None:
        warnings.warn(doubt, stacklevel=2)
    if kv_pressure not in (None, *_PROFILES):
        raise RequestError(f"kv_pressure is {kv_pressure!r}; it is one of {', '.join(_PROFILES)}")
    if parity not in get_args(Parity):
        raise RequestError(f"parity is {parity!r}; it is one of {', '.join(get_args(Parity))}")
    if kv_type is not None and kv_type not in _core.KV_TYPES:
        raise RequestError(f"kv_type is {kv_type!r}; it is one of {', '.join(_core.KV_TYPES)}")
    if kv_pressure is not None and kv_type is not None:
        raise RequestError("kv_type and kv_pressure exclude each other: give one of them")
    named = None if isinstance(device, DevicePlan) else chosen_device(device)
    if packed_cache and named != CPU:
        raise RequestError("packed_cache keeps the weights of CPUs: leave it out for other devices")
    kept = {
        "ctx_checkpoints": ctx_checkpoints,
        "checkpoint_min_step": checkpoint_min_step,
        "cache_ram": cache_ram,
        "slot_save_path": slot_save_path,
    }
    unused = next((n for n, given in kept.items() if given), None)
    if not prefix_cache and unused is not None:
        raise RequestError(f"{unused} is for the prefix cache, which is off: leave it out")
    if cache_disk < 0:
        raise RequestError(f"cache_disk is {cache_disk}; it must be 0 or more")
    policy = None if kv_pressure is None else KvPressurePolicy(_PROFILES[kv_pressure])
    cache = PackedCache() if packed_cache else None
    if load_as is not None:
        checkpoint = QuantizedCache().open(
            checkpoint, load_as, threads=threads or default_threads(), progress=progress
        )
    adapters = open_adapters(lora, checkpoint)

    def types_of(model: Model) -> tuple[str, ...]:
        if policy is not None:
            return PRESSURE_KV_TYPES
        return (kv_type or default_kv_type(model.graph.paged_layers),)

    def load_on(device: Device | DevicePlan) -> Model:
        return load_model(checkpoint, device, progress, cache, adapters, ctx_size)

    def check(model: Model) -> None:
        # A GPU that nobody named has to prove itself even where parity is "off".
        unnamed = named == AUTO and model.device.name != CPU
        level = "quick" if unnamed and parity == "off" else parity
        check_parity(model, level, types_of(model)[0])

    model = place_model(device, gpu_layers, threads, load_on, check)
    if policy is not None and model.device.free_bytes is not None:
        raise UnsupportedError(
            f"kv_pressure is not available on {model.device.name}, where pages of each type would take "
            "memory of their own from the start: give kv_type"
        )
    types = types_of(model)
    layers = model.graph.paged_layers
    if model.config.causal and not layers and (kv_type or kv_pressure) is not None:
        raise RequestError("this model keeps no keys and values: leave out kv_type and kv_pressure")
    limit = model.config.longest_text
    if ctx_size is not None and ctx_size < 1:
        raise RequestError(f"ctx_size is {ctx_size}; this model takes 1 to {limit} positions")
    if ctx_size is not None and ctx_size > limit:
        warnings.warn(
            f"ctx_size is {ctx_size}, and this model takes {limit} positions at most: it is {limit}",
            stacklevel=2,
        )
        ctx_size = limit
    entries = model.graph.slot_entries
    ram_bytes = cache_ram_bytes(cache_ram, recurrent=bool(entries)) if prefix_cache else 0
    plan = plan_slots(
        entries,
        ctx_size=default_ctx_size(model.config, checkpoint) if ctx_size is None else ctx_size,
        parallel=parallel,
        ram_bytes=ram_bytes,
        ctx_checkpoints=ctx_checkpoints,
        checkpoint_min_step=checkpoint_min_step,
    )
    store = make_store(
        model,
        plan,
        ram_bytes=ram_bytes,
        folder=None if slot_save_path is None else Path(slot_save_path) / _STATE_FOLDER,
        disk_bytes=cache_disk << 20,
    )
    if plan is not None and model.device.free_bytes is None:  # memory is taken with a slot's use
        plan = replace(plan, spare=spare_slots(entries, parallel))
    size = fit_ctx_size(model, types[0], ctx_size, parallel, plan)
    tokenizer = None
    if checkpoint.has_tokenizer:
        tokenizer = Tokenizer.from_gguf(checkpoint.file)
    positions = -(-size // _core.PAGE_POSITIONS) * _core.PAGE_POSITIONS * parallel
    engine = Engine(
        model,
        tokenizer,
        make_cache(model, types, positions, keep=prefix_cache, plan=plan, store=store),
        ctx_size=size,
        policy=policy,
    )
    engine.image_reader = load_image_reader(
        model,
        tokenizer,
        source,
        mmproj,
        image_min_tokens=image_min_tokens,
        image_max_tokens=image_max_tokens,
    )
    return engine


def replicate(engine: Engine, count: int) -> list[Engine]:
    """Return so many engines over the weights of one, itself among them, which share out its threads."""
    if count == 1:
        return [engine]
    threads = max(1, engine.model.device.threads // count)
    replicas = [_replica(engine, threads) for _ in range(count)]
    if engine.has_tokenizer:
        for replica in replicas[1:]:
            replica.share_structures(replicas[0])
    for replica in replicas:
        replica.image_reader = engine.image_reader
    return replicas


def _replica(engine: Engine, threads: int) -> Engine:
    model = engine.model.replica(threads)
    keep_in_forks(model.device)
    cache = engine.cache
    types = tuple(p.type for p in cache.pools)
    per_token = kv_bytes_per_token(model.graph.paged_layers, types[0]) if types else 0
    positions = cache.budget // per_token if per_token else 0
    plan = None if cache.slots is None else cache.slots.plan
    policy = engine.policy
    return Engine(
        model,
        engine.tokenizer if engine.has_tokenizer else None,
        make_cache(model, types, positions, keep=cache.keep, plan=plan, store=cache.store),
        ctx_size=engine.ctx_size,
        policy=None if policy is None else KvPressurePolicy(policy.profile),
    )
