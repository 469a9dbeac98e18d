"""Flax modules: what is trained. Each becomes a plain tree of arrays at the training boundary."""
