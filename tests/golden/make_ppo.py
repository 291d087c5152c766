#!/usr/bin/env python3
"""Golden data of proximal policy optimization on models: make_ppo.py

Writes align/ppo_models/golden.safetensors: answers in rows, what is known of them, and the losses of a policy
(align/policy), by a reference (align/reference), and of a value model (align/reward/model), with all gradients. The
formulas are those of TRL 0.24's PPOTrainer, on transformers' models in fp32. Needs `pip install torch transformers
safetensors` (the file in git: torch 2.15.0, transformers 5.24.0).
"""
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

HERE = Path(__file__).parent / "align"
OPTIONS = dict(kl_coef=0.07, gamma=0.97, lam=0.9, cliprange=0.2, cliprange_value=0.2, vf_coef=0.3, temperature=0.7,
               response_length=6, missing_eos_penalty=None)


def log_probabilities(model, ids, mask):
    """Of each token, at its place, by the tokens before it."""
    logits = model(input_ids=ids, attention_mask=mask).logits / OPTIONS["temperature"]
    logs = torch.log_softmax(logits[:, :-1], -1).gather(2, ids[:, 1:, None]).squeeze(-1)
    return torch.cat([torch.zeros(len(ids), 1), logs], 1)


def values_of(model, ids, mask):
    return model.score(model.model(input_ids=ids, attention_mask=mask).last_hidden_state).squeeze(-1)


def main():
    torch.manual_seed(46)
    policy, reference = (AutoModelForCausalLM.from_pretrained(HERE / name, attn_implementation="eager").eval()
                         for name in ("policy", "reference"))
    value_model = AutoModelForSequenceClassification.from_pretrained(HERE / "reward/model",
                                                                     attn_implementation="eager").eval()
    prompts, tokens = [3, 5, 2, 4], [6, 4, 2, 5]
    most, length = OPTIONS["response_length"], max(p + n for p, n in zip(prompts, tokens))
    ids = torch.randint(1, policy.config.vocab_size, (4, length))
    at = torch.arange(length)[None]
    begin, count = torch.tensor(prompts)[:, None], torch.tensor(tokens)[:, None]
    mask, answer = (at < begin + count).long(), (at >= begin) & (at < begin + count)
    ids = ids * mask
    with torch.no_grad():
        old = log_probabilities(policy, ids, mask) + 0.15 * torch.randn(4, length)
        known = log_probabilities(reference, ids, mask)
        old_values = values_of(value_model, ids, mask) + 0.2 * torch.randn(4, length)
    scores = torch.randn(4)
    advantages, returns = torch.zeros(4, length), torch.zeros(4, length)
    placed = torch.zeros(4, length, dtype=torch.bool)  # where values are, by the token that says them
    for row, (p, n) in enumerate(zip(prompts, tokens)):
        places = n + (n < most)
        placed[row, p - 1:p - 1 + places] = True
        rewards = torch.zeros(places)
        rewards[:n] = -OPTIONS["kl_coef"] * (old - known)[row, p:p + n]
        rewards[places - 1] += scores[row]
        last = following = torch.zeros(())
        for t in reversed(range(places)):
            value = old_values[row, p - 1 + t]
            last = rewards[t] + OPTIONS["gamma"] * following - value + OPTIONS["gamma"] * OPTIONS["lam"] * last
            following = value
            returns[row, p - 1 + t] = last + value
            if t < n:
                advantages[row, p + t] = last
    chosen = advantages[answer]
    advantages[answer] = (chosen - chosen.mean()) * torch.rsqrt(chosen.var() + 1e-8)
    ratio = (log_probabilities(policy, ids, mask) - old).exp()
    clip = OPTIONS["cliprange"]
    policy_loss = torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - clip, 1 + clip))[answer].mean()
    values, clip = values_of(value_model, ids, mask), OPTIONS["cliprange_value"]
    bounded = torch.min(torch.max(values, old_values - clip), old_values + clip)
    value_loss = 0.5 * torch.max((values - returns) ** 2, (bounded - returns) ** 2)[placed].mean()
    (policy_loss + OPTIONS["vf_coef"] * value_loss).backward()
    golden = {"input_ids": ids, "attention_mask": mask, "completion_mask": answer.long(), "scores": scores,
              "old_per_token_logps": old * answer, "values": old_values * placed, "want.advantages": advantages * answer,
              "want.returns": returns, "want.policy_loss": policy_loss.detach(), "want.value_loss": value_loss.detach()}
    for prefix, model in (("", policy), ("value_model.", value_model)):
        golden |= {f"want.{prefix}grad.{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    folder = HERE / "ppo_models"
    folder.mkdir(exist_ok=True)
    save_file({k: v.contiguous() for k, v in golden.items()}, folder / "golden.safetensors")
    (folder / "meta.json").write_text(json.dumps(OPTIONS, indent=1) + "\n")


if __name__ == "__main__":
    main()
