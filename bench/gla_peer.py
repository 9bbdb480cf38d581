"""Times training steps of a GLA language model on the public Triton kernels of flash-linear-attention, at the sizes of
lm_340m: the peer of `mhla bench model --model lm_340m --attention gla,mhla`. With --operator the operator alone,
beside mhla.attention.

    pip download --no-deps -d wheels fla-core einops packaging   # where there is a network
    for wheel in wheels/*.whl; do unzip -qo $wheel -d peers; done
    PYTHONPATH=peers python bench/gla_peer.py --json gla_peer.json
    PYTHONPATH=peers:python python bench/gla_peer.py --operator

Parameters are float32, products bfloat16 by autocast, the residual stream is bfloat16. A step is forward, loss without
whole logits, backward and AdamW, as in `mhla bench model`. Peak memory is beyond parameters and optimiser.
"""

import argparse
import json
import math
import statistics
import sys

import torch
from fla.modules import FusedLinearCrossEntropyLoss, FusedRMSNormGated, GatedMLP, RMSNorm
from fla.ops.gla import chunk_gla
from torch import nn
from torch.nn import functional

WIDTH, DEPTH, HEADS, KEYS, VALUES, MLP, WORDS = 1024, 24, 4, 512, 1024, 2816, 32000
DECAY_RANK, DECAY_DIVISOR = 16, 16
BATCH_TOKENS = 65536


def linear(inputs, outputs, bias=False):
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.mlp_norm = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.q, self.k = linear(WIDTH, KEYS), linear(WIDTH, KEYS)
        self.v, self.g, self.o = linear(WIDTH, VALUES), linear(WIDTH, VALUES), linear(VALUES, WIDTH)
        self.decay = nn.Sequential(linear(WIDTH, DECAY_RANK), linear(DECAY_RANK, KEYS, bias=True))
        self.head_norm = FusedRMSNormGated(VALUES // HEADS)
        self.mlp = GatedMLP(WIDTH, intermediate_size=MLP)

    def forward(self, branch, stream):
        x, stream = self.attn_norm(branch, residual=stream, prenorm=True)
        q, k, v, g, decay = (part(x).unflatten(2, (HEADS, -1)) for part in (self.q, self.k, self.v, self.g, self.decay))
        o, _ = chunk_gla(q, k, v, functional.logsigmoid(decay) / DECAY_DIVISOR)
        branch = self.o(self.head_norm(o, g).flatten(2))
        x, stream = self.mlp_norm(branch, residual=stream, prenorm=True)
        return self.mlp(x), stream


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.embeddings.weight, std=0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm = RMSNorm(WIDTH)
        self.loss = FusedLinearCrossEntropyLoss()

    def forward(self, ids, labels):
        branch = self.embeddings(ids).bfloat16()
        stream = torch.zeros_like(branch)
        for layer in self.layers:
            branch, stream = layer(branch, stream)
        x, _ = self.norm(branch, residual=stream, prenorm=True)
        weight = self.embeddings.weight.to(x.dtype)
        return self.loss(x.flatten(0, 1), labels.flatten(), weight)


def milliseconds(run, count):
    """Medians over runs; the first two warm up."""
    times = []
    for index in range(count + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if index > 1:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def model_row(model, optimizer, tokens, count):
    batch = max(1, BATCH_TOKENS // tokens)
    ids = torch.randint(WORDS, (batch, tokens + 1), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()

    row = {"attention": "gla (fla)", "pass": "train", "tokens": tokens, "batch": batch}
    try:
        step()
        optimizer.zero_grad()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        row["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        row["ms_median"] = milliseconds(step, count)
        row["tokens_per_second"] = 1e3 * batch * tokens / row["ms_median"]
    except torch.OutOfMemoryError:
        row["out_of_memory"] = True
    return row


def operator_rows(tokens, count):
    """Forward and backward of one layer's operator."""
    import mhla

    batch, blocks = max(1, BATCH_TOKENS // tokens), math.ceil(tokens / 64)

    def new(width):
        return torch.randn(batch, tokens, HEADS, width // HEADS, device="cuda", dtype=torch.bfloat16).requires_grad_()

    q, k, v, d_o = new(KEYS), new(KEYS), new(VALUES), new(VALUES).detach()
    decay = (functional.logsigmoid(new(KEYS)) / DECAY_DIVISOR).detach().requires_grad_()
    mixing = torch.ones(blocks, blocks, device="cuda").tril().div(blocks).requires_grad_()
    options = {"partition": 64, "feature_map": "identity", "normalizer": "none", "causal": True}
    operators = {
        "gla (fla)": lambda: chunk_gla(q, k, v, decay)[0],
        "mhla": lambda: mhla.attention(q, k, v, mixing, **options),
    }
    inputs = {"gla (fla)": (q, k, v, decay), "mhla": (q, k, v, mixing)}
    for name, operator in operators.items():
        ms = milliseconds(lambda: torch.autograd.grad(operator(), inputs[name], d_o), count)  # noqa: B023
        yield {"attention": name, "pass": "fwd+bwd of the operator", "tokens": tokens, "batch": batch, "ms_median": ms}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="2048,16384,65536", help="tokens of a sequence")
    parser.add_argument("--count", type=int, default=5, help="steps that are timed")
    parser.add_argument("--operator", action="store_true", help="time the operator alone, beside mhla.attention")
    parser.add_argument("--json", help="file of the rows")
    options = parser.parse_args()
    torch.manual_seed(1)
    rows, lengths = [], [int(word) for word in options.tokens.split(",")]
    if options.operator:
        for tokens in lengths:
            rows.extend(operator_rows(tokens, options.count))
    else:
        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        rows = [model_row(model, optimizer, tokens, options.count) for tokens in lengths]
    for row in rows:
        print(json.dumps(row))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
