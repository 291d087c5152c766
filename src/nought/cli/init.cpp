// nought init: writes a RUN.json with comments, from flags or from answers at a terminal.
#include "nought/cli/init.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/base/visit.h"
#include "nought/chat/chat_template.h"
#include "nought/cli/commands.h"
#include "nought/cli/init_from.h"
#include "nought/cli/own_program.h"
#include "nought/data/token_folder.h"
#include "nought/io/atomic_file.h"
#include "nought/io/files.h"
#include "nought/io/text_file.h"
#include "nought/models/adapter_modules.h"
#include "nought/models/config.h"
#include "nought/text/tokenizer.h"
#include "nought/train/run_data.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// JSON of the names of what the attention of a model with experts has; experts get no adapters.
std::string attention_layers(const ModelConfig& config) {
  Json names = Json::array();
  for (const AdaptableLayer& layer : adaptable_layers(config)) {
    const Json name = layer.name.substr(layer.name.rfind('.') + 1);
    const bool of_attention = layer.name.find("attn") != std::string::npos;
    if (of_attention && std::ranges::count(names, name) == 0) names.push_back(name);
  }
  return names.dump();
}

/// What the command line gives; what is absent is asked for at a terminal.
struct InitFlags {
  std::string kind, run_file, from, model, tokenizer, output, reward_model, teacher;
  std::vector<std::string> data;
  std::optional<int64_t> ranks, seq_length;
  bool force = false;
};

/// A glob of text that machines have, for a first run: C++ headers, the manual of the package, licenses of Debian.
std::string text_of_machine() {
  const fs::path manual = package_folder() / "share" / "doc" / "nought" / "docs";
  for (const fs::path& folder : {fs::path("/usr/include/c++"), manual, fs::path("/usr/share/common-licenses")})
    if (std::error_code ignored; fs::is_directory(folder, ignored)) return (folder / "**").string();
  fail<ConfigError>(
      "quickstart: there is no text in /usr/include/c++, {} or /usr/share/common-licenses: give --data FILE",
      manual.string());
}

RunKind parse_kind(const std::string& text) {
  if (const auto kind = enum_named<RunKind>(text)) return *kind;
  fail<ConfigError>(
      "{}: expected quickstart, pretrain, continue, finetune, lora, qlora, dpo, reward, grpo, rloo, ppo or gkd{}", text,
      did_you_mean(text, enum_names<RunKind>()));
}

/// The answer to a question, or the one in brackets if it is empty.
std::string ask(const std::string& question, const std::string& otherwise) {
  const std::string hint = otherwise.empty() ? "" : fmt::format(" [{}]", otherwise);
  for (std::string line;;) {
    fmt::print(stderr, "{}{}: ", question, hint);
    require<IoError>(static_cast<bool>(std::getline(std::cin, line)),
                     "the input ended before all questions were answered");
    if (line.empty()) line = otherwise;
    if (!line.empty()) return line;
  }
}

class Questions {
 public:
  explicit Questions(const InitFlags& flags) : flags_(flags), asks_(isatty(STDIN_FILENO) != 0) {}

  InitAnswers answers() const {
    InitAnswers answers;
    answers.kind = parse_kind(
        value(flags_.kind, "KIND",
              "What to do: quickstart, pretrain, continue, finetune, lora, qlora, dpo, reward, grpo, rloo, ppo or gkd",
              "finetune"));
    answers.run_file = flags_.run_file.empty() ? "run.json" : flags_.run_file;
    const bool has_model = !has_random_weights(answers.kind);
    const std::string model = has_model ? value(flags_.model, "--model", "The folder of the model", "") : "";
    const std::vector<std::string> data = data_for(answers.kind);
    for (const std::string& path : data) answers.data.push_back(relative_to_run_file(path, answers.run_file));
    take_others(answers);
    std::string tokenizer = flags_.tokenizer.empty() ? "bytes" : flags_.tokenizer;
    fs::path folder;
    if (has_model) {
      folder = find_model(model).folder;
      answers.model = relative_to_run_file(model, answers.run_file);
      answers.seq_length = length_of(folder);
      if (const auto config = ModelConfig::from_folder(folder); config.experts)
        answers.targets = attention_layers(config);
      tokenizer = holds_tokenizer(folder) ? folder.string() : "bytes";
    } else {
      answers.vocab_size = make_tokenizer(tokenizer)->vocab_size();
      answers.tokenizer = tokenizer == "bytes" ? tokenizer : relative_to_run_file(tokenizer, answers.run_file);
    }
    if (answers.kind == RunKind::quickstart) answers.seq_length = 256;
    answers.length_given = flags_.seq_length.has_value();
    if (flags_.seq_length) answers.seq_length = *flags_.seq_length;
    require<ConfigError>(answers.seq_length >= 1, "--seq-length must be at least 1, got {}", answers.seq_length);
    answers.output_dir =
        flags_.output.empty() ? fmt::format("out/{}", fs::path(answers.run_file).stem().string()) : flags_.output;
    answers.ranks = flags_.ranks.value_or(1);
    require<ConfigError>(answers.ranks >= 1, "--ranks must be at least 1, got {}", answers.ranks);
    const SourcePlan source{data};
    DataPlan plan;
    plan.sources = {source};
    plan.tokenizer = tokenizer;
    return suit_to_data(std::move(answers), plan, folder);
  }

 private:
  std::vector<std::string> data_for(RunKind kind) const {
    if (!flags_.data.empty()) return flags_.data;
    if (kind == RunKind::quickstart) return {text_of_machine()};
    return {value("", "--data", "Files of text or JSON lines (a path, or a glob)", "")};
  }
  /// Models beside the one that is trained.
  void take_others(InitAnswers& answers) const {
    const std::string& judge = flags_.reward_model;
    require<ConfigError>(judge.empty() || answers.kind == RunKind::ppo,
                         "--reward-model: only ppo has one: leave it out");
    require<ConfigError>(flags_.teacher.empty() || answers.kind == RunKind::gkd,
                         "--teacher: only gkd has one: leave it out");
    if (!judge.empty()) answers.reward_model = relative_to_run_file(judge, answers.run_file);
    if (answers.kind == RunKind::gkd)
      answers.teacher =
          relative_to_run_file(value(flags_.teacher, "--teacher", "The folder of the teacher", ""), answers.run_file);
  }
  std::string value(const std::string& given, const char* flag, const std::string& question,
                    const std::string& otherwise) const {
    if (!given.empty()) return given;
    require<ConfigError>(asks_, "{} is missing: give it, or call nought init at a terminal, where it asks", flag);
    return ask(question, otherwise);
  }

  /// Sequences as long as the model takes, but not longer than most documents are.
  static int64_t length_of(const fs::path& model) {
    constexpr int64_t kUsual = 1024;
    return std::min(kUsual, ModelConfig::from_folder(model).max_positions);
  }

  const InitFlags& flags_;
  const bool asks_;
};

/// A file that may be written, in a folder that is there.
void write_run_file(const std::string& file, const std::string& text) {
  if (const fs::path folder = fs::path(file).parent_path(); !folder.empty()) {
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    require<IoError>(fs::is_directory(folder), "{}: cannot create the folder", folder.string());
  }
  write_text_atomically(file, text);
}

AlignmentMethod method_of(RunKind kind) {
  if (learns_rewards(kind) || kind == RunKind::gkd) return *enum_named<AlignmentMethod>(enum_name(kind));
  return kind == RunKind::dpo ? AlignmentMethod::dpo : AlignmentMethod::reward;
}

/// A run of another program. Where its file does not say what is learned, the kind does; without a kind the first word
/// is the new file.
int init_from(const InitFlags& flags) {
  const auto kind = enum_named<RunKind>(flags.kind);
  require<ConfigError>(kind || flags.run_file.empty(), "{}: expected a kind in front of {}, or no kind{}", flags.kind,
                       flags.run_file, did_you_mean(flags.kind, enum_names<RunKind>()));
  require<ConfigError>(flags.tokenizer.empty() && flags.reward_model.empty() && flags.teacher.empty(),
                       "--tokenizer, --reward-model and --teacher do not go with --from: edit the file that it writes");
  const std::string& named = kind ? flags.run_file : flags.kind;
  const std::string file = named.empty() ? "run.json" : named;
  std::error_code ignored;
  require<ConfigError>(flags.force || !fs::exists(file, ignored), "{}: is there already: --force replaces it", file);
  const ForeignSettings settings = read_foreign_settings(flags.from);
  ForeignChoices choices;
  choices.model = flags.model, choices.output_dir = flags.output, choices.data = flags.data;
  choices.seq_length = flags.seq_length.value_or(0), choices.ranks = flags.ranks.value_or(0);
  if (kind && learns_answers(*kind)) choices.method = enum_name(method_of(*kind));
  const TranslatedRun run = translate_run(settings, choices);
  write_run_file(file, foreign_run_text(run, settings, file));
  fmt::print("{}", foreign_run_report(run, settings, file));
  return 0;
}

int run_init(const InitFlags& flags) {
  if (!flags.from.empty()) return init_from(flags);
  const std::string file = flags.run_file.empty() ? "run.json" : flags.run_file;
  std::error_code ignored;
  require<ConfigError>(!flags.output.ends_with(".json"),
                       "--output {} is training.output_dir, the folder of the run; the file to write stands behind the "
                       "kind: nought init {} {}",
                       flags.output, flags.kind.empty() ? "finetune" : flags.kind, flags.output);
  require<ConfigError>(flags.force || !fs::exists(file, ignored), "{}: is there already: --force replaces it", file);
  const InitAnswers answers = Questions(flags).answers();
  write_run_file(file, run_file_text(answers));
  fmt::print("{}: written; next: nought check {} --ranks {}\n", file, file, answers.ranks);
  return 0;
}

}  // namespace

namespace {

/// How conversations are to be written, and the markers that the tokenizer gets for that.
void choose_template(InitAnswers& answers, DataPlan& data) {
  const auto tokenizer = make_tokenizer(data.tokenizer);
  std::optional<ChatSource> source;
  try {
    source = chat_source_for("", data.tokenizer, *tokenizer);
  } catch (const ConfigError&) {  // a base model: nothing says how it was talked with
    answers.chat_template = "chatml";
    source = chat_source(ChatFormat::chatml, *tokenizer);
  }
  const ChatTemplate chat(*source, *tokenizer);
  for (const std::vector<std::string>& markers : {chat.refused_markers(), chat.missing_markers()})
    for (const std::string& marker : markers)
      if (std::count(answers.add_special_tokens.begin(), answers.add_special_tokens.end(), marker) == 0)
        answers.add_special_tokens.push_back(marker);
  data.chat_template = answers.chat_template;
  data.add_special_tokens = answers.add_special_tokens;
}

CorpusFormat format_of(RunKind kind) {
  if (kind == RunKind::gkd) return CorpusFormat::completions;
  return learns_rewards(kind) ? CorpusFormat::prompts : CorpusFormat::preference;
}

/// Whether prompts and answers are messages, by the first of each file.
bool has_messages(const DataPlan& data, CorpusFormat format) {
  for (const SourcePlan& source : data.sources)
    for (const fs::path& file : expand_data_files(source.files))
      if (corpus_kind(file, TextBeginning(file).text(), {.format = format}).form) return true;
  return false;
}

/// Shorter sequences where the data has too few tokens for so many as an update takes, but of conversations never
/// shorter than nearly all of them are.
int64_t length_for(const RunData& whole, int64_t most) {
  constexpr int64_t kLeast = 32, kSamples = 17;  // an update's, and one to validate with
  int64_t length = most;
  while (length / 2 >= kLeast && (whole.training.num_tokens() - 1) / length < kSamples) length /= 2;
  const int64_t whole_chats = whole.training.conversation_lengths().most_of_99;
  return whole_chats > length ? std::min(most, ceil_div(whole_chats, kLeast) * kLeast) : length;
}

}  // namespace

InitAnswers suit_to_data(InitAnswers answers, const DataPlan& given, const fs::path& model) {
  RunPlan run;
  run.data = given, run.layout.seq_length = answers.seq_length;
  constexpr int64_t kLook = int64_t{8} << 20;
  const bool of_answers = learns_answers(answers.kind);
  if (of_answers) run.alignment.method = method_of(answers.kind), run.data.format = format_of(answers.kind);
  if (learns_rewards(answers.kind) || answers.kind == RunKind::gkd)
    run.alignment.policy_loss.max_completion_length = answers.seq_length / 2;
  if (answers.kind == RunKind::gkd) run.alignment.distillation.emplace();
  if (of_answers ? has_messages(given, *run.data.format) : learns_chats(answers.kind))
    choose_template(answers, run.data);
  const auto tokenizer = tokenizer_of(run.data);
  const DataLook look = look_at_data(run, *tokenizer, kLook);
  if (!model.empty()) answers.resize_vocab = tokenizer->vocab_size() > ModelConfig::from_folder(model).vocab_size;
  require<ConfigError>(!has_adapter(answers.kind) || !answers.resize_vocab,
                       "{}: the tokenizer lacks the markers of a chat template ({}), for which the embedding would get "
                       "rows that an adapter does not train yet: take a model that was trained on chats, or finetune",
                       enum_name(answers.kind), fmt::join(answers.add_special_tokens, ", "));
  // A first run of a minute would be validated for another one.
  if (learns_rewards(answers.kind) || answers.kind == RunKind::quickstart) answers.validation_fraction = 0;
  if (!look.whole) return answers;
  if (!answers.length_given && !of_answers) answers.seq_length = length_for(*look.whole, answers.seq_length);
  answers.samples = of_answers ? look.whole->pairs->num_pairs()
                               : std::max<int64_t>(0, look.whole->training.num_tokens() - 1) / answers.seq_length;
  require<ConfigError>(answers.samples > 0, "--data has {} tokens, less than one sequence of {}: give more data{}",
                       look.whole->training.num_tokens(), answers.seq_length,
                       answers.length_given ? ", or a smaller --seq-length" : "");
  const auto samples = static_cast<double>(answers.samples);
  if (answers.samples <= answers.ranks) answers.validation_fraction = 0;
  if (answers.validation_fraction > 0 && std::llround(answers.validation_fraction * samples) < 1)
    answers.validation_fraction = std::ceil(1000 / samples) / 1000;
  return answers;
}

std::string relative_to_run_file(const std::string& path, const std::string& run_file) {
  const fs::path folder = fs::path(run_file).parent_path();
  if (folder.empty() || fs::path(path).is_absolute()) return path;
  fs::path begin;  // the folder in which a pattern begins to look
  for (const fs::path& part : fs::path(path)) {
    if (part.string().find_first_of("*?[") != std::string::npos) break;
    begin /= part;
  }
  std::error_code ignored;
  if (!begin.empty() && !fs::exists(begin, ignored)) return path;
  const fs::path here = fs::current_path();
  return (here / path).lexically_normal().lexically_relative((here / folder).lexically_normal()).string();
}

void add_init(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "init", "Writes a RUN.json with comments, from flags or from answers",
      {"nought init", "nought init quickstart", "nought init finetune --model MODEL_DIR --data chats.jsonl --ranks 2",
       "nought init lora --model MODEL_DIR --data chats.jsonl",
       "nought init qlora --model MODEL_DIR --data chats.jsonl", "nought init dpo --model MODEL_DIR --data pairs.jsonl",
       "nought init continue books.json --model MODEL_DIR --data 'books/**/*.txt' --output out/books",
       "nought init pretrain --data 'src/**/*.cpp' --tokenizer TOKENIZER_DIR --force",
       "nought init --from training_args.json --data chats.jsonl", "nought init dpo --from trl.yaml run.json",
       "nought init --from axolotl.yml run.json", "nought init --from train.sh run.json"});
  const auto flags = std::make_shared<InitFlags>();
  command->add_option(
      "KIND", flags->kind,
      "quickstart (pretrain, on text of this machine), pretrain (from random weights), continue (plain text), finetune "
      "(conversations, instructions), lora (the same "
      "by an adapter), qlora (by one on a model in 4 bits), dpo or reward (chosen and rejected answers), grpo, rloo or "
      "ppo (prompts, whose answers rewards judge), or gkd (answers that a larger model teaches)");
  command->add_option("RUN.json", flags->run_file, "The file to write; default: run.json");
  command
      ->add_option("--from", flags->from,
                   "A run of another program: TrainingArguments as JSON or YAML, a YAML of axolotl or "
                   "LLaMA-Factory, or a script with its command line (deepspeed, accelerate launch, torchrun)")
      ->type_name("FILE");
  command->add_option("--model", flags->model, "The model's folder; pretrain has none")->type_name("MODEL_DIR");
  command->add_option("--data", flags->data, "A file or glob to train on; may be given several times")
      ->type_name("FILE")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--reward-model", flags->reward_model,
                   "ppo: the folder of a model that scores answers; default: a rule")
      ->type_name("DIR");
  command->add_option("--teacher", flags->teacher, "gkd: the folder of the teacher")->type_name("DIR");
  command->add_option("--tokenizer", flags->tokenizer, "pretrain: a tokenizer's path; default: bytes")
      ->type_name("NAME");
  command
      ->add_option("--seq-length", flags->seq_length,
                   "Tokens per sequence; default: the model's, at most 1024, or what little data allows")
      ->type_name("N");
  command->add_option("--output", flags->output, "training.output_dir; default: out/ and the file's name")
      ->type_name("DIR");
  command->add_option("--ranks", flags->ranks, "Number of processes of the run, for its batch")->type_name("N");
  command->add_flag("--force", flags->force, "Replace the file if it is there");
  command->callback([&invocation, flags] { invocation.action = [flags] { return run_init(*flags); }; });
}

}  // namespace nought
