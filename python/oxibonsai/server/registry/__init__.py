"""The models of one server: which there are, which are loaded, and which request uses which."""
