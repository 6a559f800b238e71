"""Checkpoint directories of this host, read behind a fence."""
