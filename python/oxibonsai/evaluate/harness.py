"""Tasks of lm-evaluation-harness on an engine: found, run, shown as a table."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oxibonsai.engine import Engine
from oxibonsai.errors import OxiBonsaiError, RequestError, needs_extra
from oxibonsai.evaluate.lm_eval_model import OxiBonsaiLM

with needs_extra("eval"):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import make_table


def find_tasks(wanted: Sequence[str], include_path: Path | None) -> tuple[Any, list[str]]:
    """Return the harness's task manager, and the names of the tasks that are wanted.

    Args:
        wanted: Names of tasks, groups and tags; ``*`` stands for any characters.
        include_path: A folder with further tasks.

    Raises:
        RequestError: There is no such task.
    """
    manager = TaskManager(include_path=None if include_path is None else str(include_path))
    names: list[str] = []
    for pattern in wanted:
        found = manager.match_tasks([pattern.strip()])
        if not found:
            raise RequestError(
                f"there is no task {pattern.strip()!r}: `lm_eval ls tasks` lists the harness's own, "
                "--include-path names a folder with others"
            )
        names += [name for name in found if name not in names]
    return manager, names


def run_tasks(
    engine: Engine,
    names: list[str],
    manager: Any,
    *,
    batch_size: int,
    limit: int | None = None,
    num_fewshot: int | None = None,
    apply_chat_template: bool = False,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    answers: Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Run tasks and return the harness's results, without the samples.

    Args:
        engine: Loaded for ``batch_size`` sequences.
        names: From :func:`find_tasks`.
        manager: Likewise.
        batch_size: Texts that run at once.
        limit: Documents of a task at most.
        num_fewshot: Examples before a question; None: the task's own number.
        apply_chat_template: Write prompts as turns of a conversation.
        seed: Of examples and samples.
        settings: What else the answers depend on: how the model was loaded.
        answers: Beginning of the path of a database with what is known so far; None: none is kept.
        resume: Use what is in it; otherwise it is begun anew.

    Raises:
        RequestError: ``resume`` without a database of the same model and seed.
    """
    settings = {**_settings(engine), "seed": seed, **(settings or {})}
    model = OxiBonsaiLM(engine, batch_size=batch_size, seed=seed)
    cache = None
    if answers is not None:
        cache = f"{answers}-{_fingerprint(engine, settings)}"
        database = Path(f"{cache}_rank0.db")  # as the harness calls it
        if resume and not database.exists():
            raise RequestError(
                f"there are no answers of this model with these settings in "
                f"{answers.parent}: leave out --resume"
            )
        if not resume:
            database.unlink(missing_ok=True)
    try:
        results = simple_evaluate(
            model,
            tasks=names,
            task_manager=manager,
            limit=limit,
            num_fewshot=num_fewshot,
            apply_chat_template=apply_chat_template,
            use_cache=cache,
            random_seed=seed,
            numpy_random_seed=seed,
            torch_random_seed=seed,
            fewshot_random_seed=seed,
            log_samples=False,
        )
    except sqlite3.Error as e:
        raise OxiBonsaiError(f"can't keep the answers in {cache}: {e}") from e
    assert results is not None  # of the first rank, which is the only one
    results["config"]["model"] = "oxibonsai"
    results["config"]["model_args"] = settings
    return dict(results)


def table(results: dict[str, Any]) -> str:
    """Return the harness's table of scores and standard errors, that of groups below it."""
    tables = [make_table(results)]
    if results.get("groups"):
        tables.append(make_table(results, "groups"))
    return "\n".join(tables)


def _settings(engine: Engine) -> dict[str, Any]:
    return {
        "pretrained": str(engine.model.weights.checkpoint.path),
        "ctx": engine.ctx_size,
        "kv_type": engine.kv_type,
        "lora": [[a.name, a.scale] for a in engine.model.adapters],
    }


def _fingerprint(engine: Engine, settings: dict[str, Any]) -> str:
    """Return what the answers depend on beside the requests, as a short name."""
    files = engine.model.weights.checkpoint.identity()
    facts = {**settings, "model": engine.model.fingerprint(), "files": files}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
