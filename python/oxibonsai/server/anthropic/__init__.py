"""``/v1/messages``: the API of Anthropic's clients."""
