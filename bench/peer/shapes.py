"""The models whose training steps are compared."""

SHAPES = {
    # GPT-2 124M, vocabulary padded to a multiple of 64.
    "gpt2": dict(layers=12, hidden=768, heads=12, kv_heads=12, inner=3072, vocab=50304, llama=False),
    # A Llama of 125M parameters with a tied head.
    "llama": dict(layers=16, hidden=768, heads=12, kv_heads=4, inner=2048, vocab=32000, llama=True),
    # 8 of 64 experts: 124M of 520M parameters work on a token; the head is the embedding.
    "olmoe": dict(layers=12, hidden=768, heads=12, inner=256, vocab=50304, experts=64, chosen=8),
    # Nine of twelve layers follow the gated delta rule, in chunks; the head is the embedding.
    "qwen3_5": dict(layers=12, hidden=768, heads=6, kv_heads=2, head_dim=128, inner=2048, vocab=32000, delta_heads=6),
}
