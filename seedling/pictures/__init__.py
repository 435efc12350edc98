"""How `seedling-picture` was made: captions, pictures that they describe, the networks' training."""
