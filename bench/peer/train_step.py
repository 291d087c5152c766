#!/usr/bin/env python3
"""The comparison's peer: a training step of a GPT-2 or Llama shaped decoder in PyTorch, as a careful user writes it.

Forward, backward, clipping by the global norm and AdamW on random tokens, in bf16 with fp32 master weights. Two ways
of doing that are here, and compare.sh takes the faster: `autocast` (fp32 weights, cast once per step by autocast) and
`master` (bf16 weights, fp32 copies that the optimizer updates). Prints one JSON line: tokens per second of each step.
"""
import argparse
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {
    # GPT-2 124M, vocabulary padded to a multiple of 64.
    "gpt2": dict(layers=12, hidden=768, heads=12, kv_heads=12, inner=3072, vocab=50304, llama=False),
    # A Llama of 125M parameters with a tied head.
    "llama": dict(layers=16, hidden=768, heads=12, kv_heads=4, inner=2048, vocab=32000, llama=True),
}


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["heads"], c["kv_heads"], c["hidden"] // c["heads"]
        self.llama = c["llama"]
        self.qkv = nn.Linear(c["hidden"], (self.heads + 2 * self.kv_heads) * self.dim, bias=not self.llama)
        self.out = nn.Linear(c["hidden"], c["hidden"], bias=not self.llama)

    def forward(self, x, tables):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).split([self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim], dim=2)
        q = q.view(batch, length, self.heads, self.dim).transpose(1, 2)
        k = k.view(batch, length, self.kv_heads, self.dim).transpose(1, 2)
        v = v.view(batch, length, self.kv_heads, self.dim).transpose(1, 2)
        if self.llama:
            q, k = rotate(q, *tables["rope"]), rotate(k, *tables["rope"])
            repeats = self.heads // self.kv_heads
            k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        scores = torch.matmul(q * (1 / math.sqrt(self.dim)), k.transpose(2, 3)) + tables["mask"].to(q.dtype)
        y = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(y.transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        norm = RmsNorm if c["llama"] else nn.LayerNorm
        self.llama = c["llama"]
        self.norm1, self.norm2 = norm(c["hidden"]), norm(c["hidden"])
        self.attention = Attention(c)
        self.up = nn.Linear(c["hidden"], c["inner"] * (2 if self.llama else 1), bias=not self.llama)
        self.down = nn.Linear(c["inner"], c["hidden"], bias=not self.llama)

    def forward(self, x, tables):
        x = x + self.attention(self.norm1(x), tables)
        y = self.up(self.norm2(x))
        if self.llama:
            gate, value = y.chunk(2, dim=-1)
            y = F.silu(gate) * value
        else:
            y = F.gelu(y, approximate="tanh")
        return x + self.down(y)


class Decoder(nn.Module):
    def __init__(self, c, length):
        super().__init__()
        self.tokens = nn.Embedding(c["vocab"], c["hidden"])
        self.positions = None if c["llama"] else nn.Embedding(length, c["hidden"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = (RmsNorm if c["llama"] else nn.LayerNorm)(c["hidden"])
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        self.tables = {"mask": torch.full((length, length), float("-inf")).triu(1)}
        if c["llama"]:
            dim = c["hidden"] // c["heads"]
            angles = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, dim, 2) / dim))
            self.tables["rope"] = (angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16))

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, self.tables)
        logits = F.linear(self.norm(x), self.tokens.weight)  # the head is the embedding
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", choices=SHAPES, required=True)
    arguments.add_argument("--rows", type=int, required=True)
    arguments.add_argument("--length", type=int, required=True)
    arguments.add_argument("--steps", type=int, default=4)
    arguments.add_argument("--threads", type=int, required=True)
    arguments.add_argument("--mode", choices=["autocast", "master"], required=True)
    options = arguments.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    shape = SHAPES[options.model]
    model = Decoder(shape, options.length)
    if options.mode == "master":
        model.to(torch.bfloat16)
    weights = list(model.parameters())
    masters = [w.detach().float().requires_grad_() for w in weights] if options.mode == "master" else weights
    optimizer = torch.optim.AdamW(masters, lr=1e-4, weight_decay=0.1, foreach=True)

    def step():
        ids = torch.randint(shape["vocab"], (options.rows, options.length + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=options.mode == "autocast"):
            loss = model(ids[:, :-1], ids[:, 1:].contiguous())
        loss.backward()
        if options.mode == "master":
            for master, weight in zip(masters, weights):
                master.grad = weight.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        for weight in weights:
            weight.grad = None
        if options.mode == "master":
            with torch.no_grad():
                torch._foreach_copy_(weights, masters) if hasattr(torch, "_foreach_copy_") else [
                    w.copy_(m) for w, m in zip(weights, masters)]
        return loss.item()

    rates = []
    for i in range(options.steps + 1):  # the first one warms up
        start = time.perf_counter()
        loss = step()
        if i > 0:
            rates.append(options.rows * options.length / (time.perf_counter() - start))
    print(json.dumps({"tokens_per_second": rates, "loss": loss, "parameters": sum(w.numel() for w in weights)}))


if __name__ == "__main__":
    main()
