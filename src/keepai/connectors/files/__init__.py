"""A folder of files as an outside system, which other programs may use at the same time."""
