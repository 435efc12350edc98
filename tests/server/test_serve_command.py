"""``oxibonsai serve`` and ``python -m oxibonsai.serve`` with a real model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_backend import free_port
from running_server import PATIENCE, RunningServer


def command(*arguments: str, module: str = "oxibonsai.serve") -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("module", ["oxibonsai.serve", "oxibonsai.cli.main"])
def test_a_model_is_served_until_sigterm(tiny_path: Path, tmp_path: Path, module: str) -> None:
    port = free_port()
    line = ["-m", str(tiny_path), "--port", str(port), "--alias", "tiny", "-c", "64", "-np", "2"]
    if module == "oxibonsai.cli.main":
        entry = ["-c", "from oxibonsai.cli.main import main; main()", "serve", *line]
    else:
        entry = ["-m", module, *line]
    log = tmp_path / "log"
    environment = {**os.environ, "OXIBONSAI_STATE_DIR": str(tmp_path / "state")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *entry], stdout=output, stderr=output, env=environment
        )
    server = RunningServer(process, port, log)
    try:
        server.wait_for("/readyz", 200)
        assert [m["id"] for m in server.ask("/v1/models")[2]["data"]] == ["tiny"]
        assert (tmp_path / "state" / "store.sqlite").exists()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE)
    assert code == 0


def test_a_public_address_without_a_key_is_wrong_usage() -> None:
    done = run("--host", "0.0.0.0")
    assert done.returncode == 2
    assert "no API key is set" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_option_is_wrong_usage() -> None:
    assert run("--no-such-option").returncode == 2


@pytest.mark.parametrize("option", [["-m"], []], ids=["option", "argument"])
def test_a_model_that_is_not_there_ends_the_server(tmp_path: Path, option: list[str]) -> None:
    flags = ["--port", str(free_port()), "--state-dir", str(tmp_path / "state")]
    done = run(*option, str(tmp_path / "none.gguf"), *flags, "-fa")
    assert done.returncode == 3
    assert "none.gguf" in done.stderr


def test_a_folder_of_models_that_is_not_there_ends_the_server(tmp_path: Path) -> None:
    flags = ["--port", str(free_port()), "--state-dir", str(tmp_path / "state")]
    done = run("--models-dir", str(tmp_path / "none"), *flags)
    assert done.returncode == 2
    assert "--models-dir: cannot read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("several", [False, True], ids=["one model", "several models"])
def test_a_folder_of_adapters_that_is_not_there_ends_the_server(
    tiny_path: Path, tmp_path: Path, several: bool
) -> None:
    flags = ["--port", str(free_port()), "--state-dir", str(tmp_path / "state")]
    missing = str(tmp_path / "none")
    done = run("--models" if several else "-m", str(tiny_path), "--lora-dir", missing, *flags)
    assert done.returncode == 2
    (said,) = (line for line in done.stderr.splitlines() if "--lora-dir" in line)
    assert f"--lora-dir: cannot read {missing}: No such file or directory" in said
    assert "name a folder with adapters" in said
    assert "Traceback" not in done.stderr


def test_an_adapter_that_is_not_there_ends_the_server(tiny_path: Path, tmp_path: Path) -> None:
    flags = ["--port", str(free_port()), "--state-dir", str(tmp_path / "state")]
    done = run("-m", str(tiny_path), "--lora-modules", f"style={tmp_path}/none.gguf", *flags)
    assert done.returncode == 3
    assert "none.gguf does not exist" in done.stderr


def test_two_models_are_wrong_usage() -> None:
    done = run("a.gguf", "-hf", "org/repo")
    assert done.returncode == 2
    assert "two models are named: a.gguf and hf:org/repo" in done.stderr


def test_the_help_names_every_setting() -> None:
    from oxibonsai.server.setting_sources import flag
    from oxibonsai.server.settings import Settings

    done = subprocess.run(
        command("--help"), capture_output=True, text=True, timeout=PATIENCE,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0
    for name in Settings.model_fields:
        assert flag(name) in done.stdout


def test_the_way_to_serving_is_light() -> None:
    code = (
        "import sys, oxibonsai.server.launcher, oxibonsai.server.setting_options;"
        "print(*{'torch', 'transformers', 'numpy', 'oxibonsai._core'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
