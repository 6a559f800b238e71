"""The parts of train_numpy.py: a small but real data-parallel trainer that needs nothing except numpy."""
