"""Draw docs/moths.png, the contact sheet of the built-in set `moths`."""

from pathlib import Path

from kinspace.data.moths import contact_sheet

GENERA = (0, 1, 2, 3, 4, 5, 8, 9)  # one of each of the most different families

if __name__ == "__main__":
    contact_sheet(Path(__file__).with_name("moths.png"), genera=GENERA, shades=48)
