"""Simulators with a known truth: everything here returns a run table."""
