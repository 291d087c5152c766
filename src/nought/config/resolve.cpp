// Everything that resolve() settles but the mesh (resolve_mesh.cpp), the precision (resolve_precision.cpp), the
// optimizer (resolve_optimizer.cpp), the length of the run and its schedule (resolve_schedule.cpp), its checkpoints and
// samples (resolve_saving.cpp), what is computed again (resolve_recompute.cpp).
#include <cmath>

#include <fmt/ranges.h>

#include "nought/config/resolve_steps.h"

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

void resolve_model(Resolver& r) {
  if (r.config.model.is_null()) return;
  const std::string reason = r.origins.is_override("model") ? "--set model" : "model";
  if (r.config.model.is_string()) {
    r.plan.model_dir = r.config.model.get<std::string>();
    require<ConfigError>(!r.plan.model_dir.empty(), "{}: expected a folder's path, found \"\"",
                         r.origins.place("model"));
    r.plan.resolved.push_back({"model", r.plan.model_dir, reason});
  } else {
    r.plan.model_config = r.config.model;
    const std::string family = r.config.model.value("model_type", Json("?")).dump();
    r.plan.resolved.push_back({"model", fmt::format("inline, model_type {}", family), reason});
  }
}

void resolve_sources(Resolver& r) {
  const DataConfig& data = r.config.data;
  const std::vector<SourceConfig>& sources = data.sources.value;
  require<ConfigError>(data.files.empty() || sources.empty(),
                       "{} and data.sources are both given: write the files as one of the sources",
                       r.origins.place("data.files"));
  const auto add = [&](const std::string& key, const std::vector<std::string>& files, double weight) {
    r.plan.data.sources.push_back({files, weight});
    const std::string share = weight > 0 ? fmt::format("{} x ", weight) : "";
    r.plan.resolved.push_back({key, share + fmt::format("{}", fmt::join(files, ", ")), key});
  };
  if (!data.files.empty()) add("data.files", data.files, 0);
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceConfig& source = sources[i];
    const std::string key = fmt::format("data.sources[{}]", i), place = r.origins.place(key);
    require<ConfigError>(!source.files.empty(), "{}.files is empty: expected a list of paths or globs", place);
    require<ConfigError>(source.weight.given == sources[0].weight.given,
                         "{}: give all of data.sources a weight, or none", place);
    require<ConfigError>(!source.weight.given || (std::isfinite(source.weight.value) && source.weight.value > 0),
                         "{}.weight: expected a finite number > 0, got {}", place, source.weight.value);
    add(key, source.files, source.weight.value);
  }
}

void resolve_data(Resolver& r) {
  resolve_sources(r);
  const DataConfig& data = r.config.data;
  auto tokenizer = r.section_value("data.tokenizer", data.tokenizer);
  if (!tokenizer.given) {
    tokenizer.value = r.plan.model_dir.empty() ? "bytes" : r.plan.model_dir;
    tokenizer.reason = r.plan.model_dir.empty() ? "default for an inline model" : "the model's folder";
  }
  r.plan.data.tokenizer = r.note("data.tokenizer", tokenizer);
  r.plan.data.add_special_tokens = data.add_special_tokens.value;
  if (!r.plan.data.add_special_tokens.empty())
    r.plan.resolved.push_back({"data.add_special_tokens",
                               fmt::format("{}", fmt::join(data.add_special_tokens.value, ", ")),
                               r.section_value("data.add_special_tokens", true, true).reason});
  const auto parses = r.section_value("data.parse_special_tokens", data.parse_special_tokens);
  r.plan.data.parse_special_tokens = parses.value;
  if (parses.given) r.note("data.parse_special_tokens", parses);
  const auto resizes = r.training("resize_vocab", r.config.training.resize_vocab);
  r.plan.resize_vocab = resizes.value;
  if (resizes.given) r.note("resize_vocab", resizes);

  auto length = r.section_value("data.seq_length", data.seq_length);
  if (r.plan.alignment.of_answers()) {
    length = length_of_answers(r, length);
    r.plan.alignment.length_given = length.given;
  } else if (!length.given) {
    length.value = model_number(r.config.model, {"max_position_embeddings", "n_positions"});
    length.reason = kModelLength;
  }
  if (length.given || length.value > 0) {
    require_count(length);
    r.plan.layout.seq_length = r.note("data.seq_length", length);
  }
  const auto fraction = r.section_value("data.validation_fraction", data.validation_fraction);
  require_fraction(fraction);
  r.plan.data.validation_fraction = r.note("data.validation_fraction", fraction);
  require<ConfigError>(fraction.value == 0 || data.validation_files.value.empty(),
                       "{} = {} and data.validation_files are both given: choose one", fraction.place, fraction.value);
  r.plan.data.validation_files = data.validation_files.value;
  if (r.plan.alignment.of_answers()) {
    check_pair_data(r);
  } else if (data.format.given()) {
    require<ConfigError>(!is_of_answers(data.format.value),
                         "{} = \"{}\": judged answers are for alignment.method dpo, orpo, cpo or kto",
                         r.origins.place("data.format"), enum_name(data.format.value));
    r.plan.data.format = data.format.value;
    r.note("data.format", r.section_value("data.format", enum_name(data.format.value), true));
  }
  if (data.chat_template.given())
    r.plan.data.chat_template =
        r.note("data.chat_template", r.section_value("data.chat_template", data.chat_template.value, true));
  if (data.field.given) r.plan.data.field = r.note("data.field", r.section_value("data.field", data.field));
  r.plan.data.separate_documents =
      r.note("data.separate_documents", r.section_value("data.separate_documents", data.separate_documents));
}

void set_batch(Resolver& r, const Candidate<int64_t>& micro, const Candidate<int64_t>& steps,
               const std::string& total_reason) {
  const int64_t total = micro.value * steps.value * r.plan.layout.data_ranks();
  r.plan.resolved.push_back({"world_size", fmt::format("{}", r.plan.layout.ranks), "the number of ranks"});
  if (r.plan.layout.on_gpu()) r.plan.resolved.push_back({"device", "cuda", "--device"});
  r.plan.layout.micro_batch = r.note("micro_batch", micro);
  r.plan.layout.accumulation = r.note("accumulation", steps);
  r.note("train_batch", Candidate<int64_t>{total, true, "", total_reason});
}

void derive_batch_without_total(Resolver& r, std::optional<Candidate<int64_t>> micro,
                                std::optional<Candidate<int64_t>> steps) {
  const TrainingConfig& t = r.config.training;
  if (!micro && r.ds.gradient_accumulation_steps.given() && !r.ds.train_batch_size.automatic())
    fail<ConfigError>("{}: alone it does not give the batch; add train_micro_batch_size_per_gpu or train_batch_size",
                      steps->place);
  if (!micro) micro = r.training("per_device_train_batch_size", t.per_device_train_batch_size);
  if (!steps) steps = r.training("gradient_accumulation_steps", t.gradient_accumulation_steps);
  const std::string product = fmt::format("micro_batch x accumulation x {}", r.data_name("world_size"));
  set_batch(r, *micro, *steps,
            r.ds.train_batch_size.automatic() ? fmt::format("deepspeed: auto <- {}", product) : product);
}

std::string nearest_multiples(int64_t value, int64_t of) {
  const int64_t below = value / of * of;
  return below > 0 ? fmt::format("the nearest that are: {} and {}", below, below + of)
                   : fmt::format("the nearest that is: {}", of);
}

void derive_batch_from_total(Resolver& r, const Candidate<int64_t>& total,
                             const std::optional<Candidate<int64_t>>& micro,
                             const std::optional<Candidate<int64_t>>& steps) {
  const int64_t world = r.plan.layout.data_ranks();
  const std::string world_name = r.data_name("world size");
  const char* micro_name = "train_micro_batch_size_per_gpu";
  const char* steps_name = "gradient_accumulation_steps";
  if (micro && steps) {
    const int64_t product = micro->value * steps->value * world;
    require<ConfigError>(total.value == product,
                         "{}: train_batch_size {} != {} {} x {} {} x {} {} = {}; leave one of the three out, and it "
                         "follows from the others",
                         total.place, total.value, micro_name, micro->value, steps_name, steps->value, world_name,
                         world, product);
    return set_batch(r, *micro, *steps, total.reason);
  }
  const int64_t known = micro ? micro->value : steps ? steps->value : 1;
  const char* known_name = micro ? micro_name : steps_name;
  require<ConfigError>(total.value % (known * world) == 0,
                       "{}: train_batch_size {} is not divisible by {} {} x {} {} = {}; {}", total.place, total.value,
                       known_name, known, world_name, world, known * world,
                       nearest_multiples(total.value, known * world));
  Candidate<int64_t> derived{total.value / (known * world), true, total.place, ""};
  require_count(derived);
  derived.reason =
      fmt::format("train_batch_size / ({} x {})", micro ? "micro_batch" : "accumulation", r.data_name("world_size"));
  const Candidate<int64_t> one{1, false, "", "train_batch_size is given alone"};
  set_batch(r, micro ? *micro : derived, micro ? derived : steps ? *steps : one, total.reason);
}

void set_elastic_batch(Resolver& r, const ElasticBatch& batch) {
  const int64_t ranks = r.plan.layout.data_ranks();
  const auto of = [&](int64_t value, std::string reason) {
    return Candidate<int64_t>{value, true, r.origins.place("deepspeed.elasticity"), std::move(reason)};
  };
  set_batch(r, of(batch.micro_batch(ranks), fmt::format("elasticity: the largest that {} ranks can take", ranks)),
            of(batch.accumulation(ranks), fmt::format("train_batch / (micro_batch x {})", r.data_name("world_size"))),
            fmt::format("elasticity: {} numbers of ranks make it", batch.data_ranks.size()));
}

void resolve_batch(Resolver& r) {
  if (const std::optional<ElasticBatch> batch = resolve_elasticity(r)) return set_elastic_batch(r, *batch);
  const TrainingConfig& t = r.config.training;
  const auto one = [&](const std::string& key, const Auto<int64_t>& ds, const Candidate<int64_t>& argument) {
    std::optional<Candidate<int64_t>> result = r.merge(key, ds, argument);
    if (!result->given) result.reset();
    if (result) require_count(*result);
    return result;
  };
  const auto micro = one("train_micro_batch_size_per_gpu", r.ds.train_micro_batch_size_per_gpu,
                         r.training("per_device_train_batch_size", t.per_device_train_batch_size));
  auto steps = one("gradient_accumulation_steps", r.ds.gradient_accumulation_steps,
                   r.training("gradient_accumulation_steps", t.gradient_accumulation_steps));
  if (const auto of_step = virtual_ranks(r);
      of_step && !t.gradient_accumulation_steps.given && (!steps || r.ds.gradient_accumulation_steps.automatic()))
    steps = {of_step->value / r.plan.layout.data_ranks(), true, of_step->place,
             fmt::format("virtual_ranks / {}", r.data_name("world_size"))};
  if (r.ds.train_batch_size.given()) {
    const auto total = r.deepspeed("train_batch_size", r.ds.train_batch_size.value);
    require_at_least<int64_t>(total, 1);
    derive_batch_from_total(r, total, micro, steps);
  } else {
    derive_batch_without_total(r, micro, steps);
  }
}

void resolve_experts(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  if (!t.moe_capacity_factor.given) {
    if (t.moe_drop_tokens.given)
      r.warn(fmt::format("{} has no effect without training.moe_capacity_factor",
                         r.origins.place("training.moe_drop_tokens")));
    return;
  }
  const auto factor = r.training("moe_capacity_factor", t.moe_capacity_factor);
  require<ConfigError>(std::isfinite(factor.value) && factor.value > 0, "{}: expected a finite number > 0, got {}",
                       factor.place, factor.value);
  r.plan.moe_capacity_factor = r.note("moe_capacity_factor", factor);
  r.plan.moe_drop_tokens = r.note("moe_drop_tokens", r.training("moe_drop_tokens", t.moe_drop_tokens));
}

void resolve_zero(Resolver& r) {
  const DsZero& zero = r.ds.zero_optimization;
  const auto stage = r.section_value("deepspeed.zero_optimization.stage", zero.stage);
  require<ConfigError>(0 <= stage.value && stage.value <= 3, "{}: expected 0, 1, 2 or 3, got {}", stage.place,
                       stage.value);
  r.plan.layout.zero_stage = r.note("zero_stage", stage);

  Candidate<bool> overlap{true, false, "", "default"};
  if (zero.overlap_comm.given()) overlap = r.deepspeed("zero_optimization.overlap_comm", zero.overlap_comm.value);
  r.plan.layout.sharding.overlap = r.note("overlap_comm", overlap);
  resolve_buckets(r);
  resolve_offload_param(r);
  resolve_live_parameters(r);
  resolve_zeropp(r);
  resolve_offload(r);
  resolve_recompute(r);
  resolve_experts(r);
  resolve_quantized_dispatch(r);
}

void resolve_profile(Resolver& r) {
  const DsFlopsProfiler& profiler = r.ds.flops_profiler;
  if (!profiler.enabled.value) return;
  const std::string path = "deepspeed.flops_profiler.";
  const auto at_least = [&](const char* key, const Setting<int64_t>& setting, int64_t least) {
    const auto candidate = r.section_value(path + key, setting);
    require_at_least(candidate, least);
    return candidate.value;
  };
  ProfileOptions options{.step = at_least("profile_step", profiler.profile_step, 1),
                         .module_depth = at_least("module_depth", profiler.module_depth, -1),
                         .top_modules = at_least("top_modules", profiler.top_modules, 1),
                         .detailed = profiler.detailed.value,
                         .output_file = profiler.output_file.value,
                         .recompute_factor = profiler.recompute_fwd_factor.value};
  require_finite_at_least_zero(r.section_value(path + "recompute_fwd_factor", profiler.recompute_fwd_factor));
  require<ConfigError>(!profiler.output_file.given || !options.output_file.empty(),
                       "{}: expected a file's path, or null to print the profile, found \"\"",
                       r.origins.place(path + "output_file"));
  r.note("profile_step", r.section_value(path + "profile_step", profiler.profile_step));
  r.plan.profile = std::move(options);
}

void resolve_evaluation(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const auto strategy = r.training("eval_strategy", t.eval_strategy);
  r.plan.eval_strategy = strategy.value;
  r.plan.resolved.push_back({"eval_strategy", std::string(enum_name(strategy.value)), strategy.reason});
  require<ConfigError>(strategy.value == EvalStrategy::no || r.plan.data.validates(),
                       "{} = \"{}\" needs data to validate with: give data.validation_fraction or "
                       "data.validation_files",
                       strategy.place, enum_name(strategy.value));
  auto steps = r.training("eval_steps", t.eval_steps);
  if (!steps.given) steps = {r.plan.logging_steps, false, "", "logging_steps"};
  require_at_least<int64_t>(steps, 1);
  if (strategy.value == EvalStrategy::steps) r.plan.eval_steps = r.note("eval_steps", steps);
  auto rows = r.training("per_device_eval_batch_size", t.per_device_eval_batch_size);
  r.plan.layout.evaluation_follows = !rows.given;
  if (!rows.given) rows = {r.plan.layout.micro_batch, false, "", "micro_batch"};
  require_count(rows);
  r.plan.layout.evaluation_rows = r.note("eval_micro_batch", rows);
}

std::string resolve_monitor(Resolver& r, const std::string& section, const DsMonitor& monitor) {
  if (!monitor.enabled.value) return "";
  const std::string& path = monitor.output_path.value;
  const std::string folder = fmt::format("{}/{}", path.empty() ? r.plan.output_dir : path, monitor.job_name.value);
  return r.note(section, r.deepspeed(section + ".output_path", folder));
}

void resolve_output(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const auto seed = r.merge("seed", as_auto(r.ds.seed), r.training("seed", t.seed));
  require_at_least<int64_t>(seed, 0);
  r.plan.seed = r.plan.layout.sharding.optimizer.seed = static_cast<uint64_t>(r.note("seed", seed));

  auto logging = r.training("logging_steps", t.logging_steps);
  if (r.ds.steps_per_print.given && !logging.given)
    logging = r.deepspeed("steps_per_print", r.ds.steps_per_print.value);
  else if (r.ds.steps_per_print.given && r.ds.steps_per_print.value != logging.value)
    r.warn(fmt::format("{} = {} has no effect: {} = {} is given", r.origins.place("deepspeed.steps_per_print"),
                       r.ds.steps_per_print.value, logging.place, logging.value));
  require_at_least<int64_t>(logging, 1);
  r.plan.logging_steps = r.note("logging_steps", logging);

  resolve_evaluation(r);
  resolve_saving(r);
  r.plan.on_nonfinite = t.on_nonfinite.value;
  resolve_collectives(r);
  resolve_checks(r);
  resolve_delayed_update(r);
  resolve_early_update(r);
  resolve_gradient_tier(r);
  resolve_async_save(r);
  resolve_aio(r, /*to_files=*/r.plan.layout.sharding.offload_optimizer.tier.pool == Pool::file ||
                     r.plan.layout.sharding.offload_param.tier.pool == Pool::file);
  const auto budget = r.training("device_memory", t.device_memory);
  if (budget.given) r.plan.device_memory = parse_bytes(r.note("device_memory", budget), budget.place);
  const auto ram = r.training("host_memory", t.host_memory);
  if (ram.given) r.plan.host_memory = parse_bytes(r.note("host_memory", ram), ram.place);
  const auto shard = r.training("max_shard_size", t.max_shard_size);
  r.plan.max_shard_bytes = parse_bytes(r.note("max_shard_size", shard), shard.place);
  require<ConfigError>(r.plan.max_shard_bytes > 0, "{}: a file of 0 bytes holds no weights", shard.place);
  const auto folder = r.training("output_dir", t.output_dir);
  require<ConfigError>(!folder.value.empty(), "{}: expected a folder's path, found \"\"", folder.place);
  r.plan.output_dir = r.note("output_dir", folder);
  resolve_reports(r);
  r.plan.dump_state = r.ds.dump_state.value;
  r.plan.memory_breakdown = r.ds.memory_breakdown.value;
  r.plan.wall_clock_breakdown = r.ds.wall_clock_breakdown.value;
  r.plan.comms_logger = r.ds.comms_logger.enabled.value;
  r.plan.comms_logger_verbose = r.ds.comms_logger.verbose.value;
  if (!r.ds.comms_logger.prof_all.value) r.plan.logged_collectives = r.ds.comms_logger.prof_ops.value;
  resolve_profile(r);
  r.plan.tensorboard_dir = resolve_monitor(r, "tensorboard", r.ds.tensorboard);
  r.plan.csv_dir = resolve_monitor(r, "csv_monitor", r.ds.csv_monitor);
}

}  // namespace

int64_t model_number(const Json& model, std::initializer_list<const char*> keys) {
  if (!model.is_object()) return 0;
  for (const char* key : keys)
    if (const auto it = model.find(key); it != model.end() && it->is_number_integer()) return it->get<int64_t>();
  return 0;
}

Resolver::Resolver(const RunConfig& from, int world_size, const AutoBf16& bf16_of_machine)
    : config(from), automatic_bf16(bf16_of_machine), origins(from.origins) {
  require<ConfigError>(1 <= world_size && world_size <= kLargestCount, "world size: expected 1 to {} ranks, got {}",
                       kLargestCount, world_size);
  plan.layout.ranks = world_size;
  if (config.on_gpu) plan.layout.gpu.emplace();
  plan.config_files = origins.files();
  plan.warnings = config.warnings;
  if (config.accelerate_processes > 0 && config.accelerate_processes != world_size)
    warn(fmt::format("{}: num_processes = {}, but the run has {}: --ranks decides", origins.place("deepspeed"),
                     config.accelerate_processes, world_size));
  ds = read_ds_config(config.deepspeed, origins, plan.warnings, config.on_gpu);
}

RunPlan resolve(const RunConfig& config, int world_size, const AutoBf16& automatic) {
  Resolver r(config, world_size, automatic);
  resolve_mesh(r);
  resolve_model(r);
  resolve_adapter_section(r);
  resolve_alignment(r);
  resolve_data(r);
  resolve_batch(r);
  if (r.plan.alignment.of_answers())
    r.plan.layout.row_tokens =
        r.plan.alignment.answers_per_sample() * r.plan.layout.micro_batch * r.plan.layout.seq_length;
  check_pipeline(r);
  check_context(r);
  resolve_precision(r);
  resolve_zero(r);
  resolve_optimizer(r);
  resolve_weight_quantization(r);
  resolve_qat(r);
  resolve_activation_quantization(r);
  resolve_sparse_pruning(r);
  check_adapter(r);
  resolve_quantization(r);
  resolve_unit_tiles(r);
  resolve_masters(r);
  resolve_length(r);
  resolve_schedule(r);
  resolve_output(r);
  resolve_comm_hook(r);
  check_compression(r);
  resolve_local_steps(r);
  resolve_async(r);
  resolve_virtual_ranks(r);
  check_alignment(r);
  explain_automatic_buckets(r);
  return std::move(r.plan);
}

}  // namespace nought
