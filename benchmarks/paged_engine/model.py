"""A Llama with random weights over a paged KV cache, in plain PyTorch.

All tokens of a step pass norms and matrices together; attention is per call, over the pages of its
block table. Within a layer the step's keys and values are written before anybody reads, so that a call
may share a block that another call fills in the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from vocabulary import BLOCK, blocks_for

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [tokens, heads, dim], k and v [tokens, kv_heads, dim]) -> [tokens, heads, dim]."""
WIDER = 4
"""Decoding calls whose block tables differ by less than this factor are padded to one shape."""


class Shape(NamedTuple):
    """Sizes of a Llama; ``theta`` is that of the rotary embedding."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_len: int = 8192
    theta: float = 500_000.0


SHAPES = {
    "tiny": Shape(2, 64, 4, 2, 16, 128, 503),
    "small": Shape(4, 512, 8, 2, 64, 1408, 8192),
    "llama-3.1-8b": Shape(32, 4096, 32, 8, 128, 14336, 128_256),
}
"""``llama-3.1-8b``: config.json of meta-llama/Meta-Llama-3.1-8B, without its scaling of long contexts."""


class Row(NamedTuple):
    """A call's part of a step: its ``tokens`` from position ``start`` on, its block table, whether a token
    comes out, and whether it decodes (a single token, grouped with others)."""

    tokens: Sequence[int]
    start: int
    table: Sequence[int]
    emits: bool
    decodes: bool

    @property
    def end(self) -> int:
        """Tokens of context once this step is over."""
        return self.start + len(self.tokens)


class Layout(NamedTuple):
    """Where a step's tokens are: ``slots`` [tokens] in the cache, decoding calls in groups of one shape
    (rows [n], tables [n, pages], mask [n, 1, 1, pages * 16]), each prefill (first row, n, end, table)."""

    slots: Tensor
    decodes: list[tuple[Tensor, Tensor, Tensor]]
    prefills: list[tuple[int, int, int, Tensor]]


class Llama:
    """Weights of ``shape`` drawn from ``seed``, and a KV cache of ``kv_blocks`` blocks of 16 tokens."""

    def __init__(
        self, shape: Shape, kv_blocks: int, seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        self.shape, self.device = shape, torch.device(device)
        draw = torch.Generator(self.device).manual_seed(seed)

        def matrix(rows: int, columns: int) -> Tensor:
            made = torch.empty(rows, columns, device=self.device, dtype=dtype)
            return made.normal_(std=columns**-0.5, generator=draw)

        hidden, inner, width = shape.hidden, shape.intermediate, shape.heads * shape.head_dim
        qkv = width + 2 * shape.kv_heads * shape.head_dim
        sizes = ((qkv, hidden), (hidden, width), (2 * inner, hidden), (hidden, inner))
        self.embedding = matrix(shape.vocab, hidden) * hidden**0.5
        self.layers = [[matrix(*size) for size in sizes] for _ in range(shape.layers)]
        self.head = matrix(shape.vocab, hidden)
        self.scale = torch.ones(hidden, device=self.device, dtype=dtype)
        pool = (shape.layers, 2, kv_blocks, BLOCK, shape.kv_heads, shape.head_dim)
        self.cache = torch.zeros(pool, device=self.device, dtype=dtype)
        steps = torch.arange(0, shape.head_dim, 2, device=self.device).float() / shape.head_dim
        angles = torch.outer(torch.arange(shape.max_len, device=self.device).float(), shape.theta**-steps)
        self.rotations = torch.cat((angles.cos(), angles.sin()), -1).to(dtype)

    @torch.inference_mode()
    def step(self, rows: Sequence[Row]) -> Tensor:
        """Run one step; logits [calls that emit, vocab] in the order of ``rows``."""
        tokens = self._ids([token for row in rows for token in row.tokens])
        positions = self._ids([p for row in rows for p in range(row.start, row.end)])
        layout, last, at = self._layout(rows), [], -1
        for row in rows:
            at += len(row.tokens)
            last += [at] * row.emits
        hidden = self._layers(tokens, positions, lambda *given: self._paged(layout, *given))
        return self._logits(hidden[self._ids(last)])

    @torch.inference_mode()
    def oracle(self, tokens: Sequence[int]) -> Tensor:
        """Logits [tokens, vocab] of one text alone: no pages, no batch, attention written out."""
        positions = torch.arange(len(tokens), device=self.device)
        return self._logits(self._layers(self._ids(tokens), positions, self._dense))

    def _layers(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        heads, both = self.shape.heads, self.shape.heads + self.shape.kv_heads
        rotation, x = self.rotations[positions].unsqueeze(1), self.embedding[tokens]
        for number, (qkv, out, up, down) in enumerate(self.layers):
            mixed = F.linear(self._norm(x), qkv).view(len(tokens), -1, self.shape.head_dim)
            turned = _rotate(mixed[:, :both], rotation)
            read = attend(number, turned[:, :heads], turned[:, heads:], mixed[:, both:])
            x = torch.addmm(x, read.reshape(len(tokens), -1), out.t())
            gate, value = F.linear(self._norm(x), up).chunk(2, dim=-1)
            x = torch.addmm(x, F.silu(gate) * value, down.t())
        return x

    def _norm(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.scale.shape, self.scale, 1e-5)

    def _logits(self, hidden: Tensor) -> Tensor:
        if not len(hidden):  # a step in the middle of prompts; not every kernel takes no rows
            return hidden.new_empty((0, self.shape.vocab), dtype=torch.float32)
        return F.linear(self._norm(hidden), self.head).float()

    def _dense(self, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        del number
        k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k).float() * self.shape.head_dim**-0.5
        ahead = torch.ones(scores.shape[1:], dtype=torch.bool, device=self.device).triu(1)
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1).to(v.dtype)
        return torch.einsum("hqk,khd->qhd", weights, v)

    def _paged(self, layout: Layout, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, pools, group = torch.empty_like(q), self.cache[number], q.shape[1] // k.shape[1]
        for pool, new in zip(pools, (k, v), strict=True):
            pool.view(-1, *new.shape[1:]).index_copy_(0, layout.slots, new)
        for rows, tables, mask in layout.decodes:  # the heads of a group are queries of one KV head
            keys, values = (pool[tables].flatten(1, 2).transpose(1, 2) for pool in pools)
            folded = q[rows].view(len(rows), k.shape[1], group, -1)
            read = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
            out[rows] = read.reshape(len(rows), *q.shape[1:])
        for first, n, end, table in layout.prefills:
            keys, values = (
                pool[table].flatten(0, 1)[:end].repeat_interleave(group, 1).transpose(0, 1) for pool in pools
            )
            mine, bias = q[first : first + n].transpose(0, 1), causal_lower_right(n, end)
            read = F.scaled_dot_product_attention(mine[None], keys[None], values[None], attn_mask=bias)
            out[first : first + n] = read[0].transpose(0, 1)
        return out

    def _layout(self, rows: Sequence[Row]) -> Layout:
        slots, first, layout = [], 0, Layout(self._ids([]), [], [])
        decoding: list[tuple[int, Row]] = []
        for row in rows:
            slots += [row.table[p // BLOCK] * BLOCK + p % BLOCK for p in range(row.start, row.end)]
            if row.decodes:
                decoding.append((first, row))
            else:
                table = self._ids(row.table[: blocks_for(row.end)])
                layout.prefills.append((first, len(row.tokens), row.end, table))
            first += len(row.tokens)
        for group in _alike(decoding):
            pages = max(len(row.table) for _, row in group)
            tables = self._ids([[*row.table, *[0] * (pages - len(row.table))] for _, row in group])
            ends = self._ids([row.end for _, row in group])
            mask = torch.arange(pages * BLOCK, device=self.device) < ends[:, None]
            layout.decodes.append((self._ids([at for at, _ in group]), tables, mask[:, None, None]))
        return layout._replace(slots=self._ids(slots))

    def _ids(self, values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self.device)


def _alike(decoding: Sequence[tuple[int, Row]]) -> list[list[tuple[int, Row]]]:
    """Calls in groups: within one, no table is ``WIDER`` times as long as the shortest."""
    groups: list[list[tuple[int, Row]]] = []
    for at, row in sorted(decoding, key=lambda pair: len(pair[1].table)):
        if groups and len(row.table) < WIDER * len(groups[-1][0][1].table):
            groups[-1].append((at, row))
        else:
            groups.append([(at, row)])
    return groups


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    (left, right), (cos, sin) = x.chunk(2, -1), rotation.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)
