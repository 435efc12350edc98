"""llama-server's own routes: native completion, tokenization, props, slots and adapters."""
