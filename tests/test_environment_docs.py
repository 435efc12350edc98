"""Every environment variable that is read is documented, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path

from oxibonsai.server.setting_sources import variable
from oxibonsai.server.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"OXIBONSAI_[A-Z][A-Z_]*")


def test_variables_and_their_page_agree() -> None:
    read = {variable(field) for field in Settings.model_fields}
    for path in [*(ROOT / "python").rglob("*.py"), *(ROOT / "csrc").rglob("*.cc")]:
        text = path.read_text()
        # Compile definitions name tiers; everything else with the prefix is a variable.
        text = re.sub(r"OXIBONSAI_TIER_\w+", "", text)
        read |= set(_NAME.findall(text))
    documented = set(_NAME.findall((ROOT / "docs" / "environment.md").read_text()))
    assert read == documented
