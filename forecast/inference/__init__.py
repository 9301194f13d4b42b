"""Posteriors over curves: priors, hierarchical engine, least squares and diagnostics."""
