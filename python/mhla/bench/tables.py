"""Rows as text."""

from __future__ import annotations

from mhla.bench.comparison import SOFTMAX


def table(header: list[str], lines: list[list[str]]) -> str:
    """Columns as wide as their widest cell; the first two hold words."""
    widths = [max(len(line[c]) for line in [header, *lines]) for c in range(len(header))]

    def text(line: list[str]) -> str:
        cells = (
            cell.ljust(w) if c < 2 else cell.rjust(w) for c, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join([text(header), "-" * (sum(widths) + 2 * len(widths) - 2), *map(text, lines)]) + "\n"


def comparison_table(rows: list[dict], name: str) -> str:
    """One pass: shapes and normalisers down, implementations across, then the operator against floor and best peer."""
    timed = [row for row in rows if row["pass"] == name and "ms_median" in row]
    peers = list(dict.fromkeys(row["impl"] for row in timed if row["impl"] != "mhla"))
    lines = []
    for shape, normalizer in dict.fromkeys(
        (row["shape"], row["normalizer"]) for row in timed if row["impl"] not in SOFTMAX
    ):
        mine = [row for row in timed if row["shape"] == shape and row["normalizer"] in (normalizer, "softmax")]
        ms = {row["impl"]: row["ms_median"] for row in mine}
        floor, ours, best = mine[0]["floor_ms"], ms.get("mhla"), min((ms[p] for p in peers if p in ms), default=None)
        lines.append(
            [f"{shape} {mine[0]['sizes']}", normalizer, f"{floor:.4f}"]
            + [f"{ms[impl]:.4f}" if impl in ms else "-" for impl in [*peers, "mhla"]]
            + [f"{100 * floor / ours:.0f} %" if ours else "-", f"{best / ours:.2f}x" if ours and best else "-"]
        )
    return table(["shape (B, H, N, D, M)", "normalizer", "floor", *peers, "mhla", "of floor", "vs best peer"], lines)


def overhead_table(rows: list[dict]) -> str:
    lines = [[row["impl"], row["pass"], f"{row['us_per_call']:.1f}"] for row in rows if "us_per_call" in row]
    return table(["impl", "pass", "us per call"], lines)


def decode_table(rows: list[dict]) -> str:
    lines = [
        [row["shape"], row["dtype"], f"{row['us_per_token']:.2f}", f"{row['bytes_per_second'] / 1e9:.1f}"]
        + [f"{100 * row['of_copy']:.0f} %"]
        for row in rows
    ]
    return table(["shape (B, H, context, D)", "dtype", "us per token", "GB/s", "of copy"], lines)
