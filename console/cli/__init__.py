"""Verbs of `heteroflow`, a file each."""
