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
        "Left, means over runs, and the accuracy that is asked for. Right, the labels that it takes; a run "
        "that does not get there counts its budget."
    ),
    claims=(
        Claim(
            "rep_active-variance",
            "On real images, choosing by the variance of class probabilities takes fewer labels than uniform choice.",
            "labels up to the accuracy, variance minus uniform; at most the budget",
            fewer("variance"),
            at_most(0),
        ),
        Claim(
            "rep_active-bald",
            "On real images, choosing by BALD takes fewer labels than uniform choice.",
            "labels up to the accuracy, bald minus uniform; at most the budget",
            fewer("bald"),
            at_most(0),
        ),
        Claim(
            "rep_active-epig",
            "On real images, choosing by EPIG takes fewer labels than uniform choice.",
            "labels up to the accuracy, epig minus uniform; at most the budget",
            fewer("epig"),
            at_most(0),
        ),
        Claim(
            "rep_active-margin",
            "On real images, choosing by the margin takes fewer labels than uniform choice.",
            "labels up to the accuracy, margin minus uniform; at most the budget",
            fewer("margin"),
            at_most(0),
        ),
    ),
)
