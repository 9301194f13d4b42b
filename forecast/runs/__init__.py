"""Run logs in, run table out."""
