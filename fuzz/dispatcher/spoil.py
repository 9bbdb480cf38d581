"""Changes of arguments: most make a call that must be refused, some one that must still be right."""

from tensors import DTYPES, LAYOUTS, OTHER_DTYPES, VALUES, is_tensor

INTEGERS = (
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2,
    3,
    5,
    7,
    64,
    2**16,
    2**24,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**53,
    2**60,
    2**61,
    2**62,
    2**63 - 1,
    2**63,
)
FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 0.5, 1e-300, 1e-30, 1e30, 1e300, -1e300)
TEXTS = (
    "",
    "RELU",
    "nothing",
    "paper\0",
    "none",
    "relu",
    "exp",
    "authors",
    "dense",
    "token-causal",
    "error",
    "clamp",
    "half",
    "head",
    "channels",
    "x" * 300,
    "é",
)


def spoil(value, random):
    """Another value for an argument of this kind."""
    if random.random() < 0.04:
        return random.choice((None, "text", 1, 2.5, [], {"shape": [2, 2]}, True))
    if is_tensor(value):
        return _tensor(dict(value), random)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, 2 * value)) if random.random() < 0.4 else random.choice(INTEGERS)
    if isinstance(value, float):
        return random.choice(FLOATS)
    if isinstance(value, str):
        return random.choice(TEXTS)
    if isinstance(value, list):
        return _list(list(value), random)
    return random.choice(({"shape": [2, 3, 2, 4]}, {"shape": [2, 2]}, 3, "text", 0.5))


def _tensor(value, random):
    shape = list(value["shape"])
    kind = random.randrange(8)
    if kind == 0:
        value["dtype"] = random.choice(DTYPES + OTHER_DTYPES)
    elif kind == 1 and shape:
        axis = random.randrange(len(shape))
        shape[axis] = random.choice((0, 1, shape[axis] + 1, max(0, shape[axis] - 1), 2 * shape[axis]))
    elif kind == 2:
        shape.insert(random.randrange(len(shape) + 1), random.choice((1, 1, 2)))
    elif kind == 3 and shape:
        shape.pop(random.randrange(len(shape)))
    elif kind == 4:
        value["values"] = random.choice(VALUES)
    elif kind == 5:
        value["layout"] = random.choice(LAYOUTS)
    elif kind == 6:
        value["device"] = "meta"
    else:
        value["grad"] = not value.get("grad", False)
    if shape != value["shape"]:
        value["shape"] = shape
        value.pop("data", None)
    return value


def _list(value, random):
    kind = random.randrange(4)
    if kind == 0 or not value:
        value.insert(random.randrange(len(value) + 1), random.choice(INTEGERS))
    elif kind == 1:
        value.pop(random.randrange(len(value)))
    else:
        at = random.randrange(len(value))
        value[at] = spoil(value[at], random) if isinstance(value[at], (int, dict)) else random.choice(INTEGERS)
    return value
