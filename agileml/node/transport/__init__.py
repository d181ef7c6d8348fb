"""Carries messages between processes: order and repetition, keys, arrays, shared memory.

``reliable_link.py`` is pure and works over any wire that may lose messages; ``array_codec.py`` makes bytes of
arrays, ``shared_memory.py`` spares copies on one machine, ``curve_keys.py`` keeps strangers out.
"""
