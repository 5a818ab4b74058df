"""Bridges from other libraries: their names and calls over what is here. `pml` is the only one."""
