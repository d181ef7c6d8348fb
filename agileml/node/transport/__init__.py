"""Carries messages between processes: order and repetition, keys, arrays, shared memory.

``reliable_link.py`` is pure and works over any wire that may lose messages. Over sockets, ``link_end.py`` is
its end on a machine and ``link_hub.py`` its end at the coordinator of a job; ``packet_codec.py`` makes frames
of its packets. ``array_codec.py`` makes bytes of arrays, ``shared_memory.py`` spares copies on one machine,
``curve_keys.py`` keeps strangers out.
"""
