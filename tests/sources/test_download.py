"""Downloads from servers that lie: the right file or a clear error, nothing else under the name."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import lying_server
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lying_server import Request, Web, chunked, hang, serve, sha256, status, wait_until

from forked import PROCESSES
from oxibonsai.errors import CapacityError, RequestError, SourceError
from oxibonsai.sources.download import Patience, download
from oxibonsai.sources.partial_file import PartialFile

DATA = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
HALF = len(DATA) // 2
MIB = 1 << 20
BIG = random.Random(3).randbytes(24 * MIB)
QUICK = Patience(tries=4, delay=0.01, timeout=0.5)
Script = list[Callable[[Request], None]]

DOWNLOAD = (
    "import sys; from pathlib import Path; from oxibonsai.sources.download import download\n"
    "download(sys.argv[1], Path(sys.argv[2]), sha256=sys.argv[3])"
)


@pytest.fixture
def web() -> Iterator[Web]:
    with lying_server.running() as web:
        yield web


CUT = serve(DATA, cut=HALF)
GONE: Callable[[Request], None] = lambda request: None  # noqa: E731
LATER = {"Retry-After": "0"}


@pytest.mark.parametrize(
    ("script", "hashed", "right"),
    [
        pytest.param([serve(DATA)], False, DATA, id="honest"),
        pytest.param([CUT, serve(DATA, ranges=False)], False, DATA, id="200 for Range"),
        pytest.param([CUT, serve(DATA)], False, DATA, id="short body"),
        pytest.param([CUT, serve(DATA, cut=9), serve(DATA)], False, DATA, id="short bodies"),
        pytest.param([serve(DATA, cut=0), serve(DATA)], False, DATA, id="headers alone"),
        pytest.param([GONE, GONE, serve(DATA)], False, DATA, id="no answer at all"),
        pytest.param(
            [CUT, serve(DATA, headers={"ETag": '"wrong"'}), serve(DATA)], False, DATA,
            id="wrong etag of the rest",
        ),
        pytest.param(
            [CUT, serve(DATA, headers={"ETag": None}), serve(DATA)], False, DATA,
            id="no etag of the rest",
        ),
        pytest.param([CUT, serve(OTHER, etag='"second"')], False, OTHER, id="changed file"),
        pytest.param(
            [serve(DATA, etag='W/"a"', cut=HALF), serve(OTHER, etag='W/"b"')], False, OTHER,
            id="changed file, weak etags",
        ),
        pytest.param(
            [serve(DATA, etag=None, headers={"Last-Modified": "Mon"}, cut=HALF),
             serve(OTHER, etag=None, headers={"Last-Modified": "Tue"})], False, OTHER,
            id="changed file, dates",
        ),
        pytest.param(
            [serve(DATA, etag=None, cut=HALF), serve(OTHER, etag=None)], False, OTHER,
            id="changed file, nothing to tell by",
        ),
        pytest.param([CUT, serve(DATA[:-9]), serve(DATA)], False, DATA, id="another size"),
        pytest.param([CUT, serve(OTHER), serve(DATA)], True, DATA, id="changed file, same etag"),
        pytest.param([CUT, status(416), serve(DATA)], False, DATA, id="416 for the rest"),
        pytest.param([status(503)] * 3 + [serve(DATA)], False, DATA, id="5xx three times"),
        pytest.param([status(429, LATER), serve(DATA)], False, DATA, id="too many requests"),
        pytest.param([CUT, status(500), status(502), serve(DATA)], False, DATA, id="5xx mid-way"),
        pytest.param([status(302, {"Location": "/x"}), serve(DATA)], False, DATA, id="redirect"),
        pytest.param([hang(DATA, HALF), serve(DATA)], False, DATA, id="stall mid-way"),
        pytest.param([hang(DATA, 0), serve(DATA)], False, DATA, id="stall before the body"),
        pytest.param(
            [serve(DATA + b"more", headers={"Content-Length": len(DATA)})], False, DATA,
            id="more bytes than said",
        ),
        pytest.param(
            [CUT, serve(DATA, headers={"Content-Range": f"bytes 7-{len(DATA) - 1}/{len(DATA)}"}),
             serve(DATA)], False, DATA, id="wrong Content-Range",
        ),
        pytest.param(
            [CUT, serve(DATA, headers={"Content-Range": f"bytes {HALF}-{len(DATA)}/{len(DATA)}"}),
             serve(DATA)], False, DATA, id="Content-Range past the end",
        ),
        pytest.param(
            [CUT, serve(DATA, headers={"Content-Range": "bytes 5-2/9"}), serve(DATA)], False, DATA,
            id="Content-Range backwards",
        ),
        pytest.param(
            [CUT, serve(DATA, headers={"Content-Range": None}), serve(DATA)], False, DATA,
            id="no Content-Range",
        ),
        pytest.param([CUT, serve(DATA, most=70_000)], False, DATA, id="the rest in parts"),
        pytest.param([chunked(DATA)], True, DATA, id="no size but a hash"),
        pytest.param([chunked(DATA, complete=False), serve(DATA)], True, DATA, id="cut chunks"),
    ],
)  # fmt: skip
def test_the_right_file_comes(
    web: Web, script: Script, hashed: bool, right: bytes, tmp_path: Path
) -> None:
    web.script = list(script)
    place = tmp_path / "file"
    found = download(web.url, place, sha256=sha256(right) if hashed else None, patience=QUICK)
    assert place.read_bytes() == right
    assert found == sha256(right)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("script", "hashed", "message"),
    [
        pytest.param([serve(OTHER)], True, "has the sha256", id="another file"),
        pytest.param([CUT, serve(OTHER)], True, "has the sha256", id="mixed files for ever"),
        pytest.param([status(404)], False, "refused with status 404", id="404"),
        pytest.param([status(416)], False, "refused with status 416", id="416 at once"),
        pytest.param([status(500)], False, "status 500; tried 4 times", id="5xx for ever"),
        pytest.param(
            [status(302, {"Location": "/folder/file.bin"})], False, "redirected more than 10 times",
            id="redirect loop",
        ),
        pytest.param(
            [status(302, {"Location": "ftp://127.0.0.1/x"})], False, "no web address",
            id="redirect elsewhere",
        ),
        pytest.param([hang(DATA, 0)], False, "does not answer in time", id="stall for ever"),
        pytest.param([GONE], False, "cannot fetch", id="no answer for ever"),
        pytest.param(
            [serve(DATA, cut=HALF, ranges=False)], False, "cannot fetch",
            id="short for ever",
        ),
        pytest.param(
            [serve(DATA, headers={"Content-Length": len(DATA) + 5}, ranges=False)], False,
            "cannot fetch", id="fewer bytes than said",
        ),
        pytest.param(
            [serve(gzip.compress(DATA), headers={"Content-Encoding": "gzip"})], False,
            "comes packed", id="gzip",
        ),
        pytest.param([chunked(DATA)], False, "does not say how large", id="no size, no hash"),
        pytest.param(
            [serve(DATA, headers={"Content-Length": None})], False, "does not say how large",
            id="until the connection ends",
        ),
        pytest.param(
            [serve(b"<!DOCTYPE html><p>Log in", headers={"Content-Type": "text/html"})], False,
            "a web page", id="a page to log in",
        ),
        pytest.param([serve(b"")], False, "a file of 0 bytes", id="an empty file"),
        pytest.param(
            [serve(DATA, headers={"Content-Length": 1 << 59})], False, "bytes, the server says",
            id="an endless file",
        ),
        pytest.param(
            [serve(DATA, headers={"Content-Length": 1 << 49})], False, "has room for",
            id="a file larger than the disk",
        ),
        pytest.param(
            [serve(DATA, headers={"Content-Length": "many"})], False, "cannot fetch",
            id="a size that is no number",
        ),
        pytest.param(
            [lambda r: r.send(206, {"Content-Length": 9, "Content-Range": "bytes 0-8/9"}, b"x" * 9)],
            False, "sends a part though all was asked for", id="206 for all",
        ),
    ],
)  # fmt: skip
def test_a_lie_is_an_error_and_leaves_no_file(
    web: Web, script: Script, hashed: bool, message: str, tmp_path: Path
) -> None:
    web.script = list(script)
    with pytest.raises((SourceError, CapacityError), match=message) as caught:
        download(
            web.url, tmp_path / "file", sha256=sha256(DATA) if hashed else None, patience=QUICK
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "file").exists()


LIES = {
    "cut": serve(DATA, cut=70_001),
    "cut late": serve(DATA, cut=250_000),
    "no ranges": serve(DATA, ranges=False, cut=100_000),
    "parts": serve(DATA, most=40_000),
    "other": serve(OTHER, etag='"other"'),
    "other, cut": serve(OTHER, etag='"other"', cut=200_000),
    "wrong etag": serve(DATA, headers={"ETag": '"wrong"'}),
    "wrong range": serve(DATA, headers={"Content-Range": "bytes 1-2/3"}),
    "no range": serve(DATA, headers={"Content-Range": None}),
    "too long": serve(DATA, headers={"Content-Length": len(DATA) + 1}),
    "too short": serve(DATA, headers={"Content-Length": 99_999}, most=100_000, etag='"short"'),
    "busy": status(503),
    "416": status(416),
    "gone": GONE,
}


@given(lies=st.lists(st.sampled_from(sorted(LIES)), max_size=8), calls=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_any_run_of_lies_gives_one_version_of_the_file_or_an_error(
    lies: list[str], calls: int
) -> None:
    """Not a mixture, whatever comes in whatever order; the parts go over from call to call."""
    with lying_server.running() as web, tempfile.TemporaryDirectory() as folder:
        web.script = [*(LIES[lie] for lie in lies), serve(DATA)]
        place = Path(folder) / "file"
        for _ in range(calls):
            with suppress(SourceError):
                download(web.url, place, patience=Patience(tries=2, delay=0.0, timeout=0.5))
            assert not place.exists() or place.read_bytes() in (DATA, OTHER, DATA[:99_999])


def test_what_was_there_stays_until_the_new_file_is_complete(web: Web, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"old")
    web.script = [serve(OTHER)]
    with pytest.raises(SourceError):
        download(web.url, place, sha256=sha256(DATA), patience=QUICK)
    assert place.read_bytes() == b"old"
    web.script = [serve(DATA)]
    download(web.url, place, patience=QUICK)
    assert place.read_bytes() == DATA


def interrupted(web: Web, place: Path, script: Script) -> None:
    web.script = script
    with pytest.raises(SourceError):
        download(web.url, place, patience=Patience(tries=1, delay=0.0, timeout=0.5))
    web.ranges.clear()
    web.script = [serve(DATA)]


def test_a_later_call_goes_on_where_the_first_stopped(web: Web, tmp_path: Path) -> None:
    place = tmp_path / "file"
    interrupted(web, place, [CUT, status(500)])
    assert not place.exists()
    assert download(web.url, place, patience=QUICK) == sha256(DATA)
    assert web.ranges == [f"bytes={HALF}-"]


def test_a_download_that_lacks_only_its_name_asks_no_more(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: PartialFile) -> None:
        raise KeyboardInterrupt

    place = tmp_path / "file"
    web.script = [serve(DATA)]
    with monkeypatch.context() as patch:
        patch.setattr(PartialFile, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            download(web.url, place, patience=QUICK)
    web.ranges.clear()
    assert download(web.url, place, patience=QUICK) == sha256(DATA)
    assert web.ranges == []
    assert place.read_bytes() == DATA


def test_a_folder_of_that_name_is_refused(web: Web, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is a folder"):
        download(web.url, tmp_path, patience=QUICK)


@pytest.mark.parametrize(
    "damage",
    [
        lambda part, sidecar: sidecar.unlink(),
        lambda part, sidecar: sidecar.write_text("{"),
        lambda part, sidecar: sidecar.write_text("[]"),
        lambda part, sidecar: sidecar.write_text("[" * 50_000),
        lambda part, sidecar: sidecar.write_bytes(b"\xff" * 99),
        lambda part, sidecar: sidecar.write_text(sidecar.read_text().replace("file.bin", "f")),
        lambda part, sidecar: sidecar.write_text(sidecar.read_text().replace(str(HALF), '"9"')),
        lambda part, sidecar: sidecar.write_text(sidecar.read_text().replace(str(HALF), "-1")),
        lambda part, sidecar: sidecar.write_text(sidecar.read_text().replace(str(HALF), "9" * 30)),
        lambda part, sidecar: sidecar.write_text(sidecar.read_text().replace(str(HALF), "true")),
        lambda part, sidecar: part.unlink(),
        lambda part, sidecar: os.truncate(part, HALF - 1),
        lambda part, sidecar: part.write_bytes(OTHER[:HALF]),
    ],
)
def test_remains_that_are_not_what_they_say_are_dropped(
    web: Web, damage: Callable[[Path, Path], object], tmp_path: Path
) -> None:
    place = tmp_path / "file"
    interrupted(web, place, [CUT, status(500)])
    damage(tmp_path / "file.oxipart", tmp_path / "file.oxiresume")
    assert download(web.url, place, patience=QUICK) == sha256(DATA)
    assert web.ranges == [""]
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_bytes_after_the_verified_ones_are_fetched_again(web: Web, tmp_path: Path) -> None:
    place = tmp_path / "file"
    interrupted(web, place, [CUT, status(500)])
    with (tmp_path / "file.oxipart").open("ab") as part:
        part.write(b"what a crash left behind")
    assert download(web.url, place, patience=QUICK) == sha256(DATA)
    assert web.ranges == [f"bytes={HALF}-"]


def test_two_at_once_are_one_download(web: Web, tmp_path: Path) -> None:
    place = tmp_path / "file"
    web.script = [hang(DATA, HALF), serve(DATA)]
    patience = Patience(tries=4, delay=0.01, timeout=3.0)
    first = threading.Thread(target=download, args=(web.url, place), kwargs={"patience": patience})
    first.start()
    wait_until(lambda: web.sent >= HALF)
    with pytest.raises(SourceError, match="another process is fetching"):
        download(web.url, place, patience=QUICK)
    web.stop.set()
    first.join()
    assert place.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_said_and_the_download_goes_on_later(web: Web, tmp_path: Path) -> None:
    web.script = [serve(BIG)]
    limited = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10 << 20, 10 << 20))\n"
        + DOWNLOAD
    )
    place = tmp_path / "file"
    arguments = [web.url, str(place), sha256(BIG)]
    done = subprocess.run(
        [sys.executable, "-c", limited, *arguments], capture_output=True, text=True
    )
    assert "no room is left for" in done.stderr
    assert not place.exists()
    assert download(web.url, place, patience=QUICK) == sha256(BIG)
    assert web.ranges[:2] == ["", f"bytes={10 * MIB}-"]


def test_a_token_is_not_told_to_another_server(web: Web, tmp_path: Path) -> None:
    with lying_server.running() as other:
        web.script = [status(302, {"Location": other.url})]
        other.script = [serve(DATA)]
        headers = {"Authorization": "Bearer secret"}
        download(web.url, tmp_path / "file", headers=headers, patience=QUICK)
        assert (web.secrets, other.secrets) == (["Bearer secret"], [None])


def test_what_a_kill_left_of_the_sidecar_is_cleared_away(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.oxiresume.tmp").write_text("{")
    web.script = [serve(DATA)]
    download(web.url, tmp_path / "file", patience=QUICK)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_not_there_is_said(web: Web, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot write"):
        download(web.url, tmp_path / "absent" / "file", patience=QUICK)


def test_a_hash_that_is_none_is_refused(web: Web, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="64 hexadecimal digits"):
        download(web.url, tmp_path / "file", sha256="abc")


def start_download(web: Web, place: Path) -> BaseProcess:
    process = PROCESSES.Process(
        target=download, args=(web.url, place), kwargs={"sha256": sha256(BIG)}
    )
    process.start()
    return process


def kill_at(web: Web, place: Path, sent: int) -> None:
    """Starts a download and kills it when the server has sent so many bytes of what it asks for."""
    web.sent = 0
    web.script = [hang(BIG, sent)]
    process = start_download(web, place)
    wait_until(lambda: web.sent >= sent)
    process.kill()
    process.join()


@pytest.mark.parametrize(
    "kills", [10, pytest.param(100, marks=pytest.mark.release)], ids=["10 kills", "100 kills"]
)
def test_kills_at_random_bytes_leave_no_broken_file(web: Web, kills: int, tmp_path: Path) -> None:
    """Every few kills the download may finish, so that all stages are met."""
    points = random.Random(kills)
    place = tmp_path / "file"
    for i in range(kills):
        kill_at(web, place, points.randrange(len(BIG) // 2))
        assert not place.exists()
        if i % 5 == 4:
            web.ranges.clear()
            web.script = [serve(BIG)]
            assert download(web.url, place, sha256=sha256(BIG), patience=QUICK) == sha256(BIG)
            assert place.read_bytes() == BIG
            assert [p.name for p in tmp_path.iterdir()] == ["file"]
            place.unlink()


def test_a_kill_loses_a_few_mebibytes_at_most(web: Web, tmp_path: Path) -> None:
    place = tmp_path / "file"
    sent = 20 * MIB
    web.script = [hang(BIG, sent)]
    process = start_download(web, place)
    part = tmp_path / "file.oxipart"
    wait_until(lambda: part.exists() and part.stat().st_size == sent)
    process.kill()
    process.join()
    web.ranges.clear()
    web.script = [serve(BIG)]
    assert download(web.url, place, patience=QUICK) == sha256(BIG)
    first = int(web.ranges[0].removeprefix("bytes=").removesuffix("-"))
    assert sent - 5 * MIB < first <= sent
