"""What controller, servers, workers and clients say to each other.

``events.py`` go to the controller and ``commands.py`` come from it; ``messages.py`` are between servers and
workers; ``telemetry.py`` goes up to whoever runs the job. ``wire.py`` makes bytes of them, ``endpoints.py``
carries those. Knows nothing of what an answer should be.
"""
