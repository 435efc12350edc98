"""The bodies of OpenAI's requests."""
