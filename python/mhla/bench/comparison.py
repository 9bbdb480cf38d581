"""All implementations at one shape: checked first, then timed in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

import mhla
from mhla.bench.formulas import EPS, composed, linear, softmax
from mhla.bench.shapes import Shape
from mhla.bench.stopwatch import Stopwatch

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCES = {"f32": 1e-5, "f64": 1e-10, "bf16": 8e-3, "f16": 2e-3}
SOFTMAX = {"sdpa": None, "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION, "sdpa-flash": SDPBackend.FLASH_ATTENTION}
IMPLS = ["mhla", "composed", "composed-compile", "linear", "linear-compile", *SOFTMAX]


def relative_rms(x: Tensor, y: Tensor) -> float:
    y = y.double()
    return ((x.double() - y).norm() / y.norm()).item()


class Comparison:
    """All implementations at one shape, normaliser and pass."""

    def __init__(self, shape: Shape, device: torch.device, dtype: str, normalizer: str, backward: bool) -> None:
        self.shape, self.device, self.dtype, self.normalizer, self.backward = shape, device, dtype, normalizer, backward
        batch, heads = shape.gpu if device.type == "cuda" else shape.cpu
        torch.manual_seed(1)
        dims = (shape.dim, shape.dim, shape.value_dim or shape.dim, shape.value_dim or shape.dim)
        *self.tokens, self.d_o = (
            torch.randn(batch, shape.partition.tokens, heads, dim, device=device).to(DTYPES[dtype]) for dim in dims
        )
        kind = "running-mean" if shape.causal else "paper"
        wide = torch.float64 if dtype == "f64" else torch.float32
        self.mixing = mhla.mixing_init(shape.partition, kind, dtype=wide, device=device)
        self.sizes = f"({batch}, {heads}, {shape.partition.tokens}, {shape.dim}"
        self.sizes += f"/{shape.value_dim}" if shape.value_dim else ""
        self.sizes += f", {shape.partition.blocks})"
        self._truths: dict[str, list[Tensor]] = {}

    def floor_bytes(self) -> int:
        q, k, v = (x.nbytes for x in self.tokens)
        forward = q + k + v + self.d_o.nbytes
        return 2 * forward + q + k + v if self.backward else forward

    def attend(self, impl: str) -> Callable[..., Tensor]:
        shape, partition = self.shape, self.shape.partition
        if impl == "mhla":
            # Language models have no normalizer and make their features before the rotary step.
            phi = "identity" if self.normalizer == "none" else "relu"
            causal = {"causal": True, "feature_map": phi, "scale": shape.dim**-0.5}
            options = {"normalizer": self.normalizer, **(causal if shape.causal else {"feature_eps": EPS})}
            return lambda q, k, v, mixing: mhla.attention(q, k, v, mixing, partition=partition, **options)
        if impl.startswith("sdpa"):
            return lambda q, k, v, mixing: softmax(q, k, v, shape.causal, SOFTMAX[impl])
        if impl.startswith("linear"):
            chunk = partition.extents[0] if shape.causal else 0
            formula = lambda q, k, v, mixing: linear(q, k, v, self.normalizer, chunk)  # noqa: E731
        else:
            line = ((partition.tokens,), (partition.tokens // partition.blocks,))
            sizes, extents = line if shape.block_order else (partition.sizes, partition.extents)
            formula = lambda *x: composed(*x, sizes, extents, self.normalizer, shape.causal)  # noqa: E731
        return torch.compile(formula, dynamic=False) if impl.endswith("-compile") else formula

    def inputs(self, impl: str) -> tuple[list[Tensor], Tensor]:
        """Token tensors as the implementation takes them, and the gradient of its output."""
        q, k, v, d_o = *self.tokens, self.d_o
        if impl.startswith("sdpa"):  # its fast paths want values as wide as keys
            v, d_o = v[..., : self.shape.dim].contiguous(), d_o[..., : self.shape.dim].contiguous()
        if impl.startswith("composed") and self.shape.block_order:
            order = torch.ops.mhla.block_order(self.shape.sizes, self.shape.extents)[0].to(self.device)
            q, k, v, d_o = (x[:, order] for x in (q, k, v, d_o))
        return [q, k, v], d_o

    def runner(self, impl: str) -> Callable[[], list[Tensor]]:
        """One run: the output and, with backward, the gradients of q, k, v and mixing."""
        tokens, d_o = self.inputs(impl)
        attend, leaves = self.attend(impl), [x.detach().requires_grad_(self.backward) for x in (*tokens, self.mixing)]

        def run() -> list[Tensor]:
            with torch.set_grad_enabled(self.backward):
                o = attend(*leaves)
            return [o, *torch.autograd.grad(o, leaves, d_o, allow_unused=True)] if self.backward else [o]

        return run

    def truth(self, formula_name: str) -> list[Tensor]:
        """The formula in double, head by head: the output and the gradients of q, k and v."""
        if formula_name in self._truths:
            return self._truths[formula_name]
        formula = self.attend(formula_name)
        tokens, d_o = self.inputs(formula_name)
        heads = []
        for h in range(d_o.shape[2]):
            head = [x[:, :, h : h + 1].double().requires_grad_(self.backward) for x in tokens]
            with torch.set_grad_enabled(self.backward):
                o = formula(*head, self.mixing.double())
            d_head = d_o[:, :, h : h + 1].double()
            heads.append([o, *torch.autograd.grad(o, head, d_head)] if self.backward else [o])
        self._truths[formula_name] = [torch.cat(parts, 2).detach() for parts in zip(*heads, strict=True)]
        return self._truths[formula_name]

    def error(self, impl: str, results: list[Tensor]) -> float:
        if impl.startswith("sdpa"):  # quadratic: only the last queries of one head
            (q, k, v), _ = self.inputs(impl)
            q, k, v = (x[:1, :, :1].double().transpose(1, 2) for x in (q, k, v))
            n, checked = q.shape[2], min(64, q.shape[2])
            visible = torch.ones(checked, n, dtype=torch.bool, device=self.device)
            visible = visible.tril(n - checked) if self.shape.causal else visible
            expected = scaled_dot_product_attention(q[:, :, -checked:], k, v, attn_mask=visible).transpose(1, 2)
            return relative_rms(results[0][:1, -checked:, :1], expected)
        expected = self.truth("linear" if impl.startswith("linear") else "composed")
        if impl == "mhla" and self.shape.block_order:
            order = torch.ops.mhla.block_order(self.shape.sizes, self.shape.extents)[0].to(self.device)
            results = [x[:, order] for x in results[:4]]
        errors = [relative_rms(x, y) for x, y in zip(results[: len(expected)], expected, strict=True)]
        return torch.tensor(errors).max().item()  # not finite where one is not

    def check(self, impl: str, run: Callable[[], list[Tensor]]) -> dict:
        """Error and memory of one run, as fields of a row."""
        extra_bytes = None
        run()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            results = run()
            extra_bytes = torch.cuda.max_memory_allocated() - before - sum(x.nbytes for x in results[:4])
        else:
            results = run()
        return {"rel_err": self.error(impl, results), "extra_bytes": extra_bytes}

    def rows(self, impls: list[str], stopwatch: Stopwatch, bandwidth: float, min_seconds: float) -> list[dict]:
        """One row per implementation; what cannot run has ``left_out``, a wrong result of the operator ``failed``."""
        rows, runs = [], []
        for impl in impls:
            row = {
                "shape": self.shape.name,
                "sizes": self.sizes,
                "device": self.device.type,
                "dtype": self.dtype,
                "pass": "fwd+bwd" if self.backward else "fwd",
                "impl": impl,
                "normalizer": "softmax" if impl in SOFTMAX else self.normalizer,
                "floor_ms": 1e3 * self.floor_bytes() / bandwidth,
            }
            if self.device.type == "cuda":
                row["device_name"] = torch.cuda.get_device_name(self.device)
            rows.append(row)
            try:
                run = self.runner(impl)
                row |= self.check(impl, run)
            except Exception as error:  # whatever a peer or a compiler throws is a finding
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                row["failed" if impl == "mhla" else "left_out"] = reason
                continue
            if impl == "mhla" and not row["rel_err"] <= TOLERANCES[self.dtype]:
                row["failed"] = f"relative RMS {row['rel_err']:.2e} exceeds {TOLERANCES[self.dtype]:.0e}; not timed"
                continue
            runs.append((row, run))
        times = stopwatch.race([run for _, run in runs], min_seconds)
        for (row, _), seconds in zip(runs, times, strict=True):
            deciles = statistics.quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else 9 * seconds
            row |= {f"ms_{key}": 1e3 * deciles[i] for key, i in (("median", 4), ("p10", 0), ("p90", 8))}
        return rows
