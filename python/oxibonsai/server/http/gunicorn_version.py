"""Which versions of gunicorn the modules of this folder support.

They override undocumented methods of gunicorn, so another version may start and then hang or lose
responses. A release is not known to work until the server's tests have passed with it.
"""

from __future__ import annotations

import gunicorn

from oxibonsai.errors import OxiBonsaiError

# The first version with the overridden methods, and the last one that the tests have passed with. The
# requirement in pyproject.toml matches: at least the first, below the next major version.
FIRST = (27, 0, 1)
LAST_TESTED = (27, 0, 1)


def check_gunicorn(installed: tuple[int, ...] = gunicorn.version_info) -> None:
    """Rejects an unsupported gunicorn.

    Later releases of the same major version are accepted, since they carry security fixes; a test of
    the package fails on them until they have been reviewed.

    Raises:
        OxiBonsaiError: It is too old, or has a later major version.
    """
    if installed >= FIRST and installed[0] == LAST_TESTED[0]:
        return
    found = ".".join(str(part) for part in installed)
    least = ".".join(str(part) for part in FIRST)
    raise OxiBonsaiError(
        f"gunicorn {found} is installed, and the server's worker is built on the inner parts of "
        f"gunicorn {LAST_TESTED[0]}: run pip install 'gunicorn>={least},<{LAST_TESTED[0] + 1}'"
    )
