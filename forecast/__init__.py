"""Forecasts with honest intervals for RL training runs: ``read_runs -> fit -> predict``."""
