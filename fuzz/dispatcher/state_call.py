"""Streaming: ``mhla.State`` on the CPU, the decoding state of CUDA on CPU tensors, and the operators below it."""

import inspect
from math import prod

import torch

import mhla
from attention_call import option, tensor
from formula import FEATURE_MAPS, Attention, Unspecified, mixing_matrix, require
from mhla._state_decode import DecodeState
from tensors import DTYPES
from wrong import Wrong, close, expect

BEYOND = ("error", "clamp", "running-mean", "interpolate")


def extended(mixing, blocks, beyond):
    """A causal matrix for more blocks than it was trained for."""
    trained = mixing.shape[-1]
    if blocks <= trained:
        return mixing
    require(beyond in ("clamp", "running-mean") and trained >= 1, "blocks beyond those of mixing")
    result = torch.zeros(*mixing.shape[:-2], blocks, blocks, dtype=mixing.dtype)
    result[..., :trained, :trained] = mixing
    for i in range(trained, blocks):
        for b in range(i + 1):
            last = mixing[..., -1, max(0, trained - 1 - (i - b))]
            result[..., i, b] = last if beyond == "clamp" else 1 / (i + 1)
    return result


def restored(data):
    """On the CPU, whatever the form of the state."""
    places = {"device": "cpu"} if "device" in inspect.signature(mhla.State.restore).parameters else {}
    return mhla.State.restore(data, **places)


class StateCall:
    """A stream of tokens cut into pieces; outputs are those of one causal call."""

    name = "state"
    names = (
        "mixing batch heads key_dim value_dim block_size kv_heads dtype feature_map normalizer scale eps "
        "feature_eps beyond max_tokens summary_dtype q k v tokens partition"
    )

    def arguments(self, random):
        heads, kv_heads = random.choice(((1, 1), (2, 2), (2, 1), (4, 2)))
        batch, block_size = random.choice((1, 1, 2, 0)), random.choice((1, 2, 3, 5, 16))
        key_dim, value_dim = random.choice((1, 4, 8, 17)), random.choice((1, 3, 8, 16))
        tokens = random.randrange(1, 24)
        beyond = option(random, BEYOND, "error")
        blocks = -(-tokens // block_size)
        trained = blocks if beyond in ("error", "interpolate") else random.randrange(1, blocks + 1)
        dtype = option(random, DTYPES, "float32")
        pieces, left = [], tokens
        while left:
            piece = random.choice(("step", "step", "fork", "save", random.randrange(left + 1)))
            left -= piece if isinstance(piece, int) else piece == "step"
            pieces.append(piece)
        shape = (heads, trained, trained) if random.random() < 0.3 else (trained, trained)
        kind = {"dtype": dtype, "values": random.choice(("normal", "positive"))}
        return {
            "through": random.choice(("state", "state", "decode")),
            "pieces": pieces,
            "mixing": tensor(random, *shape, values="positive", dtype=random.choice(("float32", "float64"))),
            "batch": batch,
            "heads": heads,
            "kv_heads": kv_heads,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "block_size": block_size,
            "dtype": dtype,
            "beyond": beyond,
            "max_tokens": tokens + 3,
            "feature_map": option(random, list(FEATURE_MAPS), "relu"),
            "normalizer": random.choice(("none", "paper")),
            "scale": random.choice((1.0, 0.5)),
            "eps": random.choice((1e-6, 0.5)),
            "feature_eps": random.choice((0.0, 0.1)),
            "q": tensor(random, batch, tokens, heads, key_dim, **kind),
            "k": tensor(random, batch, tokens, kv_heads, key_dim, **kind),
            "v": tensor(random, batch, tokens, kv_heads, value_dim, dtype=dtype),
        }

    def call(self, through, pieces, q, k, v, dtype, max_tokens, mixing, **settings):
        dtype = getattr(torch, dtype, dtype) if isinstance(dtype, str) else dtype
        for x in (q, k, v):
            if not isinstance(x, torch.Tensor) or x.ndim < 3 or x.shape[1] < q.shape[1]:
                raise Unspecified("tokens")
        sizes = [settings[x] for x in ("batch", "heads", "key_dim", "value_dim") if type(settings[x]) is int]
        if 2**20 < prod(max(s, 1) for s in sizes) < 2**40:  # it may fit, and takes its time
            raise Unspecified("a large state")
        if through == "state":
            state = mhla.State(mixing, dtype=dtype, **settings)
        else:
            state = mhla.State._wrap(DecodeState(mixing, dtype=dtype, max_tokens=max_tokens, **settings))
        if any(x.layout != torch.strided for x in (q, k, v)):  # cannot be cut into pieces
            return state.prefill(q, k, v)
        outputs, at = [], 0
        for piece in pieces:
            if piece == "fork":
                state = state.fork()
            elif piece == "save":
                state = restored(state.serialize())
            elif piece == "step":
                require(all(x.ndim < 2 or at < x.shape[1] for x in (q, k, v)), "no token is left")
                outputs.append(state.step(q[:, at], k[:, at], v[:, at])[:, None])
                at += 1
            else:
                outputs.append(state.prefill(q[:, at : at + piece], k[:, at : at + piece], v[:, at : at + piece]))
                at += piece
        expect(state.tokens == at or q.shape[0] == 0, f"tokens is {state.tokens}, not {at}")
        return torch.cat(outputs, 1)

    def check(self, o, through, pieces, q, k, v, dtype, max_tokens, mixing, **s):
        require(type(s["block_size"]) is int and s["block_size"] >= 1, "block_size")
        require((s["batch"], s["heads"], s["key_dim"]) == (q.shape[0], q.shape[2], q.shape[3]), "shape of q")
        require(
            (s["heads"] if s["kv_heads"] is None else s["kv_heads"], s["value_dim"]) == (v.shape[2], v.shape[3]),
            "shape of v",
        )
        require((getattr(torch, dtype, None) if dtype is not None else torch.float32) == q.dtype, "dtype")
        consumed = o.shape[1]
        q, k, v = (x.detach()[:, :consumed] for x in (q, k, v))
        matrix = mixing_matrix(mixing.detach(), q.shape[2], q.dtype)
        blocks = -(-consumed // s["block_size"])
        if s["beyond"] == "interpolate" and blocks > matrix.shape[-1]:
            return
        matrix = extended(matrix, blocks, s["beyond"])
        settings = {x: s[x] for x in ("feature_map", "normalizer", "scale", "eps", "feature_eps")}
        formula = Attention(q, k, v, matrix, [consumed], [s["block_size"]], masking="token-causal", **settings)
        close(o, formula.o, formula.o_bound, formula.certain, "o")


class BytesCall:
    """Changed bytes of a saved state: refused, or a state that is as the one that was saved."""

    name = "bytes"
    names = "data bytes state"

    def arguments(self, random):
        return {
            "through": random.choice(("state", "state", "decode")),
            "blocks": random.choice((1, 3)),
            "at": random.randrange(4000),
            "value": random.randrange(1, 256),
            "cut": random.choice((0, 0, 0, 1, 7)),
        }

    def _saved(self, through, blocks):
        g = torch.Generator().manual_seed(blocks)
        settings = {
            "batch": 1,
            "heads": 2,
            "kv_heads": 1,
            "key_dim": 4,
            "value_dim": 3,
            "block_size": 4,
            "dtype": torch.float32,
            "feature_map": "relu",
            "normalizer": "paper",
            "scale": 1.0,
            "eps": 1e-6,
            "feature_eps": 0.0,
            "beyond": "clamp",
        }
        mixing = torch.rand(blocks, blocks, generator=g)
        state = (
            mhla.State(mixing, **settings) if through == "state" else mhla.State._wrap(DecodeState(mixing, **settings))
        )
        state.prefill(*(torch.rand(1, 5, h, d, generator=g) for h, d in ((2, 4), (1, 4), (1, 3))))
        return state

    def _next(self, state):
        g = torch.Generator().manual_seed(0)
        return torch.cat(
            [
                state.prefill(*(torch.rand(1, n, h, d, generator=g) for h, d in ((2, 4), (1, 4), (1, 3))))
                for n in (1, 9)
            ],
            1,
        )

    def call(self, through, blocks, at, value, cut):
        if any(type(x) is not int for x in (blocks, at, value, cut)) or blocks not in (1, 3):
            raise Unspecified("bytes")
        data = bytearray(self._saved(through, blocks).serialize())
        data[at % len(data)] ^= value % 255 + 1
        data = bytes(data[: len(data) - max(0, min(cut, len(data)))])
        return self._next(restored(data))

    def check(self, result, through, blocks, at, value, cut):
        expected = self._next(self._saved(through, blocks))
        if not torch.equal(result, expected):
            raise Wrong("changed bytes were accepted and the outputs are other ones")


class DecodeCall:
    """``decode_step`` and ``decode_open`` on memory that is not as it should be."""

    name = "decode"
    names = (
        "q k v mixing memory max_tokens feature_map normalizer scale eps feature_eps beyond heads block_size "
        "tokens batch kv_heads key_dim value_dim"
    )
    parts = ("S", "z", "P", "P_z", "diagonal", "folded_S", "folded_z", "k", "v", "tokens", "arrivals")

    def arguments(self, random):
        batch, heads, kv_heads = random.choice(((1, 1, 1), (2, 2, 1)))
        blocks, block_size, beyond = 3, random.choice((1, 4)), option(random, BEYOND[:3], "error")
        state = DecodeState(
            torch.ones(blocks, blocks),
            batch=batch,
            heads=heads,
            kv_heads=kv_heads,
            key_dim=4,
            value_dim=3,
            block_size=block_size,
            dtype=torch.float32,
            feature_map="relu",
            normalizer="paper",
            scale=1.0,
            eps=1e-6,
            feature_eps=0.0,
            beyond=beyond,
        )
        memory = [
            {"shape": list(x.shape), "dtype": str(x.dtype).split(".")[1], "values": "positive"} for x in state._memory
        ]
        seen = random.choice((0, 1, 5, 11, 12, 13, 100, -1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)))
        memory[9]["data"] = [seen] * batch
        memory[10]["data"] = [0] * (batch * (kv_heads + 1))
        tokens = random.choice((1, 1, 2, 9))
        return {
            "through": random.choice(("step", "open")),
            "mixing": tensor(random, blocks, blocks, values="positive"),
            "memory": memory,
            "heads": heads,
            "max_tokens": random.choice((0, 0, 20)),
            "normalizer": "paper",
            "beyond": beyond,
            "q": tensor(random, batch, tokens, heads, 4),
            "k": tensor(random, batch, tokens, kv_heads, 4),
            "v": tensor(random, batch, tokens, kv_heads, 3),
        }

    def call(self, through, q, k, v, heads, **a):
        if through == "open":
            return torch.ops.mhla.decode_open(heads=heads, **a)
        return torch.ops.mhla.decode_step(q=q, k=k, v=v, **a)

    def check(self, result, through, q, memory, mixing, beyond, max_tokens, **_):
        if any(x.device.type == "meta" for x in [*memory, mixing]) or memory[9].numel() == 0:
            return
        room = max_tokens or 2**62
        if beyond == "error":
            room = min(room, mixing.shape[-1] * memory[7].shape[2])
        seen = memory[9].reshape(-1).tolist()
        if through == "open":
            require(min(seen) >= 0 and max(seen) <= room, "memory.tokens")
        else:  # it has moved on
            require(min(seen) >= q.shape[1] and max(seen) <= room, "memory.tokens")
