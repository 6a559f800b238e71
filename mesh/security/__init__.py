"""Certificates of the mesh, and the one place that hands out TLS contexts."""
