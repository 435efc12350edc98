"""``oxibonsai pull`` and ``info`` of what is on the web, against loopback servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tiny_model
from oxibonsai import _core

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sources"))
import hub_server
import lying_server
from lying_server import Web, serve, sha256, status

from forked import run_oxibonsai

DATA = bytes(range(256)) * 1000
LARGE = 8 << 20  # bytes of weights that nobody should fetch


@pytest.fixture
def web() -> Iterator[Web]:
    with lying_server.running() as web:
        web.script = [serve(DATA)]
        yield web


@pytest.fixture
def hub() -> Iterator[hub_server.Hub]:
    with hub_server.running() as hub:
        yield hub


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A header of some 400 KB, then weights."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    writer = _core.GgufWriter(path.open("wb"))
    writer.add_metadata("general.architecture", "martian", "str")
    writer.add_metadata("martian.words", [f"word number {i}" for i in range(16_000)], "arr[str]")
    writer.add_tensor("a.weight", (1024, LARGE // 4096), 0, LARGE)
    writer.write_header()
    writer.write_tensor(np.ones(LARGE, np.uint8))
    writer.close()
    return path.read_bytes()


def test_a_file_is_pulled_to_where_it_should_be(web: Web, tmp_path: Path) -> None:
    done = run_oxibonsai("pull", web.url, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "file.bin\n", "")
    assert (tmp_path / "file.bin").read_bytes() == DATA
    done = run_oxibonsai(
        "pull", web.url, "-o", tmp_path / "named", "--sha256", sha256(DATA).upper()
    )
    assert done.stdout == f"{tmp_path / 'named'}\n"
    (tmp_path / "folder").mkdir()
    report = json.loads(run_oxibonsai("pull", web.url, "-o", tmp_path / "folder", "--json").stdout)
    place = tmp_path / "folder" / "file.bin"
    assert report == {"path": str(place), "bytes": len(DATA), "sha256": sha256(DATA)}
    assert place.read_bytes() == DATA


def test_what_is_there_with_the_right_hash_is_not_fetched(web: Web, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(DATA)
    assert run_oxibonsai("pull", web.url, "-o", place, "--sha256", sha256(DATA)).returncode == 0
    assert web.ranges == []


def test_a_model_of_the_hub_is_pulled(hub: hub_server.Hub, tmp_path: Path) -> None:
    hub.repositories["org/one"] = {"sub/only.gguf": DATA}
    shards = [f"m-{i:05d}-of-00002.gguf" for i in (1, 2)]
    hub.repositories["org/split"] = {name: name.encode() for name in shards}
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    cached = run_oxibonsai("pull", "hf:org/one", "--sha256", sha256(DATA), **home)
    assert Path(cached.stdout.strip()).read_bytes() == DATA
    assert Path(cached.stdout.strip()).name == "only.gguf"
    wrong = run_oxibonsai("pull", "hf:org/one", "--sha256", "0" * 64, **home)
    assert (wrong.returncode, wrong.stdout) == (3, "")
    assert run_oxibonsai("pull", "hf:org/one", "-o", tmp_path / "a.gguf", **home).returncode == 0
    assert (tmp_path / "a.gguf").read_bytes() == DATA
    (tmp_path / "both").mkdir()
    done = run_oxibonsai("pull", "hf:org/split", "-o", tmp_path / "both", **home)
    assert done.stdout == f"{tmp_path / 'both' / shards[0]}\n"
    assert sorted(p.name for p in (tmp_path / "both").iterdir()) == shards
    done = run_oxibonsai("pull", "hf:org/split", "-o", tmp_path / "b.gguf", **home)
    assert "has 2 files: --output must be a folder" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["URL", "--sha256", "0" * 64], 3, "has the sha256"),
        (["URL", "--sha256", "abc"], 2, "is no sha256"),
        (["URL/"], 2, "names no file"),
        (["URL", "-o", "absent/file"], 2, "cannot write"),
        (["hf:x"], 3, "no repository"),
        (["pip:x", "-o", "file"], 2, "--output goes with"),
        (["file.gguf"], 2, "can't be fetched"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    web: Web, arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    done = run_oxibonsai("pull", *(a.replace("URL", web.url) for a in arguments), cwd=tmp_path)
    assert message in done.stderr
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_url_where_a_model_should_be_must_name_a_gguf_file(web: Web) -> None:
    done = run_oxibonsai("run", "-m", web.url, "ab")
    assert done.returncode == 3
    assert "names no GGUF file" in done.stderr


def test_a_gguf_file_on_the_web_is_a_model_and_fetched_once(
    web: Web, tiny_path: Path, tmp_path: Path
) -> None:
    web.script = [serve(tiny_path.read_bytes())]
    url = web.url.replace("file.bin", "tiny.gguf")
    arguments = ["run", "-m", url, "--raw", "--json", "-n", "3", "--temp", "0", "ab"]
    first = run_oxibonsai(*arguments, OXIBONSAI_CACHE=str(tmp_path))
    assert first.returncode == 0, first.stderr
    assert "\r" not in first.stderr
    sent = web.sent
    again = run_oxibonsai(*arguments, OXIBONSAI_CACHE=str(tmp_path))
    assert json.loads(again.stdout)["tokens"] == json.loads(first.stdout)["tokens"]
    assert web.sent == sent


def facts(place: object, **environment: str) -> dict[str, object]:
    done = run_oxibonsai("info", "-m", place, "--json", **environment)
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("ranges", [True, False])
def test_info_reads_the_header_alone(
    web: Web, large_model: bytes, ranges: bool, tmp_path: Path
) -> None:
    local = tmp_path / "file.bin"
    local.write_bytes(large_model)
    web.script = [serve(large_model, ranges=ranges)]
    assert facts(web.url) == {
        k: v.replace(str(local), web.url) if isinstance(v, str) else v
        for k, v in facts(local).items()
    }
    if ranges:
        header = len(large_model) - LARGE
        assert header > 300_000
        assert header <= web.sent <= 2 * header


def test_info_of_the_hub_fetches_no_model(
    hub: hub_server.Hub, tiny_path: Path, tmp_path: Path
) -> None:
    hub.repositories["org/one"] = {"tiny.gguf": tiny_path.read_bytes()}
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    report = facts("hf:org/one", **home)
    assert report["file"] == f"{hub.url}/org/one/resolve/main/tiny.gguf"
    assert {k: v for k, v in report.items() if k != "file"} == {
        k: v for k, v in facts(tiny_path).items() if k != "file"
    }
    assert not list(tmp_path.rglob("*.gguf"))


def test_info_of_the_hub_takes_the_cache_where_the_hub_is_off(
    hub: hub_server.Hub, tiny_path: Path, tmp_path: Path
) -> None:
    hub.repositories["org/one"] = {"tiny.gguf": tiny_path.read_bytes()}
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
    path = run_oxibonsai("pull", "hf:org/one", **home).stdout.strip()
    assert facts("hf:org/one", HF_HUB_OFFLINE="1", **home)["file"] == path


def test_info_of_a_remote_file_that_is_none_is_one_line(web: Web) -> None:
    done = run_oxibonsai("info", "-m", web.url)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert done.stderr.startswith(f"oxibonsai: {web.url}")
    assert web.sent <= 1 << 17
    web.script = [status(404)]
    done = run_oxibonsai("info", "-m", web.url)
    assert "refused with status 404" in done.stderr


def test_every_truncation_of_a_remote_header_is_an_error(web: Web, tmp_path: Path) -> None:
    from oxibonsai.cli.info import remote_checkpoint
    from oxibonsai.errors import FormatError

    path = tmp_path / "tiny.gguf"
    tiny_model.write(path)
    whole = path.read_bytes()
    start = min(t.offset for t in _core.GgufFile(str(path)).tensors)
    for length in range(1, start, 97):
        web.script = [serve(whole[:length])]
        with pytest.raises(FormatError), remote_checkpoint(web.url, "tiny.gguf", ""):
            pass


def test_a_layout_that_only_the_weights_tell_takes_a_few_of_them(web: Web, tmp_path: Path) -> None:
    """Type 42 in groups of 128: the scale comes first or last."""
    random = np.random.default_rng(4)
    blocks = np.empty((100_000, 34), np.uint8)
    blocks[:, :2] = np.array([0.05], np.float16).view(np.uint8)
    # Four codes of 0, 1 or 2 in each byte: a ternary model has no 3.
    codes = random.integers(0, 3, (len(blocks), 32, 4), dtype=np.uint8)
    blocks[:, 2:] = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(-1)
    path = tmp_path / "file.bin"
    writer = _core.GgufWriter(path.open("wb"))
    writer.add_metadata("general.architecture", "martian", "str")
    writer.add_tensor("a.weight", (1000, 12_800), 42, blocks.nbytes)
    writer.write_header()
    writer.write_tensor(blocks.reshape(-1))
    writer.close()
    web.script = [serve(path.read_bytes())]
    assert facts(web.url)["type_42_layout"] == facts(path)["type_42_layout"] == "Q2_0_g128"
    assert web.sent < blocks.nbytes // 10
