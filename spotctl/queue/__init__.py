"""Many jobs on one host, under a policy: who holds which machines in each round, and what became of them."""
