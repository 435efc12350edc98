"""``python -m oxibonsai.serve``: the same as ``oxibonsai serve``."""

from __future__ import annotations

import sys

from oxibonsai.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["serve"]
    main()
