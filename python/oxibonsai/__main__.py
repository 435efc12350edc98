"""``python -m oxibonsai``: the same as the command ``oxibonsai``."""

from oxibonsai.cli.main import main

main()
