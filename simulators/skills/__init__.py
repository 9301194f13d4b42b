"""A mechanistic RL simulator: a policy trained on prompts that are chains of skills.

Worlds drawn from a curve family cannot refute it. Here curves have causes: which skills prompts need and how often,
what the policy shares between them, what the verifier accepts, how stale and how often reused the rollouts are.
"""
