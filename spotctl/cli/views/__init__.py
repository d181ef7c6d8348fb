"""Renders tables and texts for people, each beside the JSON for scripts.

Values in, renderables out; nothing is computed here.
"""
