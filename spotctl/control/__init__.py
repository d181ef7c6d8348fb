"""The control core: what happened is folded by ``evolve``, what to do is said by ``plan``.

Pure but for ``drive``. No clock, no I/O, no randomness; imports bidbrain and pricing_data only.
"""
