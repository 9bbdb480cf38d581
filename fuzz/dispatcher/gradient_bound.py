"""How far rounding may take the gradients of one call of the operator.

The gradient of ``sum(d_o * o)`` with ``o = n / D`` is ``sum(d_o / D * dn) - sum(d_o * o / D * dD)``. The two parts may
cancel to nothing, as they do for a 1 x 1 matrix, while rounding stays in proportion to the sizes of their terms. These
sizes are the same two sums over the absolute values of everything in them.
"""

import torch

from formula import FEATURE_MAPS, LARGEST, STEP, UNIT, Attention, accumulation

_FEATURES = ("q", "k", "q_den", "k_den")
_VALUES = ("v", "mixing", "initial_S", "initial_z")


def gradient_bounds(call, formula, wanted, d_o):
    """Of each wanted tensor the bound of the error before it is rounded to its own type; infinite where nothing is
    certain. ``call`` are the arguments of ``formula``; ``d_o`` is in float64."""
    dtype = call["q"].dtype
    held = accumulation(dtype)
    of_terms, of_o = _term_sizes(call, formula, wanted, d_o.abs(), 0)
    reach, _ = _term_sizes(call, formula, wanted, d_o.abs(), 1)
    batch, _, heads, key_dim = call["q"].shape
    value_dim = call["v"].shape[3]
    chain = formula.terms + value_dim + key_dim * value_dim + batch * heads + 2 * formula.terms / formula.condition
    bounds = []
    for n in range(len(wanted)):
        bound = chain * (UNIT[held] * of_terms[n] + STEP[held] * reach[n]) + of_o[n]
        bounds.append(torch.where(reach[n] < LARGEST[held], bound, torch.inf))
    return bounds


def _term_sizes(call, formula, wanted, d_o, more):
    """For each wanted tensor (sum of the sizes of all terms of its gradient, what the rounding of o does to it).

    ``more`` is added to every factor: 1 gives what bounds all on the way (the reach of formula.py).
    """
    plain = {"feature_map": "identity", "feature_eps": 0.0, "eps": abs(call["eps"]) + more}
    plain["scale"] = abs(1.0 if call["scale"] is None else call["scale"]) + more
    sizes = {x: (_size(x, call) + more).requires_grad_() for x in _FEATURES + _VALUES if call.get(x) is not None}
    of_sizes = Attention(**{**call, **sizes, **plain})
    inputs = [sizes[x] for x in wanted]
    slopes = [_slope(call[x], call["feature_map"]) + more if x in _FEATURES else 1.0 for x in wanted]
    if formula.denominator is None:
        return _gradients((d_o + more) * of_sizes.numerator, inputs, slopes), [torch.zeros_like(x) for x in inputs]
    rate = 1 / formula.denominator.detach().abs() + more
    of_numerator = _gradients((d_o + more) * rate * of_sizes.numerator, inputs, slopes)
    # Backward reads o as it was returned, rounded to its type, and o has an error in proportion to its terms' size.
    dtype = call["q"].dtype
    o_rounding = UNIT[dtype] * formula.o.detach().abs() + STEP[dtype]
    o_size = of_sizes.numerator.detach() * rate + more
    of_denominator = _gradients(
        ((d_o + more) * o_size).sum(-1, keepdim=True) * rate * of_sizes.denominator, inputs, slopes
    )
    of_o = _gradients((d_o * o_rounding).sum(-1, keepdim=True) * rate * of_sizes.denominator, inputs, slopes)
    return [a + b for a, b in zip(of_numerator, of_denominator, strict=True)], of_o


def _size(name, call):
    x = call[name].detach().double()
    if name in _FEATURES:
        return FEATURE_MAPS[call["feature_map"]](x).abs() + abs(call["feature_eps"])
    return x.abs()


def _slope(x, feature_map):
    x = x.detach().double().requires_grad_()
    return torch.autograd.grad(FEATURE_MAPS[feature_map](x).sum(), x)[0].abs()


def _gradients(terms, inputs, slopes):
    gradients = torch.autograd.grad(terms.sum(), inputs, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(x) if d is None else slope * d for x, d, slope in zip(inputs, gradients, slopes, strict=True)
    ]
