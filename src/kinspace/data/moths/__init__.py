"""Moths: a data set drawn by our own code, so that everything can be tried with no download.

120 species in 30 genera, two to four morphs a species, in any pose, light and place. What makes
a species are details: where its lines run, the form of a spot, the rings of an eye.

    moths = load_moths()          # drawn once, about half a minute on two cores, then cached
    moths.images, moths.labels    # (4800, 96, 96, 3) and the species
    moths.genera                  # the genus of every species
    moths.attributes              # 0/1, a column for each of moths.attribute_names
"""

from kinspace.data.moths.attributes import ATTRIBUTE_NAMES, VOCABULARY, describe
from kinspace.data.moths.collection import Moths, contact_sheet, draw_moths
from kinspace.data.moths.disk_cache import load_moths
from kinspace.data.moths.individual import Individual, sample_individual
from kinspace.data.moths.scene import Picture, draw_moth
from kinspace.data.moths.species import Genus, Morph, Species
from kinspace.data.moths.species_list import species_catalog

__all__ = [
    "ATTRIBUTE_NAMES",
    "VOCABULARY",
    "Genus",
    "Individual",
    "Morph",
    "Moths",
    "Picture",
    "Species",
    "contact_sheet",
    "describe",
    "draw_moth",
    "draw_moths",
    "load_moths",
    "sample_individual",
    "species_catalog",
]
