"""Where the independent tasks of a study run, and what is kept of them."""
