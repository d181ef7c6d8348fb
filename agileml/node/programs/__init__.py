"""Command jobs: any program that can checkpoint, run on one machine at a time.

supervisor    pure: which machine runs the program, and what came of it
messages      what the supervisor and a machine's agent tell each other, and what goes upwards
checkpoints   which entries of a folder are whole checkpoints
store         where they are kept: any fsspec path
program       one program with its descendants: started, warned, ended; what it writes, without secrets
agent         the process that does all this on a machine
folder        the names and descriptions that these share; mailbox: files that carry messages
"""
