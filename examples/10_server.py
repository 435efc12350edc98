"""Start a server and talk to it over HTTP, as any OpenAI client does.

`pip install openai` and `openai.OpenAI(base_url="http://127.0.0.1:PORT/v1", api_key="any")` work the
same way; this example needs nothing but the standard library.
"""

import json
import socket
import subprocess
import sys
import time
import urllib.request

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
url = f"http://127.0.0.1:{port}"


def ready() -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


command = [sys.executable, "-m", "oxibonsai", "serve", "--port", str(port)]
server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
try:
    while not ready():
        if server.poll() is not None:
            sys.exit("the server ended")
        time.sleep(0.1)
    body = {
        "messages": [{"role": "user", "content": "What is a bird?"}],
        "max_tokens": 20,
        "temperature": 0.5,
        "seed": 1,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        completion = json.load(answer)
    print(completion["choices"][0]["message"]["content"])
    print(completion["usage"])
finally:
    server.terminate()
    server.wait()
