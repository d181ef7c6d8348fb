"""The papers, reproduced on recorded data: one entry, ``python -m tests.papers NAME``."""
