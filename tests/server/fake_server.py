"""``oxibonsai serve`` with a fake model."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click
from fake_backend import FakeBackend, make_fake_app

import oxibonsai.errors
from oxibonsai.server.launcher import serve
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.setting_options import given, setting_options
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.settings import Settings


class Backend(FakeBackend):
    """Fails as the environment says."""

    def __init__(self, settings: Settings, lifecycle: Lifecycle) -> None:
        until = os.environ["FAKE_LOAD_UNTIL"]
        super().__init__(Path(until) if until else None)

    def load(self) -> None:
        super().load()
        failure = os.environ["FAKE_FAILURE"]
        if failure == "kill":
            os.kill(os.getpid(), 9)
        elif failure:
            raise getattr(oxibonsai.errors, failure)("the model can't be used")

    def close(self) -> None:
        folder = Path(os.environ["OXIBONSAI_STATE_DIR"])
        (folder / "closing").touch()
        while (folder / "keep-closing").exists():
            time.sleep(0.02)


@click.command()
@setting_options
def main(**options: Any) -> None:
    sys.exit(serve(load_settings(given(options)), Backend, make_fake_app))


if __name__ == "__main__":
    main()
