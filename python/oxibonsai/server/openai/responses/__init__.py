"""``/v1/responses``: stored responses that can be continued."""
