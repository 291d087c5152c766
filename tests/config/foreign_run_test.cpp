// Settings of other programs, in the manner of public files, each with what becomes of it.
#include "nought/config/foreign_run.h"

#include <ostream>
#include <utility>

#include "support/golden.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/chat/chat_format.h"
#include "nought/config/foreign_names.h"
#include "nought/config/run_config.h"

namespace nought::foreign_run_test {
namespace {

using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TranslatedRun translated(const std::string& name, const std::string& text, const ForeignChoices& choices = {}) {
  const TempFolder folder;
  folder.write(name, text);
  TranslatedRun run = translate_run(read_foreign_settings((folder / name).string()), choices);
  for (std::string& line : run.missing) line = line.substr(line.rfind(name));  // the folder has another name each time
  return run;
}

/// What a file becomes. `missing` has a part of each line about what has no counterpart, in their order.
struct PublicFile {
  const char *name, *file, *text;
  std::vector<std::pair<const char*, Json>> taken;
  std::vector<const char*> missing = {};
  const char* mistake = "";
  int64_t ranks = 1;
};

void PrintTo(const PublicFile& file, std::ostream* out) { *out << file.name; }

const PublicFile kFiles[] = {
    {"axolotl_full",
     "a.yml",
     "base_model: Org/Base\nmodel_type: LlamaForCausalLM\nstrict: false\ndatasets:\n  - path: Org/set\n    type: "
     "alpaca\n"
     "val_set_size: 0.05\nsequence_len: 4096\nsample_packing: true\nadapter:\nmicro_batch_size: 2\nnum_epochs: 1\n"
     "optimizer: adamw_bnb_8bit\nlr_scheduler: cosine\nlearning_rate: 0.0002\nbf16: auto\nflash_attention: true\n"
     "special_tokens:\n  pad_token: <pad>\n",
     {{"model", "Org/Base"},
      {"data.validation_fraction", 0.05},
      {"data.separate_documents", true},
      {"training.per_device_train_batch_size", 2},
      {"training.optim", "adamw_bnb_8bit"}},
     {"a.yml:5: datasets = Org/set: is not a file here", "a.yml:18: special_tokens = "}},
    {"axolotl_qlora",
     "q.yaml",
     "base_model: m\nadapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_alpha: 16\nlora_target_linear: true\n"
     "sample_packing: false\nfsdp: [full_shard, auto_wrap]\nfsdp_config:\n  fsdp_offload_params: true\n"
     "lora_target_modules:\nunfrozen_parameters: [^lm_head]\nevals_per_epoch: 4\n",
     {{"adapter.r", 32},
      {"adapter.target_modules", "all-linear"},
      {"quantization_config.bnb_4bit_quant_type", "nf4"},
      {"deepspeed.zero_optimization.stage", 3},
      {"training.eval_strategy", "epoch"},
      {"data.validation_fraction", 0.05},  // what it validates with
      {"data.seq_length", 512},            // axolotl's defaults
      {"training.lr_scheduler_type", "cosine"}},
     {"q.yaml:7: sample_packing = false: samples are packed", "q.yaml:9: fsdp_config = ",
      "q.yaml:13: evals_per_epoch = 4: once in each pass", "unfrozen_parameters, line 12): with an adapter"}},
    {"axolotl_orpo",
     "o.yml",
     "base_model: m\nrl: orpo\norpo_alpha: 0.1\nadapter: lora\nlora_r: 8\nlora_target_modules:\n  - q_proj\n"
     "sample_packing: false\nloss_watchdog_threshold: 5.0\nchat_template: chatml\n",
     {{"alignment.method", "orpo"},
      {"alignment.beta", 0.1},
      {"adapter.target_modules", Json::array({"q_proj"})},
      {"data.chat_template", "chatml"}},
     {"o.yml:8: sample_packing", "o.yml:9: loss_watchdog_threshold = 5.0: there is no such key here"}},
    {"axolotl_least_rate",
     "c.yml",
     "base_model: m\nlr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\nwarmup_ratio: 0.1\ndeepspeed: configs/zero2.json\n"
     "sequence_parallel_degree: 1\ngradient_checkpointing: offload\nbatch_size: 8\n",
     {{"training.lr_scheduler_type", "cosine_with_min_lr"},
      {"training.lr_scheduler_kwargs.min_lr_rate", 0.1},
      {"deepspeed.zero_optimization.stage", 2},
      {"training.gradient_checkpointing", true}},
     {"c.yml:5: deepspeed = configs/zero2.json: the file is not here; its name says the stage",
      "c.yml:7: gradient_checkpointing = offload", "c.yml:8: batch_size = 8: the batch is"}},
    {"llama_factory_qlora",
     "l.yaml",
     "### model\nmodel_name_or_path: Org/Chat\nquantization_bit: 4\n\nstage: sft\ndo_train: true\nfinetuning_type: "
     "lora\n"
     "lora_target: q_proj,v_proj\nlora_rank: 16\ndataset: identity,more\ntemplate: llama3\ncutoff_len: 1024\n"
     "max_samples: 1000\nval_size: 0.1\neval_strategy: steps\neval_steps: 500\nfp16: true\nddp_timeout: 180000000\n",
     {{"adapter.target_modules", Json::array({"q_proj", "v_proj"})},
      {"adapter.r", 16},
      {"adapter.lora_alpha", 32},  // LLaMA-Factory's default
      {"data.chat_template", "llama3"},
      {"data.seq_length", 1024},
      {"training.fp16", true},
      {"training.ddp_timeout", 31536000}},
     {"l.yaml:10: dataset = identity: is not a file",
      "l.yaml:10: dataset = more: ", "l.yaml:13: max_samples = 1000: ", "l.yaml:18: ddp_timeout = 180000000: a year"}},
    {"llama_factory_full_sft",
     "f.yaml",
     "model_name_or_path: m\nstage: sft\nfinetuning_type: full\nuse_badam: true\ntemplate: qwen\npure_bf16: true\n"
     "packing: true\n",
     {{"training.bf16", true}, {"data.seq_length", 2048}},
     {"f.yaml:4: use_badam = true: BAdam", "f.yaml:5: template = qwen: the template of the model's folder",
      "f.yaml:6: pure_bf16 = true: masters"}},
    {"llama_factory_oft_dpo",
     "d.yaml",
     "model_name_or_path: m\nstage: dpo\nfinetuning_type: oft\noft_block_size: 32\npref_beta: 0.2\npref_loss: simpo\n"
     "resume_from_checkpoint: null\nreport_to: none\n",
     {{"alignment.method", "cpo"}, {"alignment.loss_type", "simpo"}, {"alignment.beta", 0.2}},
     {"d.yaml:3: finetuning_type = oft: adapters are lora and qlora", "d.yaml:4: oft_block_size = 32: there is no"}},
    {"llama_factory_kto_of_one",
     "k.yaml",
     "model_name_or_path: m\nstage: kto\nfinetuning_type: full\nper_device_train_batch_size: 1\n",
     {{"alignment.method", "kto"}},
     {},
     "set per_device_train_batch_size to 2"},
    {"trl_yaml_without_a_method",
     "t.yaml",
     "model_name_or_path: m\ntorch_dtype: bfloat16\nbeta: 0.01\nlearning_rate: 5.0e-7\nmax_length: 1024\nmax_steps: "
     "-1\n"
     "dataset_mixture:\n  datasets:\n    - id: Org/set\n",
     {{"training.learning_rate", 5e-7}, {"data.seq_length", 1024}},
     {"t.yaml:7: dataset_mixture = ", "t.yaml: alignment.beta = 0.01 (line 3): the file does not say the method"}},
    {"deepspeed_chat",
     "chat.sh",
     "#!/bin/bash\nOUTPUT=$1\nif [ \"$OUTPUT\" == \"\" ]; then\n    OUTPUT=./output\nfi\nmkdir -p $OUTPUT\n\n"
     "deepspeed --num_gpus 4 main.py \\\n   --data_path Org/a Org/b \\\n   --model_name_or_path Org/m \\\n"
     "   --max_seq_len 512 \\\n   --learning_rate 9.65e-6 \\\n   --weight_decay 0. \\\n   --num_warmup_steps 0 \\\n"
     "   --gradient_checkpointing \\\n   --zero_stage 3 \\\n   --deepspeed \\\n   --lora_dim 128 \\\n"
     "   --output_dir $OUTPUT \\\n   &> $OUTPUT/training.log\n",
     {{"training.learning_rate", 9.65e-6},
      {"training.gradient_checkpointing", true},
      {"training.output_dir", "./output"},
      {"deepspeed.zero_optimization.stage", 3},
      {"adapter.r", 128}},
     {"chat.sh:9: data_path = Org/a: ", "chat.sh:9: data_path = Org/b: "},
     "",
     4},
    {"megatron_evaluates_options",
     "mega.sh",
     "dir=$(dirname $0)\nopts=\" \\\n  --model-parallel-size 2 \\\n  --num-layers 24 \\\n  --train-iters 100 \\\n"
     "  --lr 1.5e-4 \\\n  --clip-grad 1.0 --fp16\"\nopts=\"${opts} --deepspeed_config $dir/z.json\"\n"
     "cmd=\"deepspeed --num_nodes 2 --num_gpus 8 pretrain.py $@ ${opts}\"\necho ${cmd}\neval ${cmd}\n",
     {{"training.parallelism_config.tp_size", 2},
      {"training.max_steps", 100},
      {"training.learning_rate", 1.5e-4},
      {"training.max_grad_norm", 1.0}},
     {"mega.sh:4: num_layers = 24: ", "mega.sh:8: deepspeed_config = $(...)/z.json: the shell would have to run"},
     "",
     16},
    {"accelerate_dpo",
     "dpo.sh",
     "CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file no/zero3.yaml --num_processes=2 scripts/dpo.py \\\n"
     "  --model_name_or_path=Org/m --beta 0.1 --use_peft --lora_r 32 \\\n  --no_remove_unused_columns "
     "--report_to wandb 2>&1 | tee log\n",
     {{"alignment.method", "dpo"},
      {"alignment.beta", 0.1},
      {"adapter.r", 32},
      {"deepspeed.zero_optimization.stage", 3}},
     {"dpo.sh:1: config_file = no/zero3.yaml: the file is not here; its name"},
     "",
     2},
    {"torchrun_with_fsdp",
     "t.sh",
     "cd x\ntorchrun --nproc_per_node=2 --nnodes 2 train.py --model_name_or_path ../m --bf16 True \\\n"
     "  --evaluation_strategy \"no\" --weight_decay 0. --fsdp \"full_shard auto_wrap offload\" \\\n"
     "  --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer' --tf32 True --model_max_length 2048 --run_name 7\n",
     {{"training.bf16", true},
      {"training.evaluation_strategy", "no"},
      {"deepspeed.zero_optimization.stage", 3},
      {"data.seq_length", 2048},
      {"training.run_name", "7"}},
     {"t.sh:3: fsdp = full_shard auto_wrap offload: write deepspeed"},
     "",
     4},
    {"python_module",
     "p.sh",
     "export M=$1\nPORT=$(shuf -n 1)\npython3 -m torch.distributed.launch --nproc_per_node=2 --master_port $PORT -m "
     "pkg.grpo --max_completion_length 256 --num_generations 4 --learning_rate 1e-6 --seed $PORT\n",
     {{"alignment.method", "grpo"}, {"alignment.max_completion_length", 256}, {"alignment.num_generations", 4}},
     {"p.sh:3: seed = $(...): the shell would have to run"},
     "",
     2},
    {"arguments_as_json",
     "args.json",
     "{\n  \"output_dir\": \"o\",\n  \"learning_rate\": 5e-05,\n  \"num_train_epochs\": 2,\n  \"deepspeed\": "
     "{\"zero_optimization\": {\"stage\": 1}},\n  \"neftune_noise_alpha\": 5,\n  \"run_name\": null,\n"
     "  \"own_key\": {\"a\": 1}\n}\n",
     {{"training.output_dir", "o"},
      {"training.num_train_epochs", 2},
      {"deepspeed", {{"zero_optimization", {{"stage", 1}}}}}},
     {"args.json:6: neftune_noise_alpha = 5: noise on embeddings", "args.json:8: own_key = {\"a\":1}: there is no"}},
};

class PublicRuns : public testing::TestWithParam<PublicFile> {};

TEST_P(PublicRuns, become_what_they_say_and_tell_what_is_missing) {
  const PublicFile& file = GetParam();
  const TranslatedRun run = translated(file.file, file.text);
  for (const auto& [path, value] : file.taken) {
    ASSERT_NE(run.find(path), nullptr) << path;
    EXPECT_EQ(run.find(path)->value, value) << path;
  }
  ASSERT_EQ(run.missing.size(), file.missing.size()) << testing::PrintToString(run.missing);
  for (size_t i = 0; i < run.missing.size(); ++i) EXPECT_THAT(run.missing[i], HasSubstr(file.missing[i]));
  EXPECT_THAT(run.mistake, HasSubstr(file.mistake));
  if (*file.mistake == '\0') {
    EXPECT_THAT(run.mistake, IsEmpty());
  }
  EXPECT_EQ(run.ranks, file.ranks);
}

INSTANTIATE_TEST_SUITE_P(Files, PublicRuns, testing::ValuesIn(kFiles),
                         [](const auto& tested) { return tested.param.name; });

TEST(ForeignRun, to_dict_of_every_version_leaves_out_what_holds_anyway) {
  for (const char* version : {"4.57.6", "5.24.0"}) {
    const std::string file = test::golden_folder("trainer/") + version + ".json";
    const TranslatedRun run = translate_run(read_foreign_settings(file), {});
    std::vector<std::string> paths;
    for (const TakenKey& key : run.taken) paths.push_back(key.path);
    std::erase(paths, "training.logging_dir");  // of transformers 4
    // What is said, and what has another default here.
    EXPECT_THAT(paths, testing::UnorderedElementsAre("training.max_steps", "training.logging_steps", "training.optim",
                                                     "training.per_device_eval_batch_size"))
        << version;
    EXPECT_THAT(run.missing, IsEmpty()) << version;
    EXPECT_THAT(run.mistake, IsEmpty()) << version;
  }
}

TEST(ForeignRun, data_is_found_beside_the_file_and_by_the_list_of_llama_factory) {
  const TempFolder folder;
  folder.write("chats.jsonl", "{}");
  folder.write("sets/dataset_info.json", R"({"mine": {"file_name": "mine.json"}, "hub": {"hf_hub_url": "a/b"}})");
  folder.write("sets/mine.json", "[]");
  folder.write("a.yml", "base_model: m\ndatasets:\n  - path: chats.jsonl\n    type: chat_template\n    field_x: y\n");
  folder.write("l.yaml", "model_name_or_path: m\nstage: sft\ndataset_dir: sets\ndataset: mine,hub\n");
  const TranslatedRun a = translate_run(read_foreign_settings((folder / "a.yml").string()), {});
  EXPECT_EQ(a.find("data.files")->value, Json::array({(folder / "chats.jsonl").string()}));
  EXPECT_THAT(a.missing, ElementsAre(HasSubstr("a.yml:5: datasets[0].field_x = y: files hold texts or messages")));
  const TranslatedRun l = translate_run(read_foreign_settings((folder / "l.yaml").string()), {});
  EXPECT_EQ(l.find("data.files")->value, Json::array({(folder / "sets/mine.json").string()}));
  EXPECT_THAT(l.missing, ElementsAre(HasSubstr("l.yaml:4: dataset = hub: is not a file here")));
}

TEST(ForeignRun, what_the_user_says_stands_in_place_of_the_file) {
  ForeignChoices choices;
  choices.model = "mine", choices.data = {"a.jsonl"}, choices.seq_length = 64, choices.ranks = 3,
  choices.method = "dpo";
  const TranslatedRun run = translated(
      "t.yaml", "model_name_or_path: m\nmax_length: 9\nbeta: 0.3\ndataset_name: Org/set\nseed: 1\n", choices);
  EXPECT_EQ(run.find("model")->value, "mine");
  EXPECT_EQ(run.find("data.files")->value, Json::array({"a.jsonl"}));
  EXPECT_EQ(run.find("data.seq_length")->value, 64);
  EXPECT_EQ(run.find("alignment.beta")->value, 0.3);
  EXPECT_EQ(run.ranks, 3);
  EXPECT_THAT(run.missing, IsEmpty());
}

TEST(ForeignRun, a_script_that_names_a_file_of_settings_has_them_and_its_own_flags) {
  const TempFolder folder;
  folder.write("grpo.yaml", "model_name_or_path: m\nlearning_rate: 1e-5\nnum_generations: 4\n");
  folder.write("run.sh", "accelerate launch grpo.py --config grpo.yaml --learning_rate 5e-6\n");
  folder.write("none.sh", "accelerate launch grpo.py --config none.yaml\n");
  const TranslatedRun run = translate_run(read_foreign_settings((folder / "run.sh").string()), {});
  EXPECT_EQ(run.find("training.learning_rate")->value, 5e-6);
  EXPECT_THAT(run.find("alignment.num_generations")->from, HasSubstr("grpo.yaml:3"));
  EXPECT_THROW(read_foreign_settings((folder / "none.sh").string()), IoError);
}

TEST(ForeignRun, what_is_no_run_is_refused_with_what_it_is) {
  const auto refusal = [](const char* name, const char* text) {
    try {
      translated(name, text);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("r.json", R"({"training": {}})"), HasSubstr("is a RUN.json"));
  EXPECT_THAT(refusal("d.json", R"({"zero_optimization": {"stage": 2}})"), HasSubstr("is a ds_config.json"));
  EXPECT_THAT(refusal("a.yaml", "distributed_type: DEEPSPEED\n"), HasSubstr("is a config of accelerate"));
  EXPECT_THAT(refusal("c.json", R"({"architectures": ["X"]})"), HasSubstr("is the config.json of a model"));
  EXPECT_THAT(refusal("x.yaml", "a: 1\n"), HasSubstr("has no key of TrainingArguments"));
  EXPECT_THAT(refusal("x.yaml", "- a\n"), HasSubstr("expected keys and values"));
  EXPECT_THAT(refusal("x.yaml", "a: &b 1\nc: *b\n"), HasSubstr("x.yaml:2"));
  EXPECT_THAT(refusal("x.sh", "echo hello\n"), HasSubstr("expected TrainingArguments as JSON"));
  EXPECT_THAT(refusal("x.sh", "python train.py\n"), HasSubstr("expected TrainingArguments as JSON"));
}

TEST(ForeignRun, templates_that_are_known_by_name_are_taken) {
  for (const std::string& name : enum_names<ChatFormat>())
    EXPECT_EQ(translated("t.yaml", "base_model: m\nchat_template: " + name + "\n").find("data.chat_template")->value,
              name);
}

TEST(ForeignRun, names_lead_to_keys_that_are_there) {
  for (const char* key : {"lora_r", "sequence_len", "val_size", "pref_beta", "lr", "micro_batch_size", "train_iters"}) {
    bool found = false;
    for (const ForeignFormat format :
         {ForeignFormat::transformers, ForeignFormat::axolotl, ForeignFormat::llama_factory})
      found = found || !path_of_foreign_key(format, key).empty();
    EXPECT_TRUE(found) << key;
  }
  EXPECT_EQ(path_of_foreign_key(ForeignFormat::transformers, "nothing_like_it"), "");
  EXPECT_TRUE(why_not_needed("wandb_project").has_value());
  EXPECT_TRUE(why_missing("use_galore").has_value());
}

}  // namespace
}  // namespace nought::foreign_run_test
