"""Load on an OpenAI-style server, and what its clients see of it."""
