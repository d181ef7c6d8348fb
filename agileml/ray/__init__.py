"""Runs AgileML on a Ray cluster: Ray starts the processes and reports which nodes come, drain and die.

Nothing else goes through Ray: arrays and control messages travel over ZeroMQ, as everywhere.
"""
