"""Draw docs/moths.png, the contact sheet of the built-in set `moths`, with a palette of colors."""

from pathlib import Path

from PIL import Image

from kinspace.data.moths import contact_sheet

GENERA = (0, 1, 2, 3, 4, 5, 8, 9)  # one of each of the most different families

if __name__ == "__main__":
    file = contact_sheet(Path(__file__).with_name("moths.png"), genera=GENERA, size=72)
    Image.open(file).quantize(192).save(file, optimize=True)
