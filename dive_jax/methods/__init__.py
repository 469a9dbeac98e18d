"""Compressors, one file each: a `fit` that turns frozen vectors and triplets into artefacts."""
