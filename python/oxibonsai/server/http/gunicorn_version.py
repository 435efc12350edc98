"""Which gunicorn the modules of this folder are made for.

They override methods that gunicorn does not document, so another version may start and then hang or
lose answers. A release is not known to work until the server's tests have passed with it.
"""

from __future__ import annotations

import gunicorn

from oxibonsai.errors import OxiBonsaiError

# The first version that has what is overridden, and the last that the tests have passed with. The
# requirement in pyproject.toml says the same: from the first on, below the next major version.
FIRST = (27, 0, 1)
LAST_TESTED = (27, 0, 1)


def check_gunicorn(installed: tuple[int, ...] = gunicorn.version_info) -> None:
    """Refuses a gunicorn whose inner parts are other ones.

    Releases of the same major version are let through, since they carry security fixes; a test of
    the package fails on them until somebody has looked at them.

    Raises:
        OxiBonsaiError: It is too old, or of a later major version.
    """
    if installed >= FIRST and installed[0] == LAST_TESTED[0]:
        return
    found = ".".join(str(part) for part in installed)
    least = ".".join(str(part) for part in FIRST)
    raise OxiBonsaiError(
        f"gunicorn {found} is installed, and the server's worker is built on the inner parts of "
        f"gunicorn {LAST_TESTED[0]}: run pip install 'gunicorn>={least},<{LAST_TESTED[0] + 1}'"
    )
