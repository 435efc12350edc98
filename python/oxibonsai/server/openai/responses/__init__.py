"""``/v1/responses``: answers that are kept, and can be continued."""
