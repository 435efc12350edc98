"""The arguments of ``oxibonsai.ray_app:build``, which needs no Ray to read them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oxibonsai.errors import RequestError
from oxibonsai.ray_app.options import read_arguments

STORE = "postgresql+psycopg://u@h/name"


def test_arguments_are_settings_and_options_of_scaling(tmp_path: Path) -> None:
    given = {"model": "m.gguf", "ctx-size": "512", "max_replicas": "3", "store": STORE}
    options, settings = read_arguments({**given, "state_dir": str(tmp_path)})
    assert (options.min_replicas, options.max_replicas) == (1, 3)
    assert (settings.model, settings.ctx_size) == ("m.gguf", 512)
    assert settings.shared_store


def test_one_replica_may_have_a_file_as_its_store(tmp_path: Path) -> None:
    _, settings = read_arguments({"state_dir": str(tmp_path)})
    assert not settings.shared_store


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"max_replicas": 2}, "more than one replica needs a store that all of them share"),
        ({"max_replicas": 2, "store": "sqlite:////a"}, "sqlite:////a belongs to one"),
        ({"min_replicas": 2}, "give max_replicas as well"),
        ({"max_replicas": 0}, "max_replicas"),
        ({"port": 8000}, "port is up to Ray's proxy: set http_options.port"),
        ({"keep-alive": 5}, "set http_options.keep_alive_timeout_s"),
        ({"modle": "m"}, "modle is neither a setting of the server nor an option of scaling"),
        ({"ctx_size": "many"}, "ctx-size"),
    ],
)
def test_what_can_not_be_is_one_clear_error(args: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_arguments(args)


@pytest.mark.slow
def test_nothing_imports_ray_but_what_serves_on_it() -> None:
    program = (
        "import sys, oxibonsai, oxibonsai.cli.serve, oxibonsai.server.app, oxibonsai.server.routes\n"
        "import oxibonsai.ray_app, oxibonsai.ray_app.options, oxibonsai.ray_app.prefix_affinity\n"
        "sys.exit(sorted({'ray', 'a2wsgi', 'starlette'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
