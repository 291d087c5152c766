#!/usr/bin/env python3
"""Makes golden folders of encoders: make_encoders.py FOLDER [NAME...] writes FOLDER/encoders/NAME.

Needs `pip install torch transformers sentence-transformers sentencepiece protobuf` (the folders in git: torch 2.15.0,
transformers 5.24.0, tokenizers 0.23.3, sentence-transformers 6.2.0). config_5.json is what this version wrote; --config-only
with transformers 4.57.6 then writes config.json anew. Weights are random, in fp32; sdpa attention (eager gives NaN where a window sees padding alone), one thread. The same run in fp64 must
agree to 1e-5. Each folder is one that sentence-transformers saved, with a tokenizer that is trained here.
"""
import argparse
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import save_file

SMALL = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=40)
# modules: how vectors are made; prompts: config_sentence_transformers.json's.
FAMILIES = {
    "bert": dict(max_tokens=20, modules=["mean", "normalize"], prompts={"query": "find the text: "}),
    "roberta": dict(max_tokens=24, modules=["cls"], options=dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)),
    "xlm-roberta": dict(max_tokens=38, modules=["mean", "dense", "normalize"],
                        options=dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1, layer_norm_eps=1e-5)),
    "modernbert": dict(max_tokens=32, modules=[("cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")],
                       options=dict(num_hidden_layers=3, global_attn_every_n_layers=2, local_attention=6, norm_eps=1e-4)),
    # No encoder: as Qwen3-Embedding, whose files have no head.
    "qwen3": dict(max_tokens=30, modules=["lasttoken", "normalize"], prompts={"query": "find the text: "},
                  options=dict(num_key_value_heads=1, head_dim=8, tie_word_embeddings=False, rms_norm_eps=1e-4)),
}
CORPUS = ["The quick brown fox jumps over the lazy dog.", "find the text: searching, classifying and clustering of texts",
          "Encoders read words to both sides; decoders don't.", "naive cafe in Zurich, 1234 times", "unaffable unwanted words",
          "a aa ab abc b ba bc c ca cab the them then there these"] * 3
TEXTS = ["The quick brown fox.", "", "  two  spaces and\ttab\nline ", "Na\u00efve caf\u00e9 in Z\u00fcrich: 1,234 \u20ac!?", "unaffable",
         "\u6771\u4eac\u30bf\u30ef\u30fc and \ud55c\uad6d\uc5b4", "\ufb01ne \uff21\uff22\u2460 \u338f e\u0301a\u0308 \u0130I\u0131",
         "[MASK] <mask> <s> [SEP]text", "zero\u200bwidth\u00ad soft \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600",
         "don't do not, it's they've we're \u00bfqu\u00e9?", "x" * 120, "a\u00a0b\u3000c\u2028d", "control \u0001\u0085\ufffd signs",
         "The lazy dog reads words to both sides of these texts, and then there are more of them than fit."]


def wordpiece():
    from tokenizers import BertWordPieceTokenizer
    trained = BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(CORPUS, vocab_size=170, min_frequency=1, show_progress=False)
    vocab = dict(sorted(trained.get_vocab().items(), key=lambda item: item[1]))
    return transformers.BertTokenizer(vocab=vocab) if transformers.__version__ >= "5" else None


def byte_level(template):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"] if template else ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    if template:
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]",
            mask_token=transformers.AddedToken("[MASK]", lstrip=True, special=True), clean_up_tokenization_spaces=True)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", cls_token="<s>", sep_token="</s>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", mask_token=transformers.AddedToken("<mask>", lstrip=True, special=True))


def with_end():
    tokenizer = byte_level(True)
    from tokenizers import processors
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", 2)])
    tokenizer.padding_side = "left"
    return tokenizer


def charsmap():
    """A few rules of SentencePiece's nmt_nfkc: the map of all has 240 KB."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    rules = {"\ufb01": "fi", "\uff21": "A", "\uff22": "B", "\u2460": "1", "\u338f": "kg", "e\u0301": "\u00e9", "a\u0308": "\u00e4",
             "\u00a0": " ", "\u3000": " ", "\u200b": " ", "\t": " ", "\n": " ", "\u00ad": "", "\u0001": "", "\u30bf": "\u30c0"}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "rules.tsv").write_text("".join(
            " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in rules.items()))
        (path / "corpus.txt").write_text("\n".join(CORPUS))
        sentencepiece.SentencePieceTrainer.train(input=path / "corpus.txt", model_prefix=path / "m", vocab_size=60,
                                                 hard_vocab_limit=False, normalization_rule_tsv=path / "rules.tsv", minloglevel=2)
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString((path / "m.model").read_bytes())
    return model.normalizer_spec.precompiled_charsmap


def unigram():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    trained.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=150, show_progress=False, unk_token="<unk>",
                                                                special_tokens=["<unk>"]))
    pieces = json.loads(trained.to_str())["model"]["vocab"]
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(piece, score) for piece, score in pieces if piece != "<unk>"] + [("\u00e9", -9.0), ("\u20ac", -9.5), ("<mask>", 0.0)]
    return transformers.XLMRobertaTokenizer(vocab=vocab, _spm_precompiled_charsmap=charsmap())


def tokenizer_of(name):
    return {"bert": wordpiece, "roberta": lambda: byte_level(False), "modernbert": lambda: byte_level(True),
            "xlm-roberta": unigram, "qwen3": with_end}[name]()


def config_of(name, vocab_size):
    options = {**SMALL, "vocab_size": vocab_size, "pad_token_id": 0, **FAMILIES[name].get("options", {})}
    if name == "modernbert":
        options.update(cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)
    config = transformers.AutoConfig.for_model(name, **options, attn_implementation="sdpa", dtype="float32")
    config.architectures = [{"bert": "BertModel", "roberta": "RobertaModel", "xlm-roberta": "XLMRobertaModel",
                             "modernbert": "ModernBertModel", "qwen3": "Qwen3Model"}[name]]
    return config


def model_of(config):
    torch.manual_seed(7)
    model = transformers.AutoModel.from_config(config, attn_implementation="sdpa").float()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            spread = torch.randn(weight.shape) * 0.15
            weight.copy_(1 + spread if "norm" in key.lower() and key.endswith("weight") else spread)
    return model.eval()


def sentence_folder(name, root, model, tokenizer, folder):
    """The folder as sentence-transformers saves it, and its own vectors of the texts."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    family = FAMILIES[name]
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        if family["max_tokens"]:
            tokenizer.model_max_length = family["max_tokens"]
        tokenizer.save_pretrained(plain)
        modules = [Transformer(plain, model_kwargs={"attn_implementation": "sdpa"})]
    width = model.config.hidden_size
    for module in family["modules"]:
        if module == "normalize":
            modules.append(Normalize())
        elif module == "dense":
            torch.manual_seed(3)
            modules.append(Dense(width, 10, init_weight=torch.randn(10, width) * 0.3, init_bias=torch.randn(10) * 0.3))
        else:
            modules.append(Pooling(width, module))
    whole = SentenceTransformer(modules=modules, device="cpu", prompts=family.get("prompts"))
    whole.save(str(folder), create_model_card=False)
    golden = {"embeddings": torch.tensor(whole.encode(TEXTS, batch_size=5))}
    for prompt in family.get("prompts", {}):
        golden["prompted"] = torch.tensor(whole.encode(TEXTS, prompt_name=prompt))
    for extra in ["README.md", "generation_config.json"]:
        (folder / extra).unlink(missing_ok=True)
    (folder / "config_5.json").write_text((folder / "config.json").read_text())
    return golden


def folder_of(name, root):
    from sentence_transformers.sentence_transformer.modules import Pooling
    tokenizer = tokenizer_of(name)
    config = config_of(name, len(tokenizer))
    model = model_of(config)
    folder = root / "encoders" / name
    folder.mkdir(parents=True, exist_ok=True)
    golden = sentence_folder(name, root, model, tokenizer, folder)
    lengths = [17, 24, 9]
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, config.vocab_size, (len(lengths), max(lengths)), generator=generator)
    mask = torch.tensor([[int(i < length) for i in range(max(lengths))] for length in lengths])
    ids = torch.where(mask == 1, ids, torch.tensor(config.pad_token_id))
    with torch.no_grad():
        # Padding beyond a window of padding alone has no numbers.
        hidden, exact = (torch.where(mask.unsqueeze(-1) == 1, each(input_ids=ids, attention_mask=mask).last_hidden_state, 0.0)
                         for each in (model, model_of(config).double()))
    noise = (hidden - exact).abs().max().item()
    assert noise < 1e-5 and all(value.isfinite().all() for value in golden.values()), noise
    golden.update(input_ids=ids, attention_mask=mask, hidden=hidden)
    for mode in Pooling.POOLING_MODES:
        golden["pooled." + mode] = Pooling(config.hidden_size, mode)({"token_embeddings": hidden, "attention_mask": mask})["sentence_embedding"]
    save_file({key: value.contiguous() for key, value in golden.items()}, folder / "golden.safetensors")
    own = transformers.AutoTokenizer.from_pretrained(folder)
    (folder / "golden_texts.json").write_text(json.dumps(
        [{"text": text, "ids": own(text)["input_ids"], "cut": own(text, truncation=True)["input_ids"],
          "decoded": own.decode(own(text, add_special_tokens=False)["input_ids"], clean_up_tokenization_spaces=False)}
         for text in TEXTS], indent=1) + "\n")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{name}: noise {noise:.1e}, {config.vocab_size} tokens, {size // 1024} KiB, embeddings {tuple(golden['embeddings'].shape)}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("names", nargs="*")
    arguments.add_argument("--config-only", action="store_true", help="write config.json as this version does")
    options = arguments.parse_intermixed_args()
    torch.set_num_threads(1)
    for name in options.names or FAMILIES:
        if not options.config_only:
            folder_of(name, options.folder)
            continue
        made = json.loads((options.folder / "encoders" / name / "config.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            config_of(name, made["vocab_size"]).save_pretrained(folder)
            (options.folder / "encoders" / name / "config.json").write_text((pathlib.Path(folder) / "config.json").read_text())


if __name__ == "__main__":
    main()
