"""Norms, moments and axes: the few places where rounding, rank and sign are decided."""
