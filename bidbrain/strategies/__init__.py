"""Who buys machines, and when: ``base.py`` is the contract, ``registry.py`` what a job can be given by name.

``alone``, ``leased`` and ``kept`` go around any of them: no reliable machines, a lease, a deadline.
"""
