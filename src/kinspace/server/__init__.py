"""The gallery: a page to search in, served with its model or written as files."""

from kinspace.server.launcher import serve
from kinspace.server.server_settings import Settings
from kinspace.server.static_site import write_site

__all__ = ["Settings", "serve", "write_site"]
