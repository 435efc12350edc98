"""Batches: many requests that are answered in the background, of OpenAI's and Anthropic's APIs."""
