// The text of a run's file, section by section.
#include "nought/cli/run_file.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/visit.h"

namespace nought {

namespace {

std::string quoted(const std::string& text) { return Json(text).dump(); }

std::string header_text(const InitAnswers& answers) {
  const std::string run = fmt::format("{} --ranks {}", answers.run_file, answers.ranks);
  return fmt::format(
      R"(// `nought init {0}` wrote this. Comments and trailing commas are fine; `nought config WORD` explains a key.
//   nought check {1}     every value and its reason
//   nought plan {1}      memory and work, before anything is allocated
//   nought train {1}     --resume continues the last checkpoint
// The paths of model, data and deepspeed are relative to this file, output_dir to the current directory.
)",
      enum_name(answers.kind), run);
}

std::string model_text(const InitAnswers& answers) {
  if (!has_random_weights(answers.kind))
    return fmt::format(
        R"(  // A Hugging Face folder (config.json, safetensors, tokenizer), a checkpoint, or the output of a run.
  "model": {},
)",
        quoted(answers.model));
  return fmt::format(
      R"(  // A small Llama from random weights: the content of a config.json. Larger: raise hidden_size, intermediate_size (about
  // 8/3 of it) and num_hidden_layers. vocab_size is the tokenizer's.
  "model": {{
    "model_type": "llama",
    "vocab_size": {},
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": {},
    "tie_word_embeddings": true,
  }},
)",
      answers.vocab_size, answers.seq_length);
}

/// How conversations are written, where the model's folder does not say it.
std::string template_text(const InitAnswers& answers) {
  std::string text;
  if (!answers.chat_template.empty())
    text += fmt::format("    \"chat_template\": {},  // the model's folder has none: how conversations are written\n",
                        quoted(answers.chat_template));
  if (!answers.add_special_tokens.empty()) {
    std::vector<std::string> markers;
    for (const std::string& each : answers.add_special_tokens) markers.push_back(quoted(each));
    text += fmt::format("    \"add_special_tokens\": [{}],  // its markers, which the tokenizer lacks\n",
                        fmt::join(markers, ", "));
  }
  return text;
}

std::string validation_text(const InitAnswers& answers) {
  if (learns_rewards(answers.kind)) return "";
  if (answers.validation_fraction == 0)
    return "    \"validation_fraction\": 0,  // the data is too small to keep some of it aside\n";
  const int64_t kept =
      std::max<int64_t>(1, std::llround(answers.validation_fraction * static_cast<double>(answers.samples)));
  const std::string of = answers.samples > 0 ? fmt::format(" ({} of {} samples)", kept, answers.samples) : "";
  return fmt::format(
      "    \"validation_fraction\": {:g},  // kept aside{}, to see whether the model learns or memorises\n",
      answers.validation_fraction, of);
}

const char* what_files_hold(RunKind kind) {
  if (kind == RunKind::gkd)
    return "JSON: prompt and completion, texts or lists of messages, or messages whose last is an answer.";
  if (learns_rewards(kind))
    return "JSON: prompt, a text or a list of messages, and the columns that rewards read, such as answer.";
  if (learns_pairs(kind)) return "JSON: prompt, chosen and rejected, each a text, or each a list of messages.";
  if (learns_chats(kind))
    return "JSON: messages, conversations, instruction and output, or prompt and completion; each file's first record "
           "tells.";
  return "Text, .jsonl files, or folders of `nought tokenize`; ** crosses folders.";
}

std::string length_of_data_text(const InitAnswers& answers) {
  if (learns_rewards(answers.kind) || answers.kind == RunKind::gkd)
    return fmt::format("    \"seq_length\": {},  // the most tokens of a prompt with an answer\n", answers.seq_length);
  if (learns_pairs(answers.kind))
    return fmt::format("    \"seq_length\": {},  // tokens of a prompt with an answer; longer ones are {}\n",
                       answers.seq_length, answers.kind == RunKind::dpo ? "cut" : "left out");
  return fmt::format("    \"seq_length\": {},  // tokens per sequence; documents are packed\n", answers.seq_length);
}

/// What judges answers that the model writes itself.
std::string judge_text(const InitAnswers& answers) {
  if (!answers.reward_model.empty())
    return fmt::format("    \"reward_model\": {},  // scores them; the value model begins with its weights\n",
                       quoted(answers.reward_model));
  return R"(    // What judges them; `nought config reward_funcs` lists the types. This one reads the last number of an answer.
    "reward_funcs": [{"type": "exact_match", "column": "answer", "extract": "number"}],
)";
}

/// Answers to one prompt, which are compared with each other: TRL's defaults.
int64_t answers_of_group(RunKind kind) { return kind == RunKind::ppo ? 1 : kind == RunKind::rloo ? 2 : 8; }

std::string rewards_text(const InitAnswers& answers) {
  const int64_t most = answers.seq_length / 2;
  const std::string length = fmt::format(": {},  // the most tokens of an answer\n", most);
  std::string own;
  if (answers.kind == RunKind::ppo)
    own = R"(    "kl_coef": 0.05,  // what a departure from the model above takes off rewards
    "num_ppo_epochs": 4,  // how often the same answers are learned from
    "response_length")" +
          length;
  else
    own = fmt::format(
              "    \"num_generations\": {},  // the answers to a prompt, which are compared with each other\n"
              "    \"max_completion_length\"",
              answers_of_group(answers.kind)) +
          length;
  return fmt::format(
      R"(  // Rewards of answers that the model writes itself, with TRL's keys. docs/alignment.md.
  "alignment": {{
    "method": "{}",
{}{}  }},
)",
      enum_name(answers.kind), own, judge_text(answers));
}

std::string teacher_text(const InitAnswers& answers) {
  return fmt::format(
      R"(  // What a teacher says of each token of answers, with TRL's keys. docs/alignment.md.
  "alignment": {{
    "method": "gkd",
    "teacher_model": {},  // a folder with the same vocabulary
    "lmbda": 0.5,  // the share of steps whose answers the model writes itself
    "max_new_tokens": {},  // the most tokens of such an answer
  }},
)",
      quoted(answers.teacher), answers.seq_length / 2);
}

std::string alignment_text(const InitAnswers& answers) {
  if (answers.kind == RunKind::reward)
    return R"(  // A head that scores answers, with TRL's keys. docs/alignment.md.
  "alignment": {
    "method": "reward",
    "center_rewards_coefficient": 0.01,  // keeps the mean score of pairs at 0
  },
)";
  if (answers.kind == RunKind::gkd) return teacher_text(answers);
  if (learns_rewards(answers.kind)) return rewards_text(answers);
  if (answers.kind != RunKind::dpo) return "";
  return R"(  // Preferred answers, with TRL's keys; the reference is the model above. docs/alignment.md.
  "alignment": {
    "method": "dpo",
    "beta": 0.1,  // how much a departure from the reference counts
  },
)";
}

std::string data_text(const InitAnswers& answers) {
  std::vector<std::string> files;
  for (const std::string& path : answers.data) files.push_back(quoted(path));
  const std::string tokenizer =
      has_random_weights(answers.kind)
          ? fmt::format("    \"tokenizer\": {},  // bytes, or the path of a tokenizer\n", quoted(answers.tokenizer))
          : "";
  return fmt::format(
      R"(  "data": {{
    // {}
    "files": [{}],
{}{}{}{}  }},
)",
      what_files_hold(answers.kind), fmt::join(files, ", "), tokenizer, template_text(answers),
      length_of_data_text(answers), validation_text(answers));
}

/// The numbers in which the kinds differ.
struct Recipe {
  const char *learning_rate, *warmup;
  int64_t sequences;  // that an update takes at most, over all ranks
  int64_t epochs;     // 0: max_steps counts the updates
};

Recipe recipe_of(RunKind kind) {
  switch (kind) {
    case RunKind::quickstart:
      return {"2e-3", "\"warmup_ratio\": 0.05", 4, 0};
    case RunKind::pretrain:
      return {"1e-3", "\"warmup_steps\": 100", 16, 0};
    case RunKind::continued:
      return {"5e-5", "\"warmup_ratio\": 0.03", 16, 1};
    case RunKind::lora:
    case RunKind::qlora:
      return {"2e-4", "\"warmup_ratio\": 0.03", 16, 3};
    case RunKind::dpo:
      return {"1e-6", "\"warmup_ratio\": 0.1", 16, 1};
    case RunKind::reward:
      return {"1e-5", "\"warmup_ratio\": 0.1", 16, 1};
    case RunKind::grpo:
    case RunKind::rloo:
      return {"1e-6", "\"warmup_ratio\": 0.03", 32, 1};
    case RunKind::ppo:
      return {"3e-6", "\"warmup_ratio\": 0.03", 32, 1};
    case RunKind::gkd:
      return {"2e-5", "\"warmup_ratio\": 0.03", 16, 1};
    case RunKind::finetune:
      break;
  }
  return {"2e-5", "\"warmup_ratio\": 0.03", 16, 3};
}

/// The updates of a run: how many sequences each takes, how many an epoch has, and when the run says and tries how it
/// goes.
struct RunPace {
  int64_t micro, accumulation;
  int64_t logging_steps = 10;
  bool short_epochs = false;  // validated after each, as eval_steps would not come
};

/// At most as many sequences as there are. Passes over little data take fewer, so that each has some updates.
RunPace pace_of(const InitAnswers& answers) {
  constexpr int64_t kUpdatesOfAnEpoch = 8, kEvalSteps = 100, kLines = 10;
  const Recipe recipe = recipe_of(answers.kind);
  const int64_t trained = answers.samples - (answers.validation_fraction > 0 ? 1 : 0);
  int64_t sequences = recipe.sequences;
  if (learns_rewards(answers.kind)) {
    // Groups of answers are whole, and no step takes more prompts than there are.
    const int64_t group = answers_of_group(answers.kind);
    if (answers.samples > 0) sequences = std::min(sequences, group * answers.samples);
    const int64_t micro = std::max(group, std::min<int64_t>(8, sequences / answers.ranks / group * group));
    return {micro, std::max<int64_t>(1, sequences / (micro * answers.ranks)), 1};
  }
  if (answers.samples > 0 && recipe.epochs == 0) sequences = std::min(sequences, trained);
  if (answers.samples > 0 && recipe.epochs > 0)
    sequences = std::clamp(trained / kUpdatesOfAnEpoch, std::min(trained, answers.ranks), sequences);
  const int64_t micro = sequences >= 2 * answers.ranks ? 2 : 1;
  RunPace pace{micro, std::max<int64_t>(1, sequences / (micro * answers.ranks))};
  if (answers.samples == 0 || recipe.epochs == 0) return pace;
  const int64_t updates = trained / (pace.micro * pace.accumulation * answers.ranks);
  pace.short_epochs = updates < kEvalSteps;
  pace.logging_steps = std::clamp<int64_t>(updates * recipe.epochs / kLines, 1, pace.logging_steps);
  return pace;
}

std::string length_text(const Recipe& recipe) {
  if (recipe.epochs == 0) return "\"max_steps\": 1000,  // updates";
  return fmt::format("\"num_train_epochs\": {},  // passes over the data; max_steps would count updates",
                     recipe.epochs);
}

std::string evaluation_text(const InitAnswers& answers, const RunPace& pace) {
  if (answers.validation_fraction == 0) return "    \"eval_strategy\": \"no\",\n";
  if (pace.short_epochs) return "    \"eval_strategy\": \"epoch\",\n";
  return "    \"eval_strategy\": \"steps\",\n    \"eval_steps\": 100,\n";
}

std::string training_text(const InitAnswers& answers) {
  const Recipe recipe = recipe_of(answers.kind);
  const RunPace pace = pace_of(answers);
  const std::string rows = answers.resize_vocab
                               ? "    \"resize_vocab\": true,  // the embedding and the head get rows for the markers\n"
                               : "";
  // Large second moments of the first steps would be forgotten too slowly.
  const std::string beta2 = has_random_weights(answers.kind) ? "    \"adam_beta2\": 0.95,\n" : "";
  return fmt::format(R"(  "training": {{
    {}
    // {} per update: these two numbers times the ranks. Too little memory: halve the first, double the second.
    "per_device_train_batch_size": {},
    "gradient_accumulation_steps": {},
    "learning_rate": {},
    "lr_scheduler_type": "cosine",
    {},
{}    "weight_decay": 0.1,
{}    "bf16": "auto",  // bf16 with fp32 master weights where the CPU has units for it, else fp32
    "gradient_checkpointing": false,  // true: less memory, a third more work
    "logging_steps": {},
{}    "save_steps": 200,
    "save_total_limit": 2,  // checkpoints to keep
    "output_dir": {},
  }},
)",
                     length_text(recipe),
                     learns_pairs(answers.kind)     ? "Pairs"
                     : learns_answers(answers.kind) ? "Answers"
                                                    : "Sequences",
                     pace.micro, pace.accumulation, recipe.learning_rate, recipe.warmup, beta2, rows,
                     pace.logging_steps, evaluation_text(answers, pace), quoted(answers.output_dir));
}

std::string adapter_text(const InitAnswers& answers) {
  if (!has_adapter(answers.kind)) return "";
  const std::string codes =
      answers.kind == RunKind::qlora
          ? R"(  // QLoRA, with transformers' keys: the frozen model's linear layers are kept in 4.127 bits a weight. docs/quantised.md.
  "quantization_config": {
    "load_in_4bit": true,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": true,
  },
)"
          : "";
  return fmt::format(
      R"(  // LoRA, with peft's keys: a product of rank r is trained beside each of these layers, and nothing else. docs/adapters.md.
  "adapter": {{
    "r": 16,
    "lora_alpha": 32,  // its product counts lora_alpha / r
    "target_modules": {},
  }},
{})",
      answers.targets, codes);
}

}  // namespace

std::string run_file_text(const InitAnswers& answers) {
  return header_text(answers) + "{\n" + model_text(answers) + adapter_text(answers) + alignment_text(answers) +
         data_text(answers) + training_text(answers) +
         R"(  // DeepSpeed's ds_config.json, or its path. Stage 2 shards optimizer states and gradients over the ranks, 3 parameters too.
  "deepspeed": {"zero_optimization": {"stage": 2}},
}
)";
}

}  // namespace nought
