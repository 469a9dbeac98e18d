"""Text in, vectors out. Each encoder imports its own heavy libraries inside its functions."""
