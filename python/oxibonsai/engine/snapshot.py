"""A sequence on disk: saved between two steps, it goes on later as if nothing had happened.

A file holds the bytes of the pages and of the slot of recurrent state, behind a header. Whatever can be
had by going through the tokens again (text, stop strings, structure, reasoning) is not in it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from oxibonsai import _core
from oxibonsai.engine.batching import reserve
from oxibonsai.engine.context_shift import ContextShift, Shifted
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.sequence import Options, Sequence
from oxibonsai.engine.state_file import StateFormat
from oxibonsai.errors import CapacityError, FormatError, RequestError, UnsupportedError
from oxibonsai.sampling import SamplingParams
from oxibonsai.sampling.sampler import TokenLogprobs
from oxibonsai.structured import Structure

_FORMAT = StateFormat(b"OXISNAP\n", 3, "snapshot of a sequence")


@dataclass(frozen=True)
class Snapshot:
    """The contents of a snapshot.

    Attributes:
        sequence: Taken in by the engine; it runs on with the next step unless it had ended.
        notes: What the caller of :func:`save` had put in.
        computed: Its tokens whose state is in the cache now.
    """

    sequence: Sequence
    notes: dict[str, Any]
    computed: int


def save(
    engine: Engine,
    sequence: Sequence,
    path: str | os.PathLike[str],
    notes: dict[str, Any] | None = None,
) -> int:
    """Write a sequence that runs, wait or has ended; under its name only when complete.

    Args:
        engine: Whose sequence it is.
        sequence: It is not changed.
        path: The file.
        notes: JSON values to keep beside it.

    Returns:
        How many tokens' state is in it: that of whole pages which the cache still has, or with
        recurrent state that which it still has of the longest beginning.

    Raises:
        OSError: The file can't be written.
        UnsupportedError: The text has images, or the model an encoder.
    """
    engine.model.check_decoder_only("snapshots")
    if sequence.images is not None:
        raise UnsupportedError(
            "a text with pictures can't be saved: a snapshot holds tokens and their state, no pictures; "
            "the prefix cache keeps what is computed of it while the engine runs"
        )
    with engine.lock:
        computed, pages, slot = _state(engine, sequence)
        header = _header(engine, sequence, computed, len(pages), len(slot), notes or {})
    _FORMAT.write(Path(path), header, (*pages, slot))
    return computed


def restore(
    engine: Engine, path: str | os.PathLike[str], options: Options | None = None
) -> Snapshot:
    """Read a sequence back; its text goes on byte for byte as it would have.

    Args:
        engine: Of the same model, with pages of the same type of keys and values.
        path: The file.
        options: ``speculate``, ``constrain``, ``visible``, ``tenant`` and ``cache_salt`` of the resumed
            sequence; the rest comes from the file.

    Raises:
        FormatError: The file is no snapshot, is cut or damaged, or is of another model.
        CapacityError: The cache has no room for its pages, or no slot.
    """
    path = Path(path)
    header, state = _FORMAT.read(path)
    try:
        return _restore(engine, path, header, state, options or Options())
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise FormatError(f"{path} is no snapshot that this version can read: {e}") from e


def _state(engine: Engine, sequence: Sequence) -> tuple[int, list[bytes], bytes]:
    """Return how many tokens are kept with their state, the pages with it, and the slot at their end."""
    cache = engine.cache
    if not sequence.finished:
        return cache.read(sequence.table, sequence.num_computed)
    # Its state is given back; what the cache still knows is enough.
    root = sequence.options.cache_root
    return cache.read_kept(cache.lookup(sequence.tokens, sequence.table.pool, root))


def _header(
    engine: Engine,
    sequence: Sequence,
    computed: int,
    pages: int,
    slot_bytes: int,
    notes: dict[str, Any],
) -> dict[str, Any]:
    pools, options = engine.cache.pools, sequence.options
    pool = pools[sequence.table.pool] if pools else None
    return {
        "model": engine.model.fingerprint(),
        "kv_type": None if pool is None else pool.type,
        "page_bytes": 0 if pool is None else pool.page_bytes,
        "pages": pages,
        "slot_bytes": slot_bytes,
        "num_computed": computed,
        "num_prompt_tokens": sequence.num_prompt_tokens,
        "history": sequence.history,
        "tokens": None if sequence.tokens is sequence.history else sequence.tokens,
        "params": asdict(sequence.params),
        "sampler": sequence.sampler.state(),
        "structure": None if options.structure is None else options.structure.to_json(),
        "shift": None if options.shift is None else asdict(options.shift),
        "shifts": [asdict(s) for s in sequence.shifts],
        "adapter": options.adapter,
        "visible": sorted(options.visible),
        "logprobs": [[t.token, t.logprob, t.top] for t in sequence.logprobs],
        "finish_reason": sequence.finish_reason,
        "notes": notes,
    }


def _restore(
    engine: Engine, path: Path, header: dict[str, Any], data: memoryview, given: Options
) -> Snapshot:
    _check_fit(engine, path, header, data)
    structure, shift = header["structure"], header["shift"]
    options = Options(
        structure=None if structure is None else Structure.from_json(structure),
        constrain=given.constrain,
        shift=None if shift is None else ContextShift(**shift),
        speculate=given.speculate,
        adapter=str(header["adapter"]),
        visible=given.visible | frozenset(header["visible"]),
        tenant=given.tenant,
        cache_salt=given.cache_salt,
    )
    history: list[int] = header["history"]
    prompt = history[: header["num_prompt_tokens"]]
    params = _params(header["params"])
    engine.check_ids(history)
    sequence = engine.make_sequence(prompt, params, options)
    _replay(sequence, history[len(prompt) :], engine.eos_ids)
    sequence.sampler.restore(header["sampler"])
    if header["tokens"] is not None:
        sequence.tokens = header["tokens"]
    engine.check_prompt(sequence.tokens)
    sequence.shifts = [Shifted(**s) for s in header["shifts"]]
    sequence.logprobs = [
        TokenLogprobs(token, logprob, tuple((int(i), float(p)) for i, p in top))
        for token, logprob, top in header["logprobs"]
    ]
    reason, notes = header["finish_reason"], header["notes"]
    computed = header["num_computed"]
    if not 0 <= computed <= len(sequence.tokens):
        raise FormatError(f"{path} has num_computed {computed} of {len(sequence.tokens)} tokens")
    with engine.lock:
        sequence.table.pool = _pool(engine, header["kv_type"])
        _fill_state(engine, sequence, computed, header["page_bytes"], data)
        engine.adopt(sequence, computed, reason)
    return Snapshot(sequence, notes, computed)


def _check_fit(engine: Engine, path: Path, header: dict[str, Any], data: memoryview) -> None:
    if header["model"] != engine.model.fingerprint():
        raise FormatError(
            f"{path} is a snapshot of another model, or of other adapters, than what is loaded"
        )
    if not engine.knows_adapter(str(header["adapter"])):
        raise RequestError(
            f"{path} was saved with adapters that this engine has not been given yet: call "
            "Engine.adapter_key() with the same adapters and scales, then restore it"
        )
    cache = engine.cache
    types = [p.type for p in cache.pools]
    known = header["kv_type"] in types if types else header["kv_type"] is None
    if not known:
        raise FormatError(
            f"{path} holds keys and values of type {header['kv_type']}, the engine has "
            f"{', '.join(types) or 'none'}: load the model with --kv-type {header['kv_type']}"
        )
    page_bytes = cache.pools[_pool(engine, header["kv_type"])].page_bytes if types else 0
    runs, rest = divmod(header["num_computed"], _core.PAGE_POSITIONS)
    slot_bytes = 0
    if cache.slots is not None and header["num_computed"] > 0:
        slot_bytes, runs, rest = cache.slots.memory.slot_bytes, runs + (rest > 0), 0
    fits = (header["page_bytes"], header["slot_bytes"]) == (page_bytes, slot_bytes)
    fits = fits and header["pages"] == (runs if types else 0) and rest == 0
    if not fits or header["pages"] * page_bytes + slot_bytes != len(data):
        raise FormatError(f"{path} has state of another size or number than its header says")


def _pool(engine: Engine, kv_type: str | None) -> int:
    if kv_type is None:
        return 0
    return [p.type for p in engine.cache.pools].index(kv_type)


def _params(values: dict[str, Any]) -> SamplingParams:
    """Return parameters as JSON keeps them: lists for tuples, text for the keys of a map."""
    unknown = set(values) - {f.name for f in fields(SamplingParams)}
    if unknown:
        raise RequestError(f"unknown sampling parameter {min(unknown)}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    values["logit_bias"] = {int(k): v for k, v in values["logit_bias"].items()}
    return SamplingParams(**values)


def _replay(sequence: Sequence, generated: list[int], eos_ids: frozenset[int]) -> None:
    """Lead everything that follows the text through the generated tokens again."""
    for i, token in enumerate(generated):
        sequence.append(token)
        if i < len(generated) - 1 or not sequence.ends_with(token, eos_ids):
            sequence.follow(token)
        else:
            sequence.finish("stop", token)


def _fill_state(
    engine: Engine, sequence: Sequence, computed: int, size: int, data: memoryview
) -> None:
    if computed == 0:
        return
    cache, table = engine.cache, sequence.table
    try:
        reserve(cache, table, 0, computed)
    except CapacityError:
        cache.release(table)
        raise
    for i, page in enumerate(table.pages):
        cache.pools[table.pool].write(page, bytes(data[i * size : (i + 1) * size]))
    if cache.slots is not None and table.slot is not None:
        cache.slots.memory.write(table.slot.index, bytes(data[len(table.pages) * size :]))
        table.slot.position = computed
