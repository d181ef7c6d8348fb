"""Prices as data: units, markets, billing rules, histories, recorded files, catalogue.

Imports nothing of ours and no cloud SDK.
"""
