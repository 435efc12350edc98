"""Families of models, one file each; `families` lists them."""
