"""Shared shapes and pure rules: what crosses a wire or a file, and what agent, mesh and console must judge alike."""
