"""A web page to search in a gallery: served together with its model, or written as static files."""

from kinspace.server.launcher import serve
from kinspace.server.server_settings import ServerSettings
from kinspace.server.static_site import write_site

__all__ = ["ServerSettings", "serve", "write_site"]
