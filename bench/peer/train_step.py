#!/usr/bin/env python3
"""The comparison's peer: a training step of a GPT-2 or Llama shaped decoder in PyTorch, as a careful user writes it, or
of transformers' own OLMoE or Qwen 3.5, or of an adapter of peft on transformers' Llama.

Forward, backward, clipping by the global norm and AdamW on random tokens, in f32 or in bf16 with fp32 master weights.
What a user of PyTorch can choose is an option here, and settings.py says which choices are tried. Runs under the newest
PyTorch and under Debian's 1.13. Prints one JSON line: tokens per second of each step.
"""
import argparse
import json
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

from shapes import SHAPES


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-5)
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight.to(x.dtype)


class Linear(nn.Linear):
    """With `widen`, a product of bf16 values in fp32: what a CPU without bf16 units is fast at."""

    widen = False

    def forward(self, x):
        return linear(x, self.weight, self.bias, self.widen)


def linear(x, weight, bias, widen):
    if not widen:
        return F.linear(x, weight, bias)
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, c, o):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["heads"], c["kv_heads"], c["hidden"] // c["heads"]
        self.llama, self.explicit, self.widen = c["llama"], o.attention == "explicit", o.mode == "widen"
        self.qkv = Linear(c["hidden"], (self.heads + 2 * self.kv_heads) * self.dim, bias=not self.llama)
        self.out = Linear(c["hidden"], c["hidden"], bias=not self.llama)

    def forward(self, x, tables):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).split([self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim], dim=2)
        q = q.view(batch, length, self.heads, self.dim).transpose(1, 2)
        k = k.view(batch, length, self.kv_heads, self.dim).transpose(1, 2)
        v = v.view(batch, length, self.kv_heads, self.dim).transpose(1, 2)
        if self.llama:
            q, k = rotate(q, tables["cos"], tables["sin"]), rotate(k, tables["cos"], tables["sin"])
            repeats = self.heads // self.kv_heads
            k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        if self.widen:
            q, k, v = q.float(), k.float(), v.float()
        if self.explicit:
            scores = torch.matmul(q * (1 / math.sqrt(self.dim)), k.transpose(2, 3)) + tables["mask"].to(q.dtype)
            y = torch.matmul(F.softmax(scores, dim=-1), v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.to(x.dtype).transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    def __init__(self, c, o):
        super().__init__()
        norm = RmsNorm if c["llama"] else nn.LayerNorm
        self.llama = c["llama"]
        self.norm1, self.norm2 = norm(c["hidden"]), norm(c["hidden"])
        self.attention = Attention(c, o)
        self.up = Linear(c["hidden"], c["inner"] * (2 if self.llama else 1), bias=not self.llama)
        self.down = Linear(c["inner"], c["hidden"], bias=not self.llama)

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
    def __init__(self, c, o):
        super().__init__()
        self.widen = o.mode == "widen"
        self.tokens = nn.Embedding(c["vocab"], c["hidden"])
        self.positions = None if c["llama"] else nn.Embedding(o.length, c["hidden"])
        self.blocks = nn.ModuleList(Block(c, o) for _ in range(c["layers"]))
        self.norm = (RmsNorm if c["llama"] else nn.LayerNorm)(c["hidden"])
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        self.tables = {"mask": torch.full((o.length, o.length), float("-inf")).triu(1)}
        if c["llama"]:
            dim = c["hidden"] // c["heads"]
            angles = torch.outer(torch.arange(o.length), 1e4 ** (-torch.arange(0, dim, 2) / dim))
            self.tables |= {"cos": angles.cos(), "sin": angles.sin()}

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, self.tables)
        x, targets = self.norm(x).flatten(0, 1), targets.flatten()
        # The head is the embedding.
        return F.cross_entropy(linear(x, self.tokens.weight, None, self.widen), targets)


class Transformers(nn.Module):
    """A model of transformers, with the loss of all tokens."""

    def __init__(self, c, o):
        super().__init__()
        if o.mode == "widen":
            raise SystemExit("transformers' models have no products in fp32 of bf16 values")
        import transformers  # no other shape needs it

        shared = dict(
            vocab_size=c["vocab"], hidden_size=c["hidden"], intermediate_size=c["inner"], num_hidden_layers=c["layers"],
            num_attention_heads=c["heads"], num_key_value_heads=c.get("kv_heads", c["heads"]),
            max_position_embeddings=o.length, tie_word_embeddings=True, use_cache=False)
        attention = "eager" if o.attention == "explicit" else "sdpa"
        if "llama" in c:
            self.model = transformers.LlamaForCausalLM._from_config(
                transformers.LlamaConfig(**shared), attn_implementation=attention)
        elif "experts" in c:
            self.model = transformers.OlmoeForCausalLM._from_config(
                transformers.OlmoeConfig(**shared, num_experts=c["experts"], num_experts_per_tok=c["chosen"]),
                attn_implementation=attention, experts_implementation=o.experts)
        else:  # its own code of PyTorch, where no kernels of the hub are installed
            self.model = transformers.Qwen3_5ForCausalLM._from_config(
                transformers.Qwen3_5TextConfig(
                    **shared, head_dim=c["head_dim"], linear_num_key_heads=c["delta_heads"],
                    linear_num_value_heads=c["delta_heads"]),
                attn_implementation=attention)

    def forward(self, ids, targets):
        x = self.model.model(ids).last_hidden_state.flatten(0, 1)
        return F.cross_entropy(self.model.lm_head(x), targets.flatten())


def add_adapter(model, rank):
    """peft's LoRA on every linear layer but the head, in fp32 as it keeps them; all else is frozen."""
    import peft  # nothing else needs it

    peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))


def make_step(shape, options):
    """A function that makes one step and returns its loss."""
    if options.device != "cpu":  # Debian's PyTorch knows no default
        torch.set_default_device(options.device)
    own = "llama" in shape and not options.lora
    model = Decoder(shape, options) if own else Transformers(shape, options)
    lower = options.mode in ("master", "widen")
    if lower:
        model.to(torch.bfloat16)
    if options.lora:
        add_adapter(model.model, options.lora)
        lower = False  # what is trained is fp32 already
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    masters = [w.detach().float().requires_grad_() for w in weights] if lower else weights
    fused = {"fused": True} if options.optimizer == "fused" else {"foreach": True}
    optimizer = torch.optim.AdamW(masters, lr=1e-4, weight_decay=0.1, **fused)
    loss_of = torch.compile(model) if options.compile else model
    for module in model.modules():
        if isinstance(module, Linear):
            module.widen = options.mode == "widen"

    def step():
        ids = torch.randint(shape["vocab"], (options.rows, options.length + 1))
        with torch.autocast(options.device, torch.bfloat16, enabled=options.mode == "autocast"):
            loss = loss_of(ids[:, :-1], ids[:, 1:].contiguous())
        loss.backward()
        if lower:
            for master, weight in zip(masters, weights):
                master.grad = weight.grad.float()
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        for weight in weights:
            weight.grad = None
        if lower:
            with torch.no_grad():
                if hasattr(torch, "_foreach_copy_"):
                    torch._foreach_copy_(weights, masters)
                else:
                    for weight, master in zip(weights, masters):
                        weight.copy_(master)
        return loss.item()

    return step


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", choices=SHAPES, required=True)
    arguments.add_argument("--rows", type=int, required=True)
    arguments.add_argument("--length", type=int, required=True)
    arguments.add_argument("--steps", type=int, default=4)
    arguments.add_argument("--threads", type=int, required=True)
    arguments.add_argument("--mode", choices=["f32", "autocast", "master", "widen"], required=True)
    arguments.add_argument("--attention", choices=["sdpa", "explicit"], default="sdpa")
    arguments.add_argument("--experts", choices=["grouped_mm", "eager"], default="grouped_mm")
    arguments.add_argument("--optimizer", choices=["fused", "foreach"], default="fused")
    arguments.add_argument("--compile", action="store_true")
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments.add_argument("--lora", type=int, default=0, metavar="RANK", help="train an adapter of peft; 0: all weights")
    arguments.add_argument("--no-onednn", action="store_true", help="products by MKL alone")
    options = arguments.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    if options.no_onednn:
        torch.backends.mkldnn.set_flags(False)
    step = make_step(SHAPES[options.model], options)
    rates = []
    for i in range(options.steps + 1):  # the first one warms up, and compiles
        start = time.perf_counter()
        loss = step()
        if i > 0:
            rates.append(options.rows * options.length / (time.perf_counter() - start))
    print(json.dumps({"tokens_per_second": rates, "loss": loss, "version": torch.__version__}))


if __name__ == "__main__":
    main()
