"""Prices moves between regions and clouds.

``egress.py`` has what a move costs in money and time, ``oracle_path.py`` the best path in hindsight.
"""
