"""Supplies machines: ``base.py`` is the contract.

``simulated.py`` grants, warns and evicts as a price trace says; ``local.py`` does so with processes of this
computer. Providers know no jobs and no money.
"""
