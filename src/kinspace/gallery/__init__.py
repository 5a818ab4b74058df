"""The gallery: a page to search in, served with its model or written as files."""

from kinspace.gallery.serving import serve
from kinspace.gallery.settings import Settings
from kinspace.gallery.site import write_site

__all__ = ["Settings", "serve", "write_site"]
