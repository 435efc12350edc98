"""``oxibonsai serve`` whose engine fails at the next step when the file that BREAK names is there.

Where the file says ``kill``, the worker is killed; where it says ``twice``, the next one fails, too. The
clock of the circuits is the number in the file that CLOCK names.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from oxibonsai.server import launcher, serving_process
from oxibonsai.server.circuit_breaker import Circuits
from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.lifecycle import Lifecycle
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
                how = order.read_text()
                order.unlink()
                if how == "twice":
                    order.touch()
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("as the test wishes")
            return step()

        engine.step = breaking  # type: ignore[method-assign]


@click.command()
@setting_options
def main(**options: Any) -> None:
    if (clock := os.environ.get("CLOCK")) is not None:
        circuits = Circuits(lambda: float(Path(clock).read_text()))
        serving_process.Lifecycle = partial(Lifecycle, circuits)  # type: ignore[misc,assignment]
    sys.exit(launcher.serve(load_settings(given(options)), Backend))


if __name__ == "__main__":
    main()
