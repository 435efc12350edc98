"""OpenAI's API: chat, completions, embeddings, responses, assistants, files and models."""
