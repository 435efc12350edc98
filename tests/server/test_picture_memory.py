"""Memory of decoded pictures: it comes back, whichever thread of the server has decoded them."""

from __future__ import annotations

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image
from real_server import real_server
from vision_model import write_vision_model

SIDE = 5792  # the largest square that is decoded: 100 MB as RGB
AT_ONCE, REQUESTS = 8, 16


def large_picture() -> str:
    file = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE)).save(file, "PNG")
    assert file.tell() < 100_000
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


@pytest.mark.filterwarnings("ignore:the vision tower in")
def test_pictures_of_many_threads_leave_less_memory_than_one_of_them_takes(tmp_path: Path) -> None:
    content = [{"type": "image_url", "image_url": {"url": large_picture()}}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    data = json.dumps(body).encode()
    flags = ("--threads", "1", "--parity", "off", "--http-threads", str(4 * AT_ONCE))
    with real_server(write_vision_model(tmp_path), tmp_path, *flags) as server:
        status = Path(f"/proc/{server.worker_pid()}/status")

        def resident() -> int:
            (line,) = (row for row in status.read_text().splitlines() if row.startswith("VmRSS"))
            return int(line.split()[1]) * 1024

        def ask(_: int) -> int:
            kind = {"Content-Type": "application/json"}
            return server.ask("/v1/chat/completions", "POST", data, **kind)[0]

        assert ask(0) == 200
        before = resident()
        with ThreadPoolExecutor(AT_ONCE) as clients:
            assert set(clients.map(ask, range(REQUESTS))) == {200}
        assert resident() - before < 3 * SIDE * SIDE
