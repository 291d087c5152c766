#!/usr/bin/env python3
"""Attention of PyTorch on a GPU, in the shapes that test_cuda_device times: bench/peer/attention.py

cuDNN's fused kernels and FlashAttention, causal, in bf16, forward and backward; microseconds and TFLOP/s, where a causal
mask counts for half and a backward pass for five products of the forward one's two. The comparison's other half is the
table of `test_cuda_device --record FILE`.
"""
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

# sequences, tokens of each, heads, heads of keys, elements of a head
SHAPES = [(32, 1024, 12, 12, 64), (8, 2048, 16, 8, 128)]
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}


def seconds_of(work, repeats=20):
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def main():
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}")
    print(f"{'operation':<56}{'us':>10}{'TFLOP/s':>10}")
    for batch, length, heads, kv_heads, dim in SHAPES:
        make = lambda count: torch.randn(batch, length, count, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        q, k, v = (make(count).detach().requires_grad_() for count in (heads, kv_heads, kv_heads))
        gradient = make(heads)
        flops = 4 * batch * heads * length * (length + 1) / 2 * dim
        for name, backend in BACKENDS.items():
            attend = lambda: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            title = f"{name}, {batch} x {length} tokens, {heads} and {kv_heads} x {dim}"
            try:
                with sdpa_kernel(backend):
                    forward = seconds_of(attend)
                    out = attend()
                    backward = seconds_of(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
            except RuntimeError as error:
                print(f"{title}: {str(error).splitlines()[0]}")
                continue
            print(f"{title:<56}{forward * 1e6:>10.1f}{flops / forward / 1e12:>10.1f}")
            print(f"{title + ', backward':<56}{backward * 1e6:>10.1f}{2.5 * flops / backward / 1e12:>10.1f}")


if __name__ == "__main__":
    main()
