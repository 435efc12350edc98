"""Whether the model was loaded, and how the server ends."""

from __future__ import annotations

import mmap

_MOST_FAILURES = 6  # half a minute between two tries


class Outcome:
    """State that the worker's process shares with the arbiter's and with the workers after it.

    Shared memory, since an exit status other than 3 makes gunicorn restart the worker.
    """

    FAILED = 3  # gunicorn's Arbiter.WORKER_BOOT_ERROR

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, 4)

    @property
    def is_ready(self) -> bool:
        """The worker that runs now has loaded the model."""
        return self._page[0] == 1

    @is_ready.setter
    def is_ready(self, value: bool) -> None:
        self._page[0] = int(value)
        if value:
            self._page[2], self._page[3] = 1, 0

    @property
    def was_ready(self) -> bool:
        """This worker or one before it has loaded the model: it can be loaded."""
        return self._page[2] == 1

    def seconds_to_retry(self) -> int:
        """Count a failed load, and return how long to wait before the next one."""
        self._page[3] = failures = min(self._page[3] + 1, _MOST_FAILURES)
        return int(2 ** (failures - 1))

    @property
    def exit_code(self) -> int:
        """The exit code of the server if loading fails."""
        return self._page[1] or 1

    @exit_code.setter
    def exit_code(self, value: int) -> None:
        self._page[1] = value
