"""One set of pictures and one run of it for all tests here."""

from digit_runs import photos, run

__all__ = ["photos", "run"]  # fixtures
