"""Measures of a run against judgments, and comparisons between runs."""
