"""Real reinforcement learning in miniature: a tiny transformer, a verifiable task, a run log."""
