"""How weights of few bits are packed in folders: a pack is several tensors, and one parameter."""
