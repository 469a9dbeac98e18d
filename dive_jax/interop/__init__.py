"""A fitted method written for other runtimes: reads artefacts only, computes with NumPy only."""
