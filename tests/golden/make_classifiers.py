#!/usr/bin/env python3
"""Makes golden folders of encoders with a head that scores texts: make_classifiers.py FOLDER [NAME...] writes
FOLDER/classifiers/NAME.

Needs `pip install torch transformers safetensors` (the folders in git: torch 2.15.0, transformers 5.24.0). Weights are random, in fp32;
sdpa attention, one thread, no dropout. golden.safetensors: input_ids, attention_mask, labels; logits, loss, grad.NAME; and
losses [50] of torch.optim.AdamW on this batch (lr 1e-3, betas 0.9 and 0.999, eps 1e-8, decay 0.01 on matrices alone).
"""
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SMALL = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32,
             vocab_size=61, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
ROBERTA = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)
MODERN = dict(global_attn_every_n_layers=2, local_attention=6, norm_eps=1e-4, pad_token_id=0, cls_token_id=1,
              sep_token_id=2, bos_token_id=1, eos_token_id=2)
FOLDERS = {
    "bert": ("bert", "BertForSequenceClassification", dict(pad_token_id=0, num_labels=3)),
    "roberta": ("roberta", "RobertaForSequenceClassification", dict(ROBERTA, num_labels=1)),
    "xlm-roberta": ("xlm-roberta", "XLMRobertaForSequenceClassification",
                    dict(ROBERTA, num_labels=2, problem_type="multi_label_classification")),
    "modernbert": ("modernbert", "ModernBertForSequenceClassification", dict(MODERN, num_labels=3)),
    "modernbert_mean": ("modernbert", "ModernBertForSequenceClassification",
                        dict(MODERN, num_labels=2, classifier_pooling="mean", classifier_bias=True, norm_bias=True,
                             classifier_activation="silu")),
}
LENGTHS = [17, 24, 9, 5, 12, 20, 3, 11]


def model_of(config, architecture):
    torch.manual_seed(7)
    model = getattr(transformers, architecture)._from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            spread = torch.randn(weight.shape) * 0.15
            weight.copy_(1 + spread if "norm" in key.lower() and key.endswith("weight") else spread)
    return model.train()


def batch_of(config):
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, config.vocab_size, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = torch.tensor([[int(i < length) for i in range(max(LENGTHS))] for length in LENGTHS])
    ids = torch.where(mask == 1, ids, torch.tensor(config.pad_token_id))
    labels = torch.arange(len(LENGTHS)) % config.num_labels
    if config.problem_type == "multi_label_classification":
        labels = torch.randint(0, 2, (len(LENGTHS), config.num_labels), generator=generator).float()
    elif config.num_labels == 1:
        labels = torch.randn(len(LENGTHS), 1, generator=generator)
    return ids, mask, labels


def fine_tune(model, run, steps=50):
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.01},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer, losses = torch.optim.AdamW(groups, lr=1e-3), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = run(model).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def folder_of(name, root):
    family, architecture, options = FOLDERS[name]
    options = {**SMALL, **options}
    if family == "modernbert":
        options = {key: value for key, value in options.items() if "dropout" not in key}
    config = transformers.AutoConfig.for_model(family, **options, dtype="float32")
    config.architectures = [architecture]
    model = model_of(config, architecture)
    folder = root / "classifiers" / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    ids, mask, labels = batch_of(config)
    run = lambda of: of(input_ids=ids, attention_mask=mask, labels=labels.to(of.dtype) if labels.is_floating_point() else labels)
    output = run(model)
    output.loss.backward()
    exact = run(model_of(config, architecture).double())
    noise = (output.logits - exact.logits).abs().max().item()
    assert noise < 1e-5, noise
    golden = {"input_ids": ids, "attention_mask": mask, "labels": labels.contiguous(), "logits": output.logits.detach(),
              "loss": output.loss.detach()}
    for key, weight in model.named_parameters():
        golden["grad." + key] = weight.grad.clone() if weight.grad is not None else torch.zeros_like(weight)
    golden["losses"] = fine_tune(model, run)
    save_file({key: value.contiguous() for key, value in golden.items()}, folder / "golden.safetensors")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{name}: noise {noise:.1e}, loss {output.loss.item():.4f} to {golden['losses'][-1].item():.4f}, {size // 1024} KiB")


def main():
    torch.set_num_threads(1)
    for name in sys.argv[2:] or FOLDERS:
        folder_of(name, pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
