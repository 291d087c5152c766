#include "nought/train/validate_run.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/checkpoint/resume.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/models/classifier.h"
#include "nought/models/context_choice.h"
#include "nought/models/expert_spread.h"
#include "nought/models/tensor_cuts.h"
#include "nought/train/distil_run.h"
#include "nought/train/text_sample.h"
#include "nought/train/value_model.h"
#include "nought/weights/foreign_states.h"
#include "nought/weights/model_source.h"
#include "nought/zero/working_weights.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Creates the folder that `key` names, and tries to write to it.
void make_writable_folder(const char* key, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require<IoError>(!error, "cannot create {} {}: {}", key, folder.string(), error.message());
  require<IoError>(fs::is_directory(folder), "{} {} is not a folder", key, folder.string());
  const fs::path trial = folder / ".writable";
  const int file = open_file(trial, O_WRONLY | O_CREAT | O_TRUNC, 0644), reason = errno;
  require<IoError>(file >= 0, "{} {} is not writable: {}", key, folder.string(),
                   std::error_code(reason, std::generic_category()).message());
  ::close(file);
  fs::remove(trial, error);
}

/// Throws what make_writable_folder() would throw, and writes nothing.
void require_writable_folder(const char* key, const fs::path& folder) {
  std::error_code error;
  const auto writable = [](const fs::path& path) { return access(path.c_str(), W_OK | X_OK) == 0; };
  const auto system_error = [] { return std::error_code(errno, std::generic_category()).message(); };
  if (fs::is_directory(folder, error))
    return require<IoError>(writable(folder), "{} {} is not writable: {}", key, folder.string(), system_error());
  fs::path above = fs::absolute(folder);
  while (!fs::exists(fs::symlink_status(above, error)) && above.has_parent_path() && above != above.parent_path())
    above = above.parent_path();
  const bool is_folder = fs::is_directory(above, error);
  if (is_folder && writable(above)) return;
  const std::string reason = is_folder ? system_error() : std::make_error_code(std::errc::not_a_directory).message();
  fail<IoError>("cannot create {} {}: {}", key, folder.string(), reason);
}

/// Folders that a run writes to.
class Folders {
 public:
  explicit Folders(bool makes) : makes_(makes) {}
  void check(const char* key, const fs::path& folder) const {
    makes_ ? make_writable_folder(key, folder) : require_writable_folder(key, folder);
  }

 private:
  bool makes_;
};

/// A run that goes back would find the checkpoints that it left, and take them for its own the next time.
void check_nothing_later(const fs::path& point, const RunPlan& plan) {
  const std::vector<fs::path> others = checkpoints_of_others(point, plan.output_dir);
  require<ConfigError>(others.empty(),
                       "{} would be none of the run that continues {}: --overwrite removes it{}, --rewind STEP in "
                       "place of --resume STEP moves it aside, or choose another training.output_dir",
                       others.empty() ? "" : others.front().string(), point.string(),
                       others.size() > 1 ? fmt::format(" and {} more", others.size() - 1) : "");
}

void check_output_folder(const Folders& folders, const RunPlan& plan, StartMode mode) {
  const fs::path folder = plan.output_dir;
  folders.check("training.output_dir", folder);
  const std::vector<fs::path> checkpoints = list_checkpoints(folder);
  if (mode == StartMode::fresh)
    require<ConfigError>(checkpoints.empty(),
                         "{} is there from an earlier run: --resume continues it, --overwrite removes it, or choose "
                         "another training.output_dir",
                         checkpoints.empty() ? "" : checkpoints.back().string());
  if (resumes(mode)) {
    const fs::path point = resume_point(plan);
    if (mode == StartMode::resume) check_nothing_later(point, plan);
  }
}

/// A run that starts from a checkpoint in its own output folder would lose it before it is read.
void check_not_removed(const fs::path& model, const fs::path& output) {
  std::error_code ignored;
  for (const fs::path& checkpoint : list_checkpoints(output))
    require<ConfigError>(
        !fs::equivalent(model, checkpoint, ignored),
        "model is {}, which --overwrite removes and --rewind moves: choose another training.output_dir",
        checkpoint.string());
}

void check_profile_file(const Folders& folders, const fs::path& file) {
  if (file.empty()) return;
  require<IoError>(!fs::is_directory(file), "flops_profiler.output_file {} is a folder: name a file in it",
                   file.string());
  folders.check("the folder of flops_profiler.output_file,", fs::absolute(file).parent_path());
}

/// Folders of files without names. The last folder of such a path is made; where its parent is missing, a drive may not
/// be mounted.
void check_offload_folders(const Folders& folders, const RunPlan& plan) {
  const auto check = [&](const char* section, Pool tier, const fs::path& folder) {
    if (tier != Pool::file) return;
    const fs::path parent = fs::absolute(folder).lexically_normal().parent_path();
    require<IoError>(fs::is_directory(folder) || fs::is_directory(parent) ||
                         parent == fs::absolute(plan.output_dir).lexically_normal(),
                     "zero_optimization.{}.nvme_path {} is no folder: create it, or name another", section,
                     folder.string());
    folders.check(fmt::format("zero_optimization.{}.nvme_path", section).c_str(), folder);
  };
  check("offload_optimizer", plan.layout.sharding.offload_optimizer.tier.pool,
        plan.layout.sharding.offload_optimizer.tier.folder);
  check("offload_param", plan.layout.sharding.offload_param.tier.pool, plan.layout.sharding.offload_param.tier.folder);
}

/// The updates of an epoch of this data, and the rows of its steps. Throws what the Trainer's sampler would throw.
void look_at_steps(const RunPlan& plan, const RunData& data, RunInputs& inputs) {
  const BatchLayout layout{plan.layout.micro_batch, plan.layout.accumulation, plan.layout.data_ranks(), 0};
  if (plan.alignment.of_rewards()) {
    const PromptOrder order(*data.pairs, layout.train_batch() / plan.alignment.generations, plan.seed);
    inputs.steps_per_epoch = order.steps_for(1) * plan.alignment.iterations,
    inputs.row_tokens = layout.micro_batch * longest_answer(data, plan.alignment);
  } else if (plan.alignment.distillation) {
    inputs.steps_per_epoch = PromptOrder(*data.pairs, layout.train_batch(), plan.seed).steps_for(1);
    inputs.row_tokens = layout.micro_batch * longest_imitated(data, plan.alignment);
  } else if (data.pairs) {
    const AnswerSampler sampler(data.pairs, sampler_options(plan, inputs.config, layout));
    inputs.steps_per_epoch = sampler.steps_for(1), inputs.row_tokens = sampler.row_tokens();
  } else {
    inputs.steps_per_epoch = TrainSampler(data.training, layout, plan.seed).steps_for(1);
  }
}

/// What transformers does not score: the pad token of the folder, or else what ends documents, as TRL has it.
std::optional<int64_t> pad_token_of(const RunPlan& plan) {
  const std::optional<std::string> text = bytes_if_there(fs::path(plan.model_dir) / "config.json");
  const Json json = Json::parse(text.value_or("{}"), nullptr, false);
  const Json pad = json.is_object() ? json.value("pad_token_id", Json()) : Json();
  if (pad.is_number_integer()) return pad.get<int64_t>();
  const auto tokenizer = tokenizer_of(plan.data);
  return tokenizer->has_separator() ? std::optional<int64_t>(tokenizer->separator()) : std::nullopt;
}

ModelConfig classifier_of(const RunPlan& given, ModelConfig config) {
  const RunPlan plan = with_model_folder(given);
  const bool rewards = plan.alignment.method == AlignmentMethod::reward;
  const std::string source = plan.model_dir.empty() ? "model" : plan.model_dir;
  require<ConfigError>(config.causal || !rewards,
                       "{} is an encoder ({}), and alignment.method = reward is for decoders: take classify", source,
                       config.family);
  require<ConfigError>(config.causal || plan.layout.context_ranks == 1,
                       "cp_size, sp_size: the rows of an encoder ({}) are not cut over ranks: set it to 1",
                       config.family);
  require<ConfigError>(config.quantization.empty(), "{}: a classifier's head on quantised weights is not supported",
                       source);
  const std::optional<int64_t> pad = config.classifier ? std::nullopt : pad_token_of(plan);
  return with_classifier(std::move(config), rewards ? 1 : plan.alignment.labels, plan.alignment.problem, pad, source);
}

}  // namespace

ModelConfig model_config_of(const RunPlan& plan) {
  ModelConfig config = plan.model_dir.empty() ? ModelConfig::from_json(plan.model_config, "model")
                                              : ModelConfig::from_folder(with_model_folder(plan).model_dir);
  if (plan.alignment.of_scores()) {
    config = classifier_of(plan, std::move(config));
  } else {
    config.require_language_model(plan.model_dir.empty() ? "model" : plan.model_dir);
  }
  if (plan.resize_vocab)
    config.vocab_size = std::max(config.vocab_size, tokenizer_of(with_model_folder(plan).data)->vocab_size());
  require_cuttable(config, plan.layout.tensor_ranks, plan.layout.ranks);
  require_spreadable(config, plan.layout.expert_ranks, plan.layout.token_ranks() / plan.layout.replicas);
  if (plan.layout.context_method == ContextMethod::heads)
    require_heads_for(config, plan.layout.context_ranks, plan.layout.tensor_ranks, plan.layout.ranks);
  require_stages(plan, config);
  require<ConfigError>(
      plan.layout.recompute.mlp_tiles == 1 || config.has_mlp(),
      "training.tiled_mlp: every layer of this {} model is experts, whose products are not computed in "
      "tiles: remove it; training.recompute = \"full\" keeps nothing of them either",
      config.family);
  if (plan.adapts()) config = with_adapter(config, adapter_of(plan, config));
  if (plan.moe_quantized_dispatch) {
    require<ConfigError>(
        config.hidden_size % 4 == 0,
        "training.moe_quantized_dispatch: rows of {} elements cannot travel quantized to 8 bits, which take "
        "a multiple of 4: remove it",
        config.hidden_size);
    config.experts->quantized_dispatch = true;
  }
  if (plan.layout.sharding.virtual_ranks > 0) {
    require<ConfigError>(
        plan.layout.stages() == 1 || !config.tie_word_embeddings,
        "training.virtual_ranks: the two stages of a pipeline that read the tied embeddings of this {} "
        "model add up its gradients in another order than one: set pp_size to 1, or untie them",
        config.family);
    if (config.experts) config.experts->balances_by_rank = true;
  }
  if (plan.moe_capacity_factor == 0) return config;
  require<ConfigError>(config.experts.has_value(),
                       "training.moe_capacity_factor is {}, but a {} model has no experts: remove it",
                       plan.moe_capacity_factor, config.family);
  config.experts->capacity_factor = plan.moe_capacity_factor;
  config.experts->drop_tokens = plan.moe_drop_tokens;
  return config;
}

RunPlan resolve_run(const RunConfig& config, int world_size, StartMode mode) {
  const RunPlan plan = resolve(config, world_size);
  if (!resumes(mode) || !config.training.bf16.automatic()) return plan;
  const fs::path point = resume_point(plan);
  if (holds_foreign_run(point)) return plan;
  const Json run = read_checkpoint_info(point).run;
  const auto dtype = run.is_object() ? run.value("dtype", std::string()) : std::string();
  return resolve(config, world_size,
                 {dtype == name_of(DType::bf16), fmt::format("{} is in {}", point.string(), dtype)});
}

void require_same_virtual_ranks(const RunPlan& plan, const fs::path& checkpoint, const CheckpointInfo& info) {
  const int now = plan.layout.sharding.virtual_ranks;
  const int then = info.run.is_object() ? info.run.value("virtual_ranks", 0) : 0;
  require<ConfigError>(
      now == then,
      "training.virtual_ranks is {}, and {} is of a run with {}: go on with {}, or start a new run from "
      "its weights",
      now, checkpoint.string(), then, then);
}

std::vector<std::string> notes_on_inputs(const RunPlan& plan, const ModelConfig& config, const Tokenizer& tokenizer) {
  std::vector<std::string> notes;
  constexpr int64_t kLong = 4096;  // tokens that nobody minds without being asked
  for (const Resolved& row : plan.resolved) {
    if (row.key == "data.tokenizer" && row.reason.starts_with("default"))
      notes.push_back("data.tokenizer is not given: every byte is a token (\"bytes\")");
    if (row.key == "data.seq_length" && row.reason == kModelLength && plan.layout.seq_length > kLong)
      notes.push_back(fmt::format("data.seq_length is not given: sequences are as long as the model can, {} tokens",
                                  plan.layout.seq_length));
  }
  const int64_t spare = config.vocab_size - tokenizer.vocab_size();
  if (spare > 0)
    notes.push_back(fmt::format("the model has {} tokens and the tokenizer \"{}\" {}: no text gives the other {}",
                                config.vocab_size, tokenizer.name(), tokenizer.vocab_size(), spare));
  if (config.positions == PositionKind::rope && !config.rotates_by_row() &&
      plan.layout.seq_length > config.max_positions)
    notes.push_back(fmt::format("data.seq_length {} is beyond the {} positions that config.json says the model knows",
                                plan.layout.seq_length, config.max_positions));
  return notes;
}

/// The loss that balances experts is over all tokens that ranks read at once. Those of several micro-batches are
/// weighted by their targets, so that one without any is no part of it.
std::string note_on_balance(const RunPlan& plan, const RunInputs& inputs) {
  const auto& experts = inputs.config.experts;
  const bool counts = experts && experts->auxiliary_loss && experts->auxiliary_coefficient > 0;
  if (!counts || plan.alignment.of_answers() || !inputs.data.whole || inputs.data.whole->training.all_targets_count())
    return "";
  const TokenDataset& samples = inputs.data.whole->training;
  const int64_t at_once = plan.layout.sharding.virtual_ranks > 0 ? plan.layout.micro_batch
                                                                 : plan.layout.train_batch() / plan.layout.accumulation;
  int64_t without = 0;
  for (int64_t i = 0; i < samples.num_samples(); ++i) without += samples.num_targets(i) == 0 ? 1 : 0;
  if (plan.layout.accumulation == 1 || without < at_once) return "";
  return fmt::format(
      "{} of {} samples have no target: where that is so of all {} that ranks read at once, these are no part of the "
      "loss that balances experts; a longer data.seq_length leaves fewer of them",
      without, samples.num_samples(), at_once);
}

namespace {

/// Throws what a run would end with that continues there. Returns what it would say.
std::vector<std::string> check_resume_point(const fs::path& point, const RunPlan& plan, const Decoder& decoder) {
  if (holds_foreign_run(point)) return ForeignStates(point, decoder, plan.layout.sharding.optimizer).describe();
  const Checkpoint checkpoint(point, decoder);
  checkpoint.require_same_frozen(decoder);
  require_same_virtual_ranks(plan, point, checkpoint.info());
  return {};
}

/// What a run needs that learns from rewards of its own answers, or from a teacher.
void require_judges(const RunPlan& plan) {
  require<ConfigError>(!plan.alignment.distillation || !plan.alignment.teacher_model.empty(),
                       "alignment.method = gkd: nobody teaches: set alignment.teacher_model to the folder of a model");
  if (!plan.alignment.of_rewards()) return;
  const std::string method = fmt::format("alignment.method = {}", enum_name(plan.alignment.method));
  require<ConfigError>(
      !plan.alignment.rewards.empty(),
      "{}: nothing judges the answers: add {}alignment.reward_funcs, a list such as "
      "[{{\"type\": \"exact_match\", \"column\": \"answer\"}}]",
      method, plan.alignment.ppo ? "alignment.reward_model, the folder of a classifier with one label, or " : "");
}

/// Which layers compute with fewer bits or fewer weights: lines for the user. ConfigError for layers that can not.
std::vector<std::string> describe_compression(const Layout& layout, const Decoder& decoder) {
  const ModelConfig& config = decoder.config();
  require<ConfigError>(!layout.sharding.qat || config.weight_layout == WeightLayout::out_in,
                       "training.qat: {} models are not quantized: their matrices are [in, out]", config.family);
  std::vector<std::string> lines = describe_changed_weights(layout.sharding, decoder);
  const auto& inputs = layout.fp8.inputs;
  if (!inputs || layout.sharding.qat) return lines;
  const std::vector<std::vector<std::string>> layers = decoder.products()->layers_by_group();
  for (size_t i = 0; i < layers.size(); ++i)
    lines.push_back(fmt::format("activation_quantization {}: {}: {} layers, {} to {}", inputs->groups[i].name,
                                inputs->describe(inputs->groups[i]), layers[i].size(), layers[i].front(),
                                layers[i].back()));
  return lines;
}

}  // namespace

RunInputs validate_run(const RunPlan& given, StartMode mode, const ValidateOptions& options) {
  const RunPlan plan = with_model_folder(given);
  require_trainable(plan);
  require_judges(plan);
  RunInputs inputs{.config = model_config_of(plan)};
  inputs.config.require_loadable(plan.model_dir.empty() ? "model" : plan.model_dir);
  RecomputeOptions tiles;
  tiles.unit_tiles = plan.layout.recompute.unit_tiles;
  Decoder decoder(inputs.config, tiles, plan.layout.fp8);  // refuses more than a matrix has
  apply(plan.layout.freezing, decoder);
  inputs.compressed = describe_compression(plan.layout, decoder);
  inputs.parameters = decoder.parameter_count(), inputs.frozen = decoder.frozen_count();
  require_positions(plan, decoder);
  const auto tokenizer = tokenizer_of(plan.data);
  tokenizer->check_fits(inputs.config.vocab_size);
  if (plan.sample) check_sample(*plan.sample, *tokenizer, inputs.config);
  for (const RewardConfig& reward : plan.alignment.rewards)
    if (reward.type == RewardType::reward_model) check_reward_model(plan, reward, inputs.config.vocab_size, *tokenizer);
  if (plan.alignment.ppo) {
    check_value_model(plan, inputs.config.vocab_size, *tokenizer);
    const int64_t stop = plan.alignment.ppo->stop_token_id.value_or(0);
    require<ConfigError>(stop < inputs.config.vocab_size,
                         "alignment.stop_token_id is {}, and the vocabulary of the model has {} tokens", stop,
                         inputs.config.vocab_size);
  }
  if (plan.alignment.distillation) {
    check_teacher(plan, inputs.config.vocab_size);
    check_teacher_reads(plan, *tokenizer);
    decoder.require_temperature(plan.alignment.policy_loss.temperature);
  }
  inputs.tokenizer = tokenizer->name();
  inputs.data = look_at_data(plan, *tokenizer, options.text_bytes);
  if (inputs.data.whole) look_at_steps(plan, *inputs.data.whole, inputs);
  const Folders folders(options.makes_folders);
  check_output_folder(folders, plan, mode);
  if (mode != StartMode::fresh && mode != StartMode::resume) check_not_removed(plan.model_dir, plan.output_dir);
  if (plan.profile) check_profile_file(folders, plan.profile->output_file);
  check_offload_folders(folders, plan);
  if (!plan.report_dir.empty()) folders.check("training.logging_dir", plan.report_dir);
  if (!plan.tensorboard_dir.empty()) folders.check("the folder of tensorboard,", plan.tensorboard_dir);
  if (!plan.csv_dir.empty()) folders.check("the folder of csv_monitor,", plan.csv_dir);
  if (resumes(mode)) {
    inputs.notes = check_resume_point(resume_point(plan), plan, decoder);
  } else if (!plan.model_dir.empty()) {
    const ModelSource source(FoundModel{plan.model_dir});
    if (!plan.adapter_dir.empty()) AdapterWeights({{plan.adapter_dir}}, decoder, source.config(), source.weights());
  }
  inputs.notes.insert(inputs.notes.end(), inputs.config.notes.begin(), inputs.config.notes.end());
  const std::vector<std::string> own = notes_on_inputs(plan, inputs.config, *tokenizer);
  inputs.notes.insert(inputs.notes.end(), own.begin(), own.end());
  inputs.notes.insert(inputs.notes.end(), inputs.data.notes.begin(), inputs.data.notes.end());
  if (std::string note = note_on_balance(plan, inputs); !note.empty()) inputs.notes.push_back(std::move(note));
  return inputs;
}

}  // namespace nought
