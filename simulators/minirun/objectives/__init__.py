"""Objectives, one family per file; `simulators.minirun.objectives.registry` picks one and adds the divergence term."""
