"""Shared by all rooms: validation, precision, distances, log-sum-exp, classes of a batch, files."""
