#!/usr/bin/env python3
"""Makes golden folders of families: make.py FOLDER [NAME...]; FOLDER/open/NAME and FOLDER/configs/NAME.json.

Needs `pip install torch transformers` (the folders in git: torch 2.15.0, transformers 5.24.0; the config.json of 4.57 by
--config-only of that version). Weights are random, in fp32; eager attention, one thread. The same run in fp64 must agree
to 2e-5, and a router's choices must not depend on 2e-4 of noise: seeds are tried until both hold.
"""
import argparse
import json
import pathlib

import torch
import transformers
from transformers.models.auto import modeling_auto
from safetensors.torch import save_file

SMALL = dict(vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=None)
LENGTH = 24
WINDOWED = ["sliding_attention", "sliding_attention", "full_attention"]
FAMILIES = {
    "cohere2": dict(sliding_window=7, layer_types=WINDOWED, logit_scale=0.3, intermediate_size=24),
    "ernie4_5": dict(head_dim=6, num_hidden_layers=2, use_bias=True, tie_word_embeddings=True),
    "ernie4_5_moe": dict(head_dim=6, moe_num_experts=6, moe_k=2, intermediate_size=16, moe_intermediate_size=8,
                         moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=1),
    "exaone4": dict(head_dim=6, sliding_window=7, sliding_window_pattern=3, layer_types=WINDOWED, vocab_size=48),
    "glm4": dict(head_dim=8, num_hidden_layers=2, attention_bias=True, partial_rotary_factor=0.5, tie_word_embeddings=False),
    "glm4_moe": dict(head_dim=8, attention_bias=True, partial_rotary_factor=0.5, use_qk_norm=True, n_routed_experts=8,
                     num_experts_per_tok=2, moe_intermediate_size=6, n_shared_experts=2, n_group=2, topk_group=1,
                     first_k_dense_replace=1, routed_scaling_factor=1.5, num_hidden_layers=2, vocab_size=48),
    "granite": dict(num_hidden_layers=2, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3, logits_scaling=2.5,
                    tie_word_embeddings=True),
    # T = 24 is no multiple of the kernel; the width is adjusted to 22 and then to 24.
    "lfm2": dict(block_multiple_of=8, intermediate_size=33, conv_L_cache=4, conv_bias=True, num_hidden_layers=3, norm_eps=1e-5,
                 layer_types=["conv", "full_attention", "conv"], tie_word_embeddings=True),
    "llama4_text": dict(head_dim=6, attention_chunk_size=7, no_rope_layers=[1, 0, 1], attn_scale=0.4, floor_scale=5,
                        moe_layers=[0, 1], num_local_experts=4, num_experts_per_tok=1, intermediate_size=8,
                        intermediate_size_mlp=16, vocab_size=40),
    "minimax_m2": dict(head_dim=8, rotary_dim=4, num_local_experts=6, num_experts_per_tok=2, intermediate_size=6,
                       num_hidden_layers=2, vocab_size=48),
    "ministral3": dict(head_dim=6, num_hidden_layers=2, sliding_window=15, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 7,
        "max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.4}),
    "olmo3": dict(rope_theta=500000.0, sliding_window=7, layer_types=WINDOWED, max_position_embeddings=32,
                  rope_scaling={"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16,
                                "attention_factor": 1.1, "beta_fast": 32.0, "beta_slow": 1.0}),
    "olmoe": dict(num_experts=6, num_experts_per_tok=2, intermediate_size=8, num_hidden_layers=2),
    # Two of three queries and keys are within, and nearly all values.
    "olmoe_clip": dict(clip_qkv=1.0, num_experts=4, num_experts_per_tok=2, intermediate_size=8, num_hidden_layers=2, vocab_size=40),
    "opt": dict(ffn_dim=32, num_hidden_layers=2, max_position_embeddings=32, dropout=0.0),
    "opt_post": dict(ffn_dim=32, num_hidden_layers=2, max_position_embeddings=32, dropout=0.0, do_layer_norm_before=False,
                     enable_bias=False, word_embed_proj_dim=16),
    "phi": dict(head_dim=8, num_hidden_layers=2, partial_rotary_factor=0.5),
    # Above one chunk of 64 tokens, and no multiple of it.
    "qwen3_next": dict(length=67, max_position_embeddings=128, vocab_size=48, head_dim=8, num_hidden_layers=2, intermediate_size=16,
                       layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
                       linear_key_head_dim=6, linear_value_head_dim=8, linear_conv_kernel_dim=4, num_experts=4, num_experts_per_tok=2,
                       moe_intermediate_size=6, shared_expert_intermediate_size=7, partial_rotary_factor=0.25, tie_word_embeddings=True),
    "qwen3_5_moe_text": dict(length=67, max_position_embeddings=128, vocab_size=48, head_dim=8, num_hidden_layers=2,
                             layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
                             linear_key_head_dim=6, linear_value_head_dim=8, num_experts=4, num_experts_per_tok=2,
                             moe_intermediate_size=6, shared_expert_intermediate_size=7, tie_word_embeddings=True),
    "qwen3_5_text": dict(length=67, max_position_embeddings=128, vocab_size=48, head_dim=8, num_hidden_layers=2, intermediate_size=22,
                         layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=6,
                         linear_key_head_dim=6, linear_value_head_dim=8, linear_conv_kernel_dim=3, tie_word_embeddings=False),
    "seed_oss": dict(head_dim=6, num_hidden_layers=2, attention_bias=True, attention_out_bias=False, mlp_bias=True,
                     attention_dropout=0.0, residual_dropout=0.0),
    "smollm3": dict(no_rope_layers=[1, 0, 1], layer_types=["full_attention"] * 3, tie_word_embeddings=True),
    "starcoder2": dict(num_hidden_layers=2, use_bias=True, sliding_window=7, tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh"),
}


def config_of(name):
    options = {**SMALL, **FAMILIES[name]}
    options.pop("length", None)
    family = name.removesuffix("_post").removesuffix("_clip")
    if family == "opt":  # whose keys are others
        del options["intermediate_size"], options["num_key_value_heads"]
    config = transformers.AutoConfig.for_model(family, **options, attn_implementation="eager", dtype="float32")
    config.architectures = [modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]]
    return config


def eager_experts():
    return {"experts_implementation": "eager"} if transformers.__version__ >= "5" else {}


def model_of(config, seed):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", **eager_experts()).float()
    with torch.no_grad():
        for key, weight in list(model.named_parameters()) + list(model.named_buffers()):
            if key.endswith("inv_freq"):
                continue
            spread = torch.randn(weight.shape) * 0.12
            weight.copy_(1 + spread if "norm" in key.rsplit(".", 2)[-2] and key.endswith("weight") else spread)
    return model.eval()


def probed(model, ids, nudge=0.0):
    model.zero_grad()
    with torch.no_grad():
        for weight in model.parameters() if nudge else []:
            weight.mul_(1 + nudge * torch.randn_like(weight))
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    return out


def folder_of(name, root):
    config = config_of(name)
    for seed in range(50):
        model = model_of(config, seed)
        ids = torch.randint(0, config.vocab_size, (2, FAMILIES[name].get("length", LENGTH)), generator=torch.Generator().manual_seed(seed))
        out = probed(model, ids)
        exact = model_of(config, seed).double()
        reference = probed(exact, ids)
        noise = (out.logits - reference.logits).abs().max().item()
        nudged = probed(model_of(config, seed).double(), ids, 2e-4)
        moved = (nudged.logits - reference.logits).abs().max().item()
        if noise < 2e-5 and moved < 5e-2:
            break
    else:
        raise SystemExit(f"{name}: no seed")
    out_folder = root / "open" / name
    model.save_pretrained(out_folder)
    (out_folder / "generation_config.json").unlink(missing_ok=True)
    golden = {"input_ids": ids, "labels": ids.clone(), "logits": out.logits.detach(), "loss": out.loss.detach()}
    # Gradients by the names of the file: a model of the gradients is saved, too.
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.grad if weight.grad is not None else torch.zeros_like(weight))
    model.save_pretrained(root / "grad")
    from safetensors.torch import load_file
    trained = {key for key, _ in model.named_parameters()}
    for key, value in load_file(root / "grad" / "model.safetensors").items():
        if "e_score_correction_bias" not in key:
            golden["grad." + key] = value
    save_file({k: v.contiguous() for k, v in golden.items()}, out_folder / "golden.safetensors")
    print(f"{name}: seed {seed}, noise {noise:.1e}, moved {moved:.1e}, loss {out.loss.item():.4f}, "
          f"{sum(p.stat().st_size for p in out_folder.iterdir()) // 1024} KiB, {len(trained)} parameters")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--config-only", action="store_true", help="configs/NAME.json, as this version writes it")
    options = arguments.parse_intermixed_args()
    torch.set_num_threads(1)
    for name in options.names or FAMILIES:
        if options.config_only:
            config_of(name).save_pretrained(options.folder / "configs" / name)
            (options.folder / "configs" / name / "config.json").rename(options.folder / "configs" / f"{name}.json")
            (options.folder / "configs" / name).rmdir()
        else:
            folder_of(name, options.folder)


if __name__ == "__main__":
    main()
