"""Assistants, threads, messages, runs and their steps."""
