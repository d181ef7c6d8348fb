"""Runs command jobs: any program that can checkpoint, on one machine at a time.

    supervisor           the pure state machine that assigns the program to a machine
    messages             the messages between the supervisor and the machines' agents
    machine_agent        the workload of a machine's agent: its phases, from files to the last checkpoint
    machine_preparation  the job's files, secrets and setup
    program_runner       setup and program, one after the other, and the program's progress
    machine_disk         the folders and files by which a machine and its program communicate
    checkpoint_keeper    checkpoints on their way to the store and back
    background_copy      a thread for one long copy, and a timer for its stalls
    process              one program with its descendants, and its output without secrets
    checkpoint_folder    the complete checkpoints in a program's folder
    checkpoint_store     the checkpoints in a store: any fsspec path
    job_folder           the job's folder on the computer that runs the supervisor
    local_host           machines of this computer
    jsonl_log            a journal

Supervisor and agents share nothing but a link and the checkpoint store. Knows neither prices nor spotctl.
"""
