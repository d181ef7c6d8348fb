"""Runs command jobs: any program that can checkpoint, on one machine at a time.

    supervisor         pure: which machine runs the program, and what came of it
    messages           what the supervisor and a machine's agent tell each other, and what goes upwards
    machine_agent      the workload of a machine's agent: its phases, from files to the last checkpoint
    program_runner     setup and program, one after the other, and how far the program is
    checkpoint_keeper  checkpoints on their way to the store and back
    process            one program with its descendants: started, warned, ended; its output, without secrets
    checkpoint_folder  which entries of a folder are whole checkpoints
    checkpoint_store   where they are kept: any fsspec path
    job_folder         what the computer that runs the job keeps of it
    jsonl_log          a journal

Supervisor and agents share nothing but a link and the checkpoint store. Knows neither prices nor spotctl.
"""
