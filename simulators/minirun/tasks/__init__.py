"""Tasks that a program can grade, in NumPy."""
