"""Beyond the paper: accuracy over the number of labels, and the labels that a level of accuracy takes."""

from ..artifact import Artifact, Tolerance
from ..claims import Claim, at_most
from ..configs.decisions import ActiveLearning
from .dec_active import draw as draw
from .dec_active import fewer

ARTIFACT = Artifact(
    title="Labels that an epinet needs on features of real images, by how they are chosen",
    session="cifar",
    order=10,
    tiers={"replication": ActiveLearning(num_runs=8, num_rounds=14, num_steps=300, num_pool=2000, level=0.85)},
    seed=22,
    run="replication_active:run",
    groups="groups",
    reads_inputs=True,
    tolerances={"accuracy": Tolerance(absolute=0.15), "labels": Tolerance(absolute=60)},
    minutes={"replication": 6},
    data="CIFAR-10, a trained ResNet",
    exact=True,
    caption=(
        "Left, means over runs, and the target accuracy. Right, the labels needed; a run that misses the target "
        "counts its budget."
    ),
    claims=tuple(
        Claim(
            f"rep_active-{name}",
            f"On real images, choosing by {words} takes fewer labels than uniform choice.",
            f"labels up to the accuracy, {name} minus uniform; at most the budget",
            fewer(name),
            at_most(0),
        )
        for name, words in {
            "variance": "the variance of class probabilities",
            "bald": "BALD",
            "epig": "EPIG",
            "margin": "the margin",
        }.items()
    ),
)
