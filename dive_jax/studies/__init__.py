"""What is run: a dataset, methods and options in, tables of scores out."""
