"""``oxibonsai serve`` whose engine fails at the next step when the file that BREAK names is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.launcher import serve
from oxibonsai.server.setting_options import given, setting_options
from oxibonsai.server.setting_sources import load_settings


class Backend(EngineBackend):
    """Breaks once for each time that the file appears."""

    def load(self) -> None:
        super().load()
        assert self.pool is not None
        engine = self.pool.engines[0]
        step, order = engine.step, Path(os.environ["BREAK"])

        def breaking() -> Any:
            if order.exists():
                order.unlink()
                raise RuntimeError("as the test wishes")
            return step()

        engine.step = breaking  # type: ignore[method-assign]


@click.command()
@setting_options
def main(**options: Any) -> None:
    sys.exit(serve(load_settings(given(options)), Backend))


if __name__ == "__main__":
    main()
