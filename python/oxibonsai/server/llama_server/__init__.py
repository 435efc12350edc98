"""The routes that only llama-server has."""
