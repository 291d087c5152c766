#include "nought/train/trainer.h"

#include <chrono>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "nought/base/json.h"
#include "nought/checkpoint/resume.h"
#include "nought/checkpoint/run_files.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/flight_recorder.h"
#include "nought/diagnose/trace.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/limits.h"
#include "nought/measure/kept_peak.h"
#include "nought/measure/stage_seconds.h"
#include "nought/models/flops.h"
#include "nought/optim/custom_optimizer.h"
#include "nought/train/text_sample.h"
#include "nought/train/validate_run.h"
#include "nought/weights/grown_weights.h"
#include "nought/weights/hf_folder.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The plan with the folder of its model, and with what the model's Units take if its pipeline is cut by that.
RunPlan whole_plan(const RunPlan& plan, Communicator& world, const Context& context) {
  RunPlan found = with_model_folder(plan, world, context);
  return with_stage_seconds(found, model_config_of(found), world, context);
}

/// Workers read one after the other, as replicas do.
BatchLayout batch_layout(const RunPlan& plan, const Communicator& ranks, const Workers* workers) {
  const int count = workers == nullptr ? 1 : workers->count(), index = workers == nullptr ? 0 : workers->index();
  return {plan.layout.micro_batch, plan.layout.accumulation, ranks.size() * count, index * ranks.size() + ranks.rank()};
}

/// What must be the same for a resumed run to continue as if it had never stopped.
Json fingerprint_of(const RunPlan& plan, const TokenDataset& data) {
  return {{"seed", plan.seed},
          {"train_batch", plan.train_batch},
          {"seq_length", plan.data.seq_length},
          {"separate_documents", plan.data.separate_documents},
          {"dtype", name_of(plan.layout.sharding.dtype)},
          {"data", fmt::format("{:016x}", data.fingerprint())}};
}

}  // namespace

Trainer::Trainer(const RunPlan& plan, StartMode mode, Communicator& world, const Context& context,
                 std::vector<TrainObserver*> observers)
    : plan_(whole_plan(plan, world, context)),
      mode_(mode),
      workers_(plan.layout.local_steps ? std::make_unique<Workers>(world, plan.layout.grid()) : nullptr),
      mesh_(workers_ ? workers_->mesh() : Mesh(world, plan.layout.grid())),
      world_(world),
      context_(context),
      observers_(std::move(observers)),
      tokenizer_(tokenizer_of(plan_.data)),
      data_(open_data(plan_.data, *tokenizer_)),
      sampler_(data_.training, batch_layout(plan, mesh_.group(Group::samples), workers_.get()), plan.seed),
      decoder_(model_config_of(plan_), plan.layout.recompute, plan.layout.fp8,
               ModelRanks(mesh_, plan.layout.sequence_parallel, pipeline_cut_of(plan_, model_config_of(plan_)),
                          plan.layout.context_method)),
      model_(context, mesh_, apply(plan.layout.freezing, decoder_), plan.layout.sharding_options()),
      engine_(model_, plan.loss_scale ? LossScaler(*plan.loss_scale) : LossScaler(), plan.gradient_factor,
              plan.on_nonfinite) {
  engine_.set_schedule(schedule_at(mesh_, plan_.layout.pipeline));
  plan_ = with_steps_per_epoch(plan_, sampler_.steps_for(1));
  tokenizer_->check_fits(decoder_.config().vocab_size);
  if (plan_.sample) check_sample(*plan_.sample, *tokenizer_, decoder_.config());
  if (world.rank() == 0) files_ = hash_run_files(plan_);
  notes_ = notes_on_inputs(plan_, decoder_.config(), *tokenizer_);
  notes_.insert(notes_.end(), data_.notes.begin(), data_.notes.end());
  if (!plan_.model_choice.empty()) notes_.push_back("the model is " + plan_.model_choice);
  for (const std::string& note : {model_.optimizer().note(), model_.residency().note()})
    if (!note.empty()) notes_.push_back(note);
  set_up_checks();
  if (workers_) local_.emplace(model_, *workers_, *plan_.layout.local_steps);
  load();
  begin_apart();
}

void Trainer::load() {
  note_phase(world_, "loading");
  const fs::path folder = plan_.output_dir;
  if (resumes(mode_)) {
    start_ = found_by_first(world_, context_, [&] { return resume_point(plan_).string(); });
    Checkpoint checkpoint(start_, decoder_);
    checkpoint.require_same_frozen(decoder_);
    const Json now = fingerprint_of(plan_, sampler_.dataset()), &then = checkpoint.info().run;
    for (const auto& [key, value] : now.items())
      if (!then.contains(key) || then[key] != value)
        notes_.push_back(
            fmt::format("{} is {}, the checkpoint was trained with {}: the run goes on, but not as if it "
                        "had never stopped",
                        key, value.dump(), then.value(key, Json()).dump()));
    if (const std::string incomplete = describe_incomplete_after(start_); !incomplete.empty())
      notes_.push_back(incomplete);
    const std::string changed = describe_changed_files(then.value("files", Json()), files_);
    if (!changed.empty()) notes_.push_back(changed);
    resume(checkpoint);
    take_up(checkpoint.info());
    return;
  }
  world_.barrier().wait();  // every rank is here before rank 0 clears the folder
  if (world_.rank() == 0 && mode_ == StartMode::overwrite)
    for (const std::vector<fs::path>& those : {list_checkpoints(folder), incomplete_checkpoints(folder)})
      for (const fs::path& checkpoint : those) remove_checkpoint(checkpoint);
  if (plan_.model_dir.empty()) {
    model_.load(InitialState(plan_.seed));
    start_ = fmt::format("random weights from seed {}", plan_.seed);
    return;
  }
  const ModelSource source(FoundModel{plan_.model_dir});
  model_.load(GrownWeights(source.weights(), source.model()));
  start_ = plan_.model_dir;
  if (const int64_t before = source.config().vocab_size, now = decoder_.config().vocab_size; before != now)
    notes_.push_back(
        fmt::format("the vocabulary grows from {} to {}: new rows begin as the mean of the old ones", before, now));
  for (const std::string& name : source.unused())
    notes_.push_back(fmt::format("{}: the model has no use for tensor {}", plan_.model_dir, name));
}

void Trainer::take_up(const CheckpointInfo& info) {
  const fs::path folder = plan_.output_dir;
  const bool own = lies_in(start_, folder);
  if (own) saved_ = info.step;
  last_saved_ = start_;
  validation_put_off_ = info.validated == false;
  if (own && plan_.best && info.best && info.best->metric == plan_.best->metric) best_ = info.best;
  if (mode_ != StartMode::rewind) return;
  world_.barrier().wait();  // every rank has read
  if (world_.rank() == 0)
    for (const fs::path& checkpoint : checkpoints_of_others(start_, folder)) remove_checkpoint(checkpoint);
}

RunSummary Trainer::summary(int64_t first_step) const {
  RunSummary summary{.family = decoder_.config().family,
                     .start = start_,
                     .parameters = decoder_.parameter_count(),
                     .frozen = decoder_.frozen_count(),
                     .tokenizer = std::string(tokenizer_->name()),
                     .train_tokens = sampler_.dataset().num_tokens(),
                     .targets = data_.targets,
                     .samples = sampler_.dataset().num_samples(),
                     .world_size = world_.size(),
                     .zero_stage = plan_.layout.zero_stage,
                     .mesh = describe_layout(plan_, decoder_.config()),
                     .dtype = std::string(name_of(plan_.layout.sharding.dtype)),
                     .first_step = first_step,
                     .max_steps = plan_.max_steps,
                     .tokens_per_step = sampler_.targets_per_step(),
                     .flops_per_token = training_flops_per_token(decoder_.config(), plan_.data.seq_length) -
                                        frozen_flops_per_token(decoder_, plan_.data.seq_length),
                     .peak_flops = peak_->flops(),
                     .peak_name = std::string(matrix_peak_name(plan_.layout.sharding.dtype)) + peak_->note(),
                     .notes = decoder_.config().notes};
  if (model_.reduce_buckets() < model_.trained_segments())
    summary.notes.push_back(fmt::format(
        "gradients of {} Units travel in {} collective{}", model_.trained_segments(), model_.reduce_buckets(),
        model_.reduce_buckets() > 1 ? "s"
                                    : ", which begins when the backward pass has ended: a smaller "
                                      "reduce_bucket_size hides them behind it"));
  if (plan_.profile && (plan_.profile->step <= first_step || plan_.profile->step > plan_.max_steps))
    summary.notes.push_back(
        fmt::format("nothing is profiled: flops_profiler.profile_step is {}, the run makes steps {} to {}",
                    plan_.profile->step, first_step + 1, plan_.max_steps));
  summary.notes.insert(summary.notes.end(), notes_.begin(), notes_.end());
  return summary;
}

void Trainer::measure_machine() {
  Memory& memory = *context_.memory;
  // The measurement is no part of training: neither of its budgets nor of its peaks.
  memory.set_limit(0);
  memory.set_limit(0, Pool::host);
  peak_.emplace(world_, context_, plan_.layout.sharding.dtype, kept_peak_file());
  if (plan_.layout.sharding.dtype == DType::bf16 && !has_bf16_units()) {
    const double bf16 = measure_product_rate(context_, DType::bf16), f32 = measure_product_rate(context_, DType::f32);
    notes_.push_back(
        fmt::format("this CPU has {}: a rank's matrix products run at {} in bf16 and {} in fp32; "
                    "training.bf16 = \"auto\" chooses what the CPU has units for",
                    describe_bf16_units(), format_rate(bf16, "FLOP/s"), format_rate(f32, "FLOP/s")));
  }
  memory.set_limit(plan_.device_memory);
  memory.set_limit(plan_.host_memory, Pool::host);
  memory.ledger().reset_peaks();
}

StepReport Trainer::timed_step(double flops_per_token) {
  Timeline* timeline = world_.timeline();
  if (timeline == nullptr) return step(flops_per_token);
  const int64_t number = steps_made() + 1;
  const bool traced = number == traced_step_, profiled = plan_.profile && number == plan_.profile->step;
  if (traced || profiled) {
    model_.settle();
    world_.barrier().wait();  // the moment that all ranks' times are from
    timeline->take();
  }
  const bool recorded = traced || profiled || plan_.wall_clock_breakdown || plan_.comms_logger || stragglers_;
  recorded ? timeline->start() : timeline->stop();
  const TraceEvent::Clock::time_point origin = TraceEvent::Clock::now();
  const StateTimes before = model_.times();
  StepReport report = step(flops_per_token);
  const StateTimes offload = model_.times() - before;
  std::vector<TraceEvent> events = timeline->take();
  if (profiled) report.profile = profile_of(events, report, flops_per_token);
  if (plan_.wall_clock_breakdown) {
    report.breakdown = breakdown_of(events);
    report.breakdown->offload = offload.on_way, report.breakdown->offload_exposed = offload.waited;
  }
  if (stragglers_) stragglers_->add(breakdown_of(events));
  if (plan_.comms_logger) {
    std::vector<TraceEvent> collectives = collectives_of(events, plan_.logged_collectives);
    add_collectives(collectives, collectives_);
    if (plan_.comms_logger_verbose) report.collectives = std::move(collectives);
  }
  if (traced) {
    model_.settle();
    std::vector<TraceEvent> last = timeline->take();
    std::move(last.begin(), last.end(), std::back_inserter(events));
    write_trace(world_, context_, events, origin, plan_.trace_file);
    forget_events();
  }
  return report;
}

StepProfile Trainer::profile_of(std::span<const TraceEvent> events, const StepReport& report,
                                double flops_per_token) const {
  StepProfile profile{.options = *plan_.profile,
                      .step = report.step,
                      .seconds = report.seconds,
                      .dtype = std::string(name_of(plan_.layout.sharding.dtype)),
                      .world_size = world_.size(),
                      .zero_stage = plan_.layout.zero_stage,
                      .micro_batch = plan_.layout.micro_batch,
                      .accumulation = plan_.layout.accumulation,
                      .seq_length = plan_.data.seq_length};
  profile.model_flops = flops_per_token * static_cast<double>(sampler_.targets_per_step()) / world_.size();
  const double estimate = profile.model_flops * (1 + profile.options.recompute_factor / 3);
  profile.peak_flops = std::max(peak_->flops() / world_.size(), estimate / report.seconds);
  add_events(events, profile);
  profile.model.name = decoder_.config().family;
  profile.model.parameters = decoder_.parameter_count();
  const Residency& residency = model_.residency();
  for (size_t i = 0; i < decoder_.units().size(); ++i) {
    const Unit& of = *decoder_.units()[i];
    if (!residency.sharded()) {
      profile.rank_parameters += of.numel();
    } else {
      for (size_t segment = 0; segment < of.segments().size(); ++segment)
        if (of.segments()[segment].content != SegmentContent::scales)
          profile.rank_parameters += residency.partition({i, segment}).shard();
    }
    for (ModuleProfile& unit : profile.model.inside)
      if (unit.name == (of.tile_of() == nullptr ? of : *of.tile_of()).name()) unit.parameters += of.numel();
  }
  return profile;
}

/// What went on between steps is no part of the next one.
void Trainer::forget_events() {
  if (Timeline* timeline = world_.timeline()) timeline->take();
}

StepReport Trainer::step(double flops_per_token) {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t bytes_before = bytes_sent(), made = steps_made();
  if (FlightRecorder* recorder = world_.recorder()) recorder->set_step(made + 1);
  note_phase(world_, "data");
  std::vector<Batch> batches;
  {
    const TimedScope scope(world_.timeline(), TraceEventKind::phase, "data");
    for (int64_t i = 0; i < plan_.layout.accumulation; ++i)
      batches.push_back(sampler_.batch(made, i, *context_.memory));
  }
  StepReport report{.step = made + 1, .lr = learning_rate(plan_.schedule, made - engine_.skipped())};
  const double waited = servers_ ? servers_->waited() : 0;
  const StepResult result = make_step(batches, made, report.lr);
  if (servers_) report.staleness = {servers_->last_staleness(), servers_->histogram(), servers_->waited() - waited};
  report.loss = result.loss;
  report.grad_norm = result.grad_norm;
  report.skipped = result.skipped;
  report.skipped_so_far = local_ ? skipped_by_workers_ : engine_.skipped();
  report.nonfinite = result.nonfinite;
  report.stop = result.stop;
  report.spike = result.spike;
  if (!result.shared.empty()) report.ranks = stragglers_->compare(report.step, result.shared);
  if (plan_.loss_scale) report.loss_scale = result.loss_scale, report.next_loss_scale = engine_.scaler().scale();
  report.bytes_sent = bytes_sent() - bytes_before;
  report.experts = decoder_.router_loads();
  if (plan_.memory_breakdown) report.memory = result.memory;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.tokens_per_second = static_cast<double>(sampler_.targets_per_step()) / report.seconds;
  if (world_.rank() == 0) report.mfu = peak_->share_of(flops_per_token * report.tokens_per_second);
  report.peak_flops = peak_->flops();
  return report;
}

Json Trainer::about() {
  const int64_t steps = steps_made();
  Json about{{"family", decoder_.config().family},
             {"max_steps", plan_.max_steps},
             {"tokens", steps * sampler_.targets_per_step()},
             {"epoch",
              static_cast<double>(steps * plan_.train_batch) / static_cast<double>(sampler_.dataset().num_samples())}};
  for (const Resolved& row : plan_.resolved)
    if (row.key == "optimizer") about["optimizer"] = row.value;
  if (const auto* custom = std::get_if<CustomOptions>(&plan_.layout.sharding.optimizer.method))
    about["optimizer"] = custom->optimizer->name();
  return about;
}

ModelConfig Trainer::exported_config() const { return with_stop_ids(decoder_.config(), data_.stop_ids, *tokenizer_); }

TokenizerExport Trainer::exported_tokenizer() const {
  return {plan_.data.tokenizer, plan_.data.add_special_tokens, data_.chat_template, data_.specials};
}

void Trainer::save() {
  if (plan_.weight_hash_interval > 0) check_replicas();
  note_phase(world_, "saving");
  land_updates();
  CheckpointInfo info{.step = steps_made(),
                      .world_size = world_.size(),
                      .zero_stage = plan_.layout.zero_stage,
                      .run = fingerprint_of(plan_, sampler_.dataset()),
                      .skipped = engine_.skipped(),
                      .loss_scale = engine_.scaler().state(),
                      .model_state = decoder_.state(),
                      .validated = validated_ == steps_made(),
                      .pending = model_.optimizer().pending(),
                      .best = best_,
                      .written_by = plan_.program,
                      .about = about()};
  info.run["files"] = files_;
  if (local_) info.local = worker_info();
  last_saved_ = save_checkpoint(
      model_, info, plan_.output_dir,
      [&](const fs::path& folder) {
        export_beside_weights(exported_config(), plan_.layout.sharding.dtype, exported_tokenizer(), folder);
      },
      CheckpointedWorkers{&world_, local_ ? &*local_ : nullptr});
  saved_ = info.step;
  remove_old();
  forget_events();
  tell([&](TrainObserver& observer) { observer.on_checkpoint(last_saved_); });
}

void Trainer::remove_old() {
  const fs::path best = best_ ? checkpoint_path(plan_.output_dir, best_->step) : fs::path();
  if (world_.rank() == 0) remove_old_checkpoints(plan_.output_dir, plan_.save_total_limit, best);
}

std::vector<RankMemory> Trainer::gather_memory() {
  // Ranks are processes of one program: the struct travels as it is.
  static_assert(std::is_trivially_copyable_v<RankMemory> && sizeof(RankMemory) % sizeof(int64_t) == 0);
  constexpr int64_t kWidth = sizeof(RankMemory) / sizeof(int64_t);
  const RankMemory mine = peaks_of(*context_.memory);
  const Tensor sent = context_.empty({kWidth}, DType::i64, Category::workspace);
  upload_bytes(std::as_bytes(std::span(&mine, 1)), sent, *context_.stream);
  const Tensor all = context_.empty({world_.size() * kWidth}, DType::i64, Category::workspace);
  world_.gather(sent, all, 0).wait();
  std::vector<RankMemory> memory(world_.rank() == 0 ? static_cast<size_t>(world_.size()) : 0);
  if (!memory.empty()) std::memcpy(memory.data(), context_.on_host(all).raw(), memory.size() * sizeof(RankMemory));
  return memory;
}

}  // namespace nought
