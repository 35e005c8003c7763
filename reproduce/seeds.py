"""Every integer seed of the project: one per artifact, or per folder of records that artifacts share.

A unit's key is that of the seed, folded with the unit's name; units that are computed in groups fold what they are of.
"""

SEEDS: dict[str, int] = {
    "fig01": 1,
    "fig03": 3,
    "fig04": 4,
    "tab01": 11,
    "testbed": 5,
    "testbed_curves": 51,
    "testbed_chains": 52,
    "imagenet": 2,
    "cifar10": 10,
    "cifar100": 12,
    "rep_bank": 20,
    "replication": 21,
    "rep_active": 22,
    "thm1": 101,
    "thm2": 102,
    "thm3": 103,
    "thm4": 104,
    "dec_bandits": 201,
    "dec_fashion": 205,
    "dec_active": 202,
    "dec_thesis": 203,
    "dec_sets": 204,
}
