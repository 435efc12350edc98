"""Folders of Hugging Face models to GGUF files.

None of its own modules is imported here: threads of a server may be the first to import several of
them at the same time, which deadlocks where a package imports its own modules. Packages below that do
so are imported whole, before any thread can begin with one of their modules.
"""

from __future__ import annotations

import oxibonsai.checkpoint
import oxibonsai.quantize  # noqa: F401 - see above
