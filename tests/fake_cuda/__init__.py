"""A "cuda" device for the CPU build of torch; `__main__.py` says how to use it."""
