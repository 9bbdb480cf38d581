"""What a result is held against."""


class Wrong(Exception):
    """A result that is not what the formula says."""


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def close(actual, expected, bound, certain, what):
    """Within the bound wherever the expectation is certain."""
    expect(actual.shape == expected.shape, f"{what} has shape {tuple(actual.shape)}, not {tuple(expected.shape)}")
    wrong = certain & ~((actual.detach().double() - expected.detach()).abs() <= bound)
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise Wrong(
            f"{what}{list(at)} is {actual[at].item()!r}, not {expected[at].item()!r} within {float(bound[at]):.3g}; "
            f"{int(wrong.sum())} of {wrong.numel()} are wrong"
        )
