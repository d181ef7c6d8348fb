"""Starts machines: ``base.py`` is the contract, ``local.py`` makes machines of this computer's processes.

``nominal_time.py`` releases time to local machines, and holds them to the time that is paid for.
"""
