"""Draws charts: ``axes.py`` makes a picture of curves, ``drawing.py`` writes it as SVG, ``png.py`` as
pixels.
"""
