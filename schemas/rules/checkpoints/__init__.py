"""Which checkpoint of a directory is complete: pure rules, by each framework's own evidence."""
