"""Download a model from a server that breaks off in the middle: what has come is not asked for again."""

import hashlib
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from oxibonsai.sources import resolve

content = resolve("seedling-1bit").read_bytes()
ranges: list[str | None] = []


class Breaking(BaseHTTPRequestHandler):
    """Sends half of the file to the first request, and the range that is asked for to later ones."""

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        ranges.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(content) - first))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        last = len(content) if asked else len(content) // 2
        self.wfile.write(content[first:last])
        self.close_connection = True

    def log_message(self, format: str, *values: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/model.gguf"
with tempfile.TemporaryDirectory() as folder:
    place = Path(folder) / "model.gguf"
    hash_of_all = hashlib.sha256(content).hexdigest()
    command = [sys.executable, "-m", "oxibonsai", "pull", url, "--output", str(place)]
    subprocess.run([*command, "--sha256", hash_of_all], check=True, capture_output=True)
    assert place.read_bytes() == content
server.shutdown()
print("asked for:", ["all" if r is None else r for r in ranges])
assert len(ranges) == 2
