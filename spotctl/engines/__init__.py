"""Virtual counterparts of what is expensive: so far, the training."""
