"""One training loop for every method: batches, the compiled epoch, and checkpoints."""
