"""Finding the documents with the greatest inner product to a query."""
