"""Every integer seed of the project: one per artifact. A unit's key is the artifact's, folded with the unit's name."""

SEEDS: dict[str, int] = {
    "fig01": 1,
    "fig03": 3,
    "fig04": 4,
    "thm1": 101,
    "thm2": 102,
    "thm3": 103,
    "thm4": 104,
}
