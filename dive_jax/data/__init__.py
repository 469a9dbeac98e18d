"""Collections, embedding stores, splits and triplets: what training and scoring read."""
