// Everything that resolve() settles but the mesh (resolve_mesh.cpp), the precision (resolve_precision.cpp), the
// optimizer (resolve_optimizer.cpp), the length of the run and its schedule (resolve_schedule.cpp), its checkpoints and
// samples (resolve_saving.cpp), what is computed again (resolve_recompute.cpp).
#include <cmath>

#include <fmt/ranges.h>

#include "nought/config/resolver.h"

namespace nought {

namespace {

constexpr int64_t kLargestCount = 1'000'000;  // of ranks, sequences and micro-batches: their product fits an int64

template <class T>
Auto<T> as_auto(const Setting<T>& setting) {
  return {setting.value, setting.given ? Auto<T>::State::given : Auto<T>::State::unset};
}

void require_count(const Candidate<int64_t>& count) {
  require<ConfigError>(1 <= count.value && count.value <= kLargestCount, "{}: expected 1 to {}, got {}", count.place,
                       kLargestCount, count.value);
}

}  // namespace

int64_t model_number(const Json& model, std::initializer_list<const char*> keys) {
  if (!model.is_object()) return 0;
  for (const char* key : keys)
    if (const auto it = model.find(key); it != model.end() && it->is_number_integer()) return it->get<int64_t>();
  return 0;
}

Resolver::Resolver(const RunConfig& config, int world_size, const AutoBf16& automatic)
    : config_(config), automatic_bf16_(automatic), origins_(config.origins) {
  require<ConfigError>(1 <= world_size && world_size <= kLargestCount, "world size: expected 1 to {} ranks, got {}",
                       kLargestCount, world_size);
  plan_.layout.ranks = world_size;
  if (config.on_gpu) plan_.layout.gpu.emplace();
  plan_.config_files = origins_.files();
  plan_.warnings = config.warnings;
  if (config.accelerate_processes > 0 && config.accelerate_processes != world_size)
    warn(fmt::format("{}: num_processes = {}, but the run has {}: --ranks decides", origins_.place("deepspeed"),
                     config.accelerate_processes, world_size));
  ds_ = read_ds_config(config.deepspeed, origins_, plan_.warnings, config.on_gpu);
}

RunPlan Resolver::run() {
  resolve_mesh();
  resolve_model();
  resolve_data();
  resolve_batch();
  check_pipeline();
  check_context();
  resolve_precision();
  resolve_zero();
  resolve_optimizer();
  resolve_unit_tiles();
  resolve_masters();
  resolve_length();
  resolve_schedule();
  resolve_output();
  resolve_comm_hook();
  check_compression();
  resolve_local_steps();
  resolve_async();
  explain_automatic_buckets();
  return std::move(plan_);
}

void Resolver::resolve_model() {
  if (config_.model.is_null()) return;
  const std::string reason = origins_.is_override("model") ? "--set model" : "model";
  if (config_.model.is_string()) {
    plan_.model_dir = config_.model.get<std::string>();
    require<ConfigError>(!plan_.model_dir.empty(), "{}: expected a folder's path, found \"\"", origins_.place("model"));
    plan_.resolved.push_back({"model", plan_.model_dir, reason});
  } else {
    plan_.model_config = config_.model;
    const std::string family = config_.model.value("model_type", Json("?")).dump();
    plan_.resolved.push_back({"model", fmt::format("inline, model_type {}", family), reason});
  }
}

void Resolver::resolve_data() {
  resolve_sources();
  const DataConfig& data = config_.data;
  auto tokenizer = section_value("data.tokenizer", data.tokenizer);
  if (!tokenizer.given) {
    tokenizer.value = plan_.model_dir.empty() ? "bytes" : plan_.model_dir;
    tokenizer.reason = plan_.model_dir.empty() ? "default for an inline model" : "the model's folder";
  }
  plan_.data.tokenizer = note("data.tokenizer", tokenizer);
  plan_.data.add_special_tokens = data.add_special_tokens.value;
  if (!plan_.data.add_special_tokens.empty())
    plan_.resolved.push_back({"data.add_special_tokens",
                              fmt::format("{}", fmt::join(data.add_special_tokens.value, ", ")),
                              section_value("data.add_special_tokens", true, true).reason});
  const auto parses = section_value("data.parse_special_tokens", data.parse_special_tokens);
  plan_.data.parse_special_tokens = parses.value;
  if (parses.given) note("data.parse_special_tokens", parses);
  const auto resizes = training("resize_vocab", config_.training.resize_vocab);
  plan_.resize_vocab = resizes.value;
  if (resizes.given) note("resize_vocab", resizes);

  auto length = section_value("data.seq_length", data.seq_length);
  if (!length.given) {
    length.value = model_number(config_.model, {"max_position_embeddings", "n_positions"});
    length.reason = kModelLength;
  }
  if (length.given || length.value > 0) {
    require_count(length);
    plan_.data.seq_length = note("data.seq_length", length);
  }
  const auto fraction = section_value("data.validation_fraction", data.validation_fraction);
  require_fraction(fraction);
  plan_.data.validation_fraction = note("data.validation_fraction", fraction);
  require<ConfigError>(fraction.value == 0 || data.validation_files.value.empty(),
                       "{} = {} and data.validation_files are both given: choose one", fraction.place, fraction.value);
  plan_.data.validation_files = data.validation_files.value;
  if (data.format.given()) {
    plan_.data.format = data.format.value;
    note("data.format", section_value("data.format", enum_name(data.format.value), true));
  }
  if (data.chat_template.given())
    plan_.data.chat_template =
        note("data.chat_template", section_value("data.chat_template", data.chat_template.value, true));
  if (data.field.given) plan_.data.field = note("data.field", section_value("data.field", data.field));
  plan_.data.separate_documents =
      note("data.separate_documents", section_value("data.separate_documents", data.separate_documents));
}

void Resolver::resolve_sources() {
  const DataConfig& data = config_.data;
  const std::vector<SourceConfig>& sources = data.sources.value;
  require<ConfigError>(data.files.empty() || sources.empty(),
                       "{} and data.sources are both given: write the files as one of the sources",
                       origins_.place("data.files"));
  const auto add = [&](const std::string& key, const std::vector<std::string>& files, double weight) {
    plan_.data.sources.push_back({files, weight});
    const std::string share = weight > 0 ? fmt::format("{} x ", weight) : "";
    plan_.resolved.push_back({key, share + fmt::format("{}", fmt::join(files, ", ")), key});
  };
  if (!data.files.empty()) add("data.files", data.files, 0);
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceConfig& source = sources[i];
    const std::string key = fmt::format("data.sources[{}]", i), place = origins_.place(key);
    require<ConfigError>(!source.files.empty(), "{}.files is empty: expected a list of paths or globs", place);
    require<ConfigError>(source.weight.given == sources[0].weight.given,
                         "{}: give all of data.sources a weight, or none", place);
    require<ConfigError>(!source.weight.given || (std::isfinite(source.weight.value) && source.weight.value > 0),
                         "{}.weight: expected a finite number > 0, got {}", place, source.weight.value);
    add(key, source.files, source.weight.value);
  }
}

void Resolver::resolve_batch() {
  const TrainingConfig& t = config_.training;
  const auto one = [&](const std::string& key, const Auto<int64_t>& ds, const Candidate<int64_t>& argument) {
    std::optional<Candidate<int64_t>> result = merge(key, ds, argument);
    if (!result->given) result.reset();
    if (result) require_count(*result);
    return result;
  };
  const auto micro = one("train_micro_batch_size_per_gpu", ds_.train_micro_batch_size_per_gpu,
                         training("per_device_train_batch_size", t.per_device_train_batch_size));
  const auto steps = one("gradient_accumulation_steps", ds_.gradient_accumulation_steps,
                         training("gradient_accumulation_steps", t.gradient_accumulation_steps));
  if (ds_.train_batch_size.given()) {
    const auto total = deepspeed("train_batch_size", ds_.train_batch_size.value);
    require_at_least<int64_t>(total, 1);
    derive_batch_from_total(total, micro, steps);
  } else {
    derive_batch_without_total(micro, steps);
  }
}

void Resolver::derive_batch_without_total(std::optional<Candidate<int64_t>> micro,
                                          std::optional<Candidate<int64_t>> steps) {
  const TrainingConfig& t = config_.training;
  if (!micro && ds_.gradient_accumulation_steps.given() && !ds_.train_batch_size.automatic())
    fail<ConfigError>("{}: alone it does not give the batch; add train_micro_batch_size_per_gpu or train_batch_size",
                      steps->place);
  if (!micro) micro = training("per_device_train_batch_size", t.per_device_train_batch_size);
  if (!steps) steps = training("gradient_accumulation_steps", t.gradient_accumulation_steps);
  const std::string product = fmt::format("micro_batch x accumulation x {}", data_name("world_size"));
  set_batch(*micro, *steps, ds_.train_batch_size.automatic() ? fmt::format("deepspeed: auto <- {}", product) : product);
}

void Resolver::derive_batch_from_total(const Candidate<int64_t>& total, const std::optional<Candidate<int64_t>>& micro,
                                       const std::optional<Candidate<int64_t>>& steps) {
  const int64_t world = plan_.layout.data_ranks();
  const std::string world_name = data_name("world size");
  const char* micro_name = "train_micro_batch_size_per_gpu";
  const char* steps_name = "gradient_accumulation_steps";
  if (micro && steps) {
    const int64_t product = micro->value * steps->value * world;
    require<ConfigError>(total.value == product, "{}: train_batch_size {} != {} {} x {} {} x {} {} = {}", total.place,
                         total.value, micro_name, micro->value, steps_name, steps->value, world_name, world, product);
    return set_batch(*micro, *steps, total.reason);
  }
  const int64_t known = micro ? micro->value : steps ? steps->value : 1;
  const char* known_name = micro ? micro_name : steps_name;
  require<ConfigError>(total.value % (known * world) == 0,
                       "{}: train_batch_size {} is not divisible by {} {} x {} {} = {}", total.place, total.value,
                       known_name, known, world_name, world, known * world);
  Candidate<int64_t> derived{total.value / (known * world), true, total.place, ""};
  require_count(derived);
  derived.reason =
      fmt::format("train_batch_size / ({} x {})", micro ? "micro_batch" : "accumulation", data_name("world_size"));
  const Candidate<int64_t> one{1, false, "", "train_batch_size is given alone"};
  set_batch(micro ? *micro : derived, micro ? derived : steps ? *steps : one, total.reason);
}

void Resolver::set_batch(const Candidate<int64_t>& micro, const Candidate<int64_t>& steps,
                         const std::string& total_reason) {
  const int64_t total = micro.value * steps.value * plan_.layout.data_ranks();
  plan_.resolved.push_back({"world_size", fmt::format("{}", plan_.layout.ranks), "the number of ranks"});
  if (plan_.layout.on_gpu()) plan_.resolved.push_back({"device", "cuda", "--device"});
  plan_.layout.micro_batch = note("micro_batch", micro);
  plan_.layout.accumulation = note("accumulation", steps);
  plan_.train_batch = note("train_batch", Candidate<int64_t>{total, true, "", total_reason});
}

void Resolver::resolve_zero() {
  const DsZero& zero = ds_.zero_optimization;
  const auto stage = section_value("deepspeed.zero_optimization.stage", zero.stage);
  require<ConfigError>(0 <= stage.value && stage.value <= 3, "{}: expected 0, 1, 2 or 3, got {}", stage.place,
                       stage.value);
  plan_.layout.zero_stage = note("zero_stage", stage);

  Candidate<bool> overlap{true, false, "", "default"};
  if (zero.overlap_comm.given()) overlap = deepspeed("zero_optimization.overlap_comm", zero.overlap_comm.value);
  plan_.layout.sharding.overlap = note("overlap_comm", overlap);
  resolve_buckets();
  resolve_offload_param();
  resolve_zeropp();
  resolve_offload();
  resolve_recompute();
  resolve_experts();
  resolve_token_codes();
}

void Resolver::resolve_experts() {
  const TrainingConfig& t = config_.training;
  if (!t.moe_capacity_factor.given) {
    if (t.moe_drop_tokens.given)
      warn(fmt::format("{} has no effect without training.moe_capacity_factor",
                       origins_.place("training.moe_drop_tokens")));
    return;
  }
  const auto factor = training("moe_capacity_factor", t.moe_capacity_factor);
  require<ConfigError>(std::isfinite(factor.value) && factor.value > 0, "{}: expected a finite number > 0, got {}",
                       factor.place, factor.value);
  plan_.moe_capacity_factor = note("moe_capacity_factor", factor);
  plan_.moe_drop_tokens = note("moe_drop_tokens", training("moe_drop_tokens", t.moe_drop_tokens));
}

void Resolver::resolve_output() {
  const TrainingConfig& t = config_.training;
  const auto seed = merge("seed", as_auto(ds_.seed), training("seed", t.seed));
  require_at_least<int64_t>(seed, 0);
  plan_.seed = plan_.layout.sharding.optimizer.seed = static_cast<uint64_t>(note("seed", seed));

  auto logging = training("logging_steps", t.logging_steps);
  if (ds_.steps_per_print.given && !logging.given)
    logging = deepspeed("steps_per_print", ds_.steps_per_print.value);
  else if (ds_.steps_per_print.given && ds_.steps_per_print.value != logging.value)
    warn(fmt::format("{} = {} has no effect: {} = {} is given", origins_.place("deepspeed.steps_per_print"),
                     ds_.steps_per_print.value, logging.place, logging.value));
  require_at_least<int64_t>(logging, 1);
  plan_.logging_steps = note("logging_steps", logging);

  resolve_evaluation();
  resolve_saving();
  plan_.on_nonfinite = t.on_nonfinite.value;
  resolve_collectives();
  resolve_checks();
  resolve_delayed_update();
  resolve_early_update();
  resolve_gradient_home();
  resolve_aio(/*to_files=*/plan_.layout.sharding.offload_optimizer.tier.pool == Pool::file ||
              plan_.layout.sharding.offload_param.tier.pool == Pool::file);
  const auto budget = training("device_memory", t.device_memory);
  if (budget.given) plan_.device_memory = parse_bytes(note("device_memory", budget), budget.place);
  const auto ram = training("host_memory", t.host_memory);
  if (ram.given) plan_.host_memory = parse_bytes(note("host_memory", ram), ram.place);
  const auto shard = training("max_shard_size", t.max_shard_size);
  plan_.max_shard_bytes = parse_bytes(note("max_shard_size", shard), shard.place);
  require<ConfigError>(plan_.max_shard_bytes > 0, "{}: a file of 0 bytes holds no weights", shard.place);
  const auto folder = training("output_dir", t.output_dir);
  require<ConfigError>(!folder.value.empty(), "{}: expected a folder's path, found \"\"", folder.place);
  plan_.output_dir = note("output_dir", folder);
  resolve_reports();
  plan_.dump_state = ds_.dump_state.value;
  plan_.memory_breakdown = ds_.memory_breakdown.value;
  plan_.wall_clock_breakdown = ds_.wall_clock_breakdown.value;
  plan_.comms_logger = ds_.comms_logger.enabled.value;
  plan_.comms_logger_verbose = ds_.comms_logger.verbose.value;
  if (!ds_.comms_logger.prof_all.value) plan_.logged_collectives = ds_.comms_logger.prof_ops.value;
  resolve_profile();
  plan_.tensorboard_dir = resolve_monitor("tensorboard", ds_.tensorboard);
  plan_.csv_dir = resolve_monitor("csv_monitor", ds_.csv_monitor);
}

void Resolver::resolve_profile() {
  const DsFlopsProfiler& profiler = ds_.flops_profiler;
  if (!profiler.enabled.value) return;
  const std::string path = "deepspeed.flops_profiler.";
  const auto at_least = [&](const char* key, const Setting<int64_t>& setting, int64_t least) {
    const auto candidate = section_value(path + key, setting);
    require_at_least(candidate, least);
    return candidate.value;
  };
  ProfileOptions options{.step = at_least("profile_step", profiler.profile_step, 1),
                         .module_depth = at_least("module_depth", profiler.module_depth, -1),
                         .top_modules = at_least("top_modules", profiler.top_modules, 1),
                         .detailed = profiler.detailed.value,
                         .output_file = profiler.output_file.value,
                         .recompute_factor = profiler.recompute_fwd_factor.value};
  require_finite_at_least_zero(section_value(path + "recompute_fwd_factor", profiler.recompute_fwd_factor));
  require<ConfigError>(!profiler.output_file.given || !options.output_file.empty(),
                       "{}: expected a file's path, or null to print the profile, found \"\"",
                       origins_.place(path + "output_file"));
  note("profile_step", section_value(path + "profile_step", profiler.profile_step));
  plan_.profile = std::move(options);
}

void Resolver::resolve_evaluation() {
  const TrainingConfig& t = config_.training;
  const auto strategy = training("eval_strategy", t.eval_strategy);
  plan_.eval_strategy = strategy.value;
  plan_.resolved.push_back({"eval_strategy", std::string(enum_name(strategy.value)), strategy.reason});
  require<ConfigError>(strategy.value == EvalStrategy::no || plan_.data.validates(),
                       "{} = \"{}\" needs data to validate with: give data.validation_fraction or "
                       "data.validation_files",
                       strategy.place, enum_name(strategy.value));
  auto steps = training("eval_steps", t.eval_steps);
  if (!steps.given) steps = {plan_.logging_steps, false, "", "logging_steps"};
  require_at_least<int64_t>(steps, 1);
  if (strategy.value == EvalStrategy::steps) plan_.eval_steps = note("eval_steps", steps);
  auto rows = training("per_device_eval_batch_size", t.per_device_eval_batch_size);
  plan_.eval_follows = !rows.given;
  if (!rows.given) rows = {plan_.layout.micro_batch, false, "", "micro_batch"};
  require_count(rows);
  plan_.eval_micro_batch = note("eval_micro_batch", rows);
}

std::string Resolver::resolve_monitor(const std::string& section, const DsMonitor& monitor) {
  if (!monitor.enabled.value) return "";
  const std::string& path = monitor.output_path.value;
  const std::string folder = fmt::format("{}/{}", path.empty() ? plan_.output_dir : path, monitor.job_name.value);
  return note(section, deepspeed(section + ".output_path", folder));
}

RunPlan resolve(const RunConfig& config, int world_size, const AutoBf16& automatic) {
  return Resolver(config, world_size, automatic).run();
}

}  // namespace nought
