"""Command jobs: any program that can checkpoint, run on one machine at a time.

    supervisor         pure: which machine runs the program, and what came of it
    messages           what the supervisor and a machine's agent tell each other, and what goes upwards
    machine_agent      the process that does all this on a machine
    process            one program with its descendants: started, warned, ended; its output, without secrets
    checkpoint_folder  which entries of a folder are whole checkpoints
    checkpoint_store   where they are kept: any fsspec path
    job_folder         names and descriptions that these share
    jsonl_log          files that carry messages

Knows neither prices nor spotctl.
"""
