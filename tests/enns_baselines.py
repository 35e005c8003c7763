"""Small ENNs of `baselines` for the contract table: three inputs, four classes."""

import jax.random as jr


def _trunk(key):
    from epinet_eqx.networks import MLP, headless

    return headless(MLP(3, 4, (6,), key=key))


def heteroscedastic(key):
    from epinet_eqx.baselines import Heteroscedastic
    from epinet_eqx.combinators import OnTrunk

    return OnTrunk(_trunk(jr.fold_in(key, 0)), Heteroscedastic(6, 4, rank=2, key=jr.fold_in(key, 1)))


def marginalized(key):
    from epinet_eqx.combinators import Marginalized

    return Marginalized(heteroscedastic(key), 3)


def sngp(key):
    from epinet_eqx.baselines import SNGP, SpectrallyBounded
    from epinet_eqx.combinators import OnTrunk

    trunk = SpectrallyBounded(_trunk(jr.fold_in(key, 0)), 0.9)
    return OnTrunk(trunk, SNGP(6, 4, num_features=8, key=jr.fold_in(key, 1)))


def sngp_posterior(key):
    from epinet_eqx.baselines import with_posterior

    return with_posterior(sngp(key), jr.normal(jr.fold_in(key, 2), (5, 3)))


def mimo(key):
    from epinet_eqx.baselines import MIMO
    from epinet_eqx.networks import MLP

    return MIMO(MLP(6, 8, (7,), key=key))


def pitman_yor_head(key):
    from epinet_eqx import pitman_yor
    from epinet_eqx.networks import MLP

    base = MLP(3, 4, (8,), key=jr.fold_in(key, 0))
    examples = jr.normal(jr.fold_in(key, 1), (20, 3))
    return pitman_yor.attach(base, examples, alpha=0.4, freeze=False, key=jr.fold_in(key, 2))


def pitman_yor_frozen(key):
    from epinet_eqx import pitman_yor
    from epinet_eqx.networks import MLP

    base = MLP(3, 4, (8,), key=jr.fold_in(key, 0))
    alpha = pitman_yor.LogisticAlpha(jr.normal(jr.fold_in(key, 1), (8,)), -1.0)
    return pitman_yor.attach(base, jr.normal(jr.fold_in(key, 2), (20, 3)), alpha=alpha, key=jr.fold_in(key, 3))


CASES = {
    "heteroscedastic": heteroscedastic,
    "marginalized": marginalized,
    "sngp": sngp,
    "sngp_posterior": sngp_posterior,
    "mimo": mimo,
    "pitman_yor": pitman_yor_head,
    "pitman_yor with a frozen function of the features": pitman_yor_frozen,
}
