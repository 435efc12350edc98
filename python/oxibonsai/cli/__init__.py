"""The ``oxibonsai`` command."""
