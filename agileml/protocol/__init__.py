"""Defines what controller, servers, workers and clients say to each other.

``events.py`` go to the controller and ``commands.py`` come from it; ``messages.py`` are between servers and
workers; ``telemetry.py`` goes up to the process that runs the job. ``wire.py`` encodes them, ``endpoints.py``
carries them. Knows nothing of what an answer should be.
"""
