"""Rules that must give the same answer offline in the CLI and in the daemon."""
