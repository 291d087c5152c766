#include "nought/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "nought/base/json.h"
#include "nought/checkpoint/resume.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/flight_recorder.h"
#include "nought/diagnose/replicas.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/limits.h"
#include "nought/measure/kept_peak.h"
#include "nought/measure/stage_seconds.h"
#include "nought/models/flops.h"
#include "nought/train/text_sample.h"
#include "nought/train/validate_run.h"
#include "nought/weights/foreign_states.h"
#include "nought/weights/grown_weights.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The plan with the folder of its model, and with what the model's Units take if its pipeline is cut by that.
RunPlan whole_plan(const RunPlan& plan, Communicator& world, const Context& context) {
  RunPlan found = with_model_folder(plan, world, context);
  return with_stage_seconds(found, model_config_of(found), world, context);
}

constexpr int64_t kTracedStep = 4;  // the third is the first in the arena, and touches its pages

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
      data_(open_data(plan_, *tokenizer_)),
      tokens_(data_.pairs ? nullptr
                          : std::make_unique<TrainSampler>(data_.training, batch_layout(plan, mesh_, workers_.get()),
                                                           plan.seed)),
      decoder_(model_config_of(plan_), plan.layout.recompute, plan.layout.fp8,
               ModelRanks(mesh_, plan.layout.sequence_parallel, pipeline_cut_of(plan_, model_config_of(plan_)),
                          plan.layout.context_method)),
      model_(context, mesh_, apply(plan.layout.freezing, decoder_), plan.layout.sharding_options()),
      engine_(model_, plan.loss_scale ? LossScaler(*plan.loss_scale) : LossScaler(), plan.gradient_factor,
              plan.on_nonfinite),
      adapter_(plan_.adapts() ? std::make_unique<AdapterRun>(plan_, world, context) : nullptr),
      pairs_(data_.pairs && !plan_.alignment.of_rewards() && !plan_.alignment.distillation
                 ? std::make_unique<PairRun>(plan_, data_, batch_layout(plan, mesh_, workers_.get()), model_, decoder_,
                                             engine_)
                 : nullptr),
      reference_(make_reference()),
      judges_(plan_.alignment.of_rewards() ? std::make_unique<AnswerJudges>(plan_, mesh_, context) : nullptr),
      values_(plan_.alignment.ppo ? std::make_unique<ValueModel>(plan_, plan_.layout.sharding_options(), mesh_, context)
                                  : nullptr),
      policy_(plan_.alignment.of_rewards()
                  ? std::make_unique<PolicyRun>(plan_, data_, batch_layout(plan, mesh_, nullptr), model_, decoder_,
                                                engine_, reference_.get(), values_.get(), *judges_, *tokenizer_,
                                                ends_of_answers(plan_, data_, decoder_.config(), *tokenizer_))
                  : nullptr),
      distil_(plan_.alignment.distillation
                  ? std::make_unique<DistilRun>(plan_, data_, batch_layout(plan, mesh_, nullptr), model_, decoder_,
                                                engine_, ends_of_answers(plan_, data_, decoder_.config(), *tokenizer_))
                  : nullptr),
      source_(pairs_    ? static_cast<const StepSource&>(pairs_->source())
              : policy_ ? static_cast<const StepSource&>(*policy_)
              : distil_ ? static_cast<const StepSource&>(*distil_)
                        : *tokens_),
      steps_(plan_, world_, workers_.get(), source_, model_, engine_),
      recorder_(plan_, world_, model_, decoder_),
      saver_(plan_, world_, data_, *tokenizer_, source_, decoder_, model_, engine_, steps_, adapter_.get(),
             policy_.get(), values_.get()) {
  engine_.set_schedule(schedule_at(mesh_, plan_.layout.pipeline));
  plan_ = with_steps_per_epoch(plan_, source_.steps_for(1));
  tokenizer_->check_fits(decoder_.config().vocab_size);
  if (plan_.sample) check_sample(*plan_.sample, *tokenizer_, decoder_.config());
  saver_.hash_files();
  saver_.tell([this](const SaveOutcome& outcome) {
    tell([&](TrainObserver& observer) {
      outcome.failure.empty() ? observer.on_checkpoint(outcome) : observer.on_failed_save(outcome);
    });
  });
  notes_ = notes_on_inputs(plan_, decoder_.config(), *tokenizer_);
  notes_.insert(notes_.end(), data_.notes.begin(), data_.notes.end());
  if (!plan_.model_choice.empty()) notes_.push_back("the model is " + plan_.model_choice);
  for (const std::string& note : {model_.optimizer().states().note(), model_.residency().note()})
    if (!note.empty()) notes_.push_back(note);
  if (plan_.spiky_loss_factor > 0) engine_.repeat_spikes(plan_.spiky_loss_factor);
  if (StragglerLog* log = recorder_.stragglers())
    engine_.set_shared([this, log] { return log->take(steps_.made() + 1); });
  load();
}

void Trainer::load() {
  note_phase(world_, "loading");
  const fs::path folder = plan_.output_dir;
  if (pairs_) pairs_->begin();
  if (resumes(mode_)) {
    if (pairs_) find_reference([this] { load_reference(model_); });
    start_ = found_by_first(world_, context_, [&] { return resume_point(plan_).string(); });
    if (holds_foreign_run(start_)) return take_up_foreign();
    Checkpoint checkpoint(start_, decoder_);
    checkpoint.require_same_frozen(decoder_);
    if (adapter_) adapter_->take_up(checkpoint);
    require_same_virtual_ranks(plan_, start_, checkpoint.info());
    for (std::string& line : saver_.describe_changes(checkpoint.info())) notes_.push_back(std::move(line));
    if (const std::string incomplete = describe_incomplete_after(start_); !incomplete.empty())
      notes_.push_back(incomplete);
    for (std::string& note : steps_.resume(checkpoint)) notes_.push_back(std::move(note));
    take_up(checkpoint.info());
    if (values_) values_->resume(start_);
    if (policy_)
      if (std::string lost = policy_->resume(start_, steps_.made()); !lost.empty()) notes_.push_back(std::move(lost));
    return;
  }
  world_.barrier().wait();  // every rank is here before rank 0 clears the folder
  if (world_.rank() == 0 && mode_ == StartMode::overwrite)
    for (const std::vector<fs::path>& those : {list_checkpoints(folder), incomplete_checkpoints(folder)})
      for (const fs::path& checkpoint : those) remove_checkpoint(checkpoint);
  if (world_.rank() == 0 && policy_) fs::remove(folder / kCompletionsFile);  // an earlier run left it
  const bool starts_apart = pairs_ && !plan_.alignment.ref_model.empty();
  if (starts_apart) find_reference([this] { load_reference(model_); });
  load_start();
  if (values_)
    if (std::string note = values_->load_start(); !note.empty()) notes_.push_back(std::move(note));
  if (pairs_ && !starts_apart) find_reference([] {});
  steps_.begin();
}

void Trainer::find_reference(const std::function<void()>& load) {
  const std::string folder = plan_.alignment.ref_model.empty() ? plan_.model_dir : plan_.alignment.ref_model;
  const bool leaves_out = plan_.begins_without_adapter();
  const std::string adapter = leaves_out ? "without its adapter" : plan_.adapter_dir;
  const std::string key = found_by_first(world_, context_, [&] {
    const std::string weights =
        folder.empty() ? fmt::format("seed {}", plan_.seed) : ModelSource(FoundModel{folder}).weights_hash();
    return fmt::format("{} {} {}", weights, adapter, name_of(plan_.layout.sharding.dtype));
  });
  std::optional<WithoutAdapter> without;
  if (leaves_out) without.emplace(decoder_);
  const std::string note =
      pairs_->find_reference(fs::path(plan_.output_dir) / kReferenceFile, key, plan_.max_steps, load);
  if (!note.empty()) notes_.push_back(note);
}

std::unique_ptr<ReferenceModel> Trainer::make_reference() {
  if (!plan_.alignment.keeps_reference()) return nullptr;
  if (plan_.begins_without_adapter()) return std::make_unique<ReferenceModel>(AskedModel{engine_, model_, decoder_});
  return std::make_unique<ReferenceModel>(plan_, decoder_.config(), mesh_, context_,
                                          [this](ShardedModel& model) { load_reference(model); });
}

void Trainer::load_reference(ShardedModel& model) {
  if (plan_.alignment.ref_model.empty()) {
    load_weights(model);
    return;
  }
  const ModelSource source(FoundModel{plan_.alignment.ref_model});
  require<ConfigError>(source.config().vocab_size == decoder_.config().vocab_size,
                       "alignment.ref_model {} has {} tokens, the model {}: they must read the same tokens",
                       plan_.alignment.ref_model, source.config().vocab_size, decoder_.config().vocab_size);
  model.load(source.weights());
}

std::string Trainer::load_weights(ShardedModel& model) const {
  if (adapter_) return adapter_->begin(model);
  const InitialState fresh(plan_.seed);
  if (plan_.model_dir.empty()) {
    model.load(fresh);
    return fmt::format("random weights from seed {}", plan_.seed);
  }
  const ModelSource source(FoundModel{plan_.model_dir});
  model.load(GrownWeights(source.weights(), source.model(), fresh));
  return plan_.model_dir;
}

void Trainer::load_start() {
  start_ = load_weights(model_);
  if (adapter_ || plan_.model_dir.empty()) return;
  const ModelSource source(FoundModel{plan_.model_dir});
  if (decoder_.config().classifier && !source.config().classifier)
    notes_.push_back(fmt::format("the head that scores texts ({} labels) begins with random weights from seed {}",
                                 decoder_.config().classifier->labels, plan_.seed));
  if (const int64_t before = source.config().vocab_size, now = decoder_.config().vocab_size; before != now)
    notes_.push_back(
        fmt::format("the vocabulary grows from {} to {}: new rows begin as the mean of the old ones", before, now));
  if (const CarriedTensors* carried = source.stored() ? source.stored()->carried() : nullptr)
    notes_.push_back(fmt::format("{}: {} are carried through as they are", plan_.model_dir, carried->describe()));
  for (const std::string& name : source.unused())
    notes_.push_back(fmt::format("{}: the model has no use for tensor {}", plan_.model_dir, name));
}

void Trainer::take_up_foreign() {
  const ForeignStates states(start_, decoder_, model_.options().optimizer);
  for (std::string& line : states.describe()) notes_.push_back(std::move(line));
  steps_.resume(states);
  if (values_) {
    values_->load_start();
    notes_.push_back("the value model begins anew: the checkpoint of another program has none");
  }
  take_up({.step = steps_.made(), .skipped = states.skipped()});
}

void Trainer::take_up(const CheckpointInfo& info) {
  saver_.resume(start_, info);
  validation_put_off_ = info.validated == false;
  if (mode_ == StartMode::resume) return;
  world_.barrier().wait();  // every rank has read
  if (world_.rank() != 0) return;
  const std::string left = leave_others(start_, plan_.output_dir, /*keep=*/mode_ == StartMode::rewind);
  if (!left.empty()) notes_.push_back(left);
}

RunSummary Trainer::summary(int64_t first_step) const {
  RunSummary summary{.family = decoder_.config().family,
                     .start = start_,
                     .parameters = decoder_.parameter_count(),
                     .frozen = decoder_.frozen_count(),
                     .tokenizer = std::string(tokenizer_->name()),
                     .train_tokens = source_.num_tokens(),
                     .targets = data_.targets,
                     .samples = source_.num_samples(),
                     .world_size = world_.size(),
                     .zero_stage = plan_.layout.zero_stage,
                     .mesh = describe_layout(plan_, decoder_.config()),
                     .dtype = std::string(name_of(plan_.layout.sharding.dtype)),
                     .first_step = first_step,
                     .max_steps = plan_.max_steps,
                     .tokens_per_step = source_.tokens_of_step(0),
                     .flops_per_token = training_flops_per_token(decoder_.config(), plan_.layout.seq_length) -
                                        frozen_flops_per_token(decoder_, plan_.layout.seq_length),
                     .peak_flops = peak_->flops(),
                     .peak_name = std::string(matrix_peak_name(plan_.layout.sharding.dtype)) + peak_->note(),
                     .notes = decoder_.config().notes};
  if (std::string codes = describe_four_bits(decoder_); !codes.empty()) summary.notes.push_back(std::move(codes));
  if (model_.reduce_buckets() < model_.trained_segments())
    summary.notes.push_back(fmt::format(
        "gradients of {} Units travel in {} collective{}", model_.trained_segments(), model_.reduce_buckets(),
        model_.reduce_buckets() > 1 ? "s"
                                    : ", which begins when the backward pass has ended: a smaller "
                                      "reduce_bucket_size hides them behind it"));
  const ModelConfig& config = decoder_.config();
  if (plan_.layout.recompute.unit_tiles > 1 && config.head_bias)
    summary.notes.push_back("memory_centric_tiling leaves the head whole: it has a bias");
  if (plan_.layout.recompute.unit_tiles > 1 && config.experts && config.experts->storage == ExpertStorage::halves)
    summary.notes.push_back("memory_centric_tiling leaves experts whole: all of a layer are one tensor");
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
  if (plan_.layout.sharding.dtype == DType::bf16 && context_.memory->device().is_host() && !has_bf16_units()) {
    notes_.push_back(note_of_slow_bf16(context_, peak_->threads(), kept_peak_file()));
  }
  memory.set_limit(plan_.device_memory);
  memory.set_limit(plan_.host_memory, Pool::host);
  memory.ledger().reset_peaks();
}

StepReport Trainer::step(double flops_per_token) {
  recorder_.begin(steps_.made() + 1);
  const auto begin = std::chrono::steady_clock::now();
  const int64_t bytes_before = steps_.bytes_sent(), made = steps_.made();
  if (FlightRecorder* recorder = world_.recorder()) recorder->set_step(made + 1);
  if (policy_) policy_->begin_step(made);
  if (distil_) distil_->begin_step(made);
  note_phase(world_, "data");
  std::vector<Batch> batches;
  {
    const TimedScope scope(world_.timeline(), TraceEventKind::phase, "data");
    batches = source_.batches(made, *context_.memory);
  }
  StepReport report{.step = made + 1, .lr = learning_rate(plan_.schedule, made - engine_.skipped())};
  const std::optional<StalenessReport> before = steps_.staleness();
  if (pairs_) pairs_->begin_step(made);
  StepResult result = steps_.make(batches, report.lr);
  if (policy_) policy_->learn_values(report.lr, result);
  if (pairs_) report.of_answers = pairs_->metrics(made);
  if (policy_) report.of_answers = policy_->metrics();
  if (distil_) report.of_answers = distil_->end_step();
  report.staleness = steps_.staleness();
  if (before) report.staleness->waited -= before->waited;
  report.loss = result.loss;
  report.grad_norm = result.grad_norm;
  report.skipped = result.skipped;
  report.skipped_so_far = steps_.skipped();
  report.nonfinite = result.nonfinite;
  report.stop = result.stop;
  report.spike = result.spike;
  report.guess = result.guess;
  if (!result.shared.empty()) report.ranks = recorder_.stragglers()->compare(report.step, result.shared);
  if (plan_.loss_scale) report.loss_scale = result.loss_scale, report.next_loss_scale = engine_.scaler().scale();
  report.bytes_sent = steps_.bytes_sent() - bytes_before;
  report.experts = decoder_.router_loads();
  if (plan_.memory_breakdown) report.memory = result.memory;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto tokens = static_cast<double>(source_.tokens_of_step(made));
  report.tokens_per_second = tokens / report.seconds;
  if (world_.rank() == 0) report.mfu = peak_->share_of(flops_per_token * report.tokens_per_second);
  report.peak_flops = peak_->flops();
  recorder_.end(report, flops_per_token * tokens / world_.size());
  return report;
}

void Trainer::save(bool last) {
  if (plan_.weight_hash_interval > 0) check_replicas();
  note_phase(world_, "saving");
  saver_.save(/*validated=*/validated_ == steps_.made(), last || steps_.made() >= plan_.max_steps);
  recorder_.forget();
}

// --- from step to step ---

void Trainer::stop_on(std::function<int()> signal) {
  stop_signal_ = std::move(signal);
  engine_.set_wants_stop([this] { return stop_signal_() != 0; });
}

void Trainer::check_replicas() {
  if (std::exchange(compared_, steps_.made()) == steps_.made()) return;
  require_same_replicas(model_, compared_, saver_.last_saved());
  recorder_.forget();
}

int Trainer::run() {
  const int signal = make_steps();
  if (signal == 0) finish();
  return signal;
}

int Trainer::make_steps() {
  measure_machine();
  const RunSummary start = summary(steps_.made());
  tell([&](TrainObserver& observer) { observer.on_start(start); });
  if (!plan_.trace_file.empty()) recorder_.trace(std::min(start.first_step + kTracedStep, plan_.max_steps));
  steps_.apply_last_update();
  saver_.begin_receipt(resumes(mode_) ? start_ : "");
  if (validation_put_off_ && calendar().validates_after(start.first_step)) validate();
  bool stop = false;
  while (!stop && steps_.made() < plan_.max_steps) {
    const StepReport report = step(start.flops_per_token);
    steps_.apply_last_update();
    tell([&](TrainObserver& observer) { observer.on_step(report); });
    if (saver_.go_on(report)) recorder_.forget();
    if (calendar().compares_replicas_after(report.step)) check_replicas();
    stop = report.stop || do_what_is_due(report.step);
  }
  if (!stop) {
    if (plan_.best && validated_ != steps_.made()) validate();
    if (saver_.saved() != steps_.made())
      save(/*last=*/true);
    else
      saver_.remove_old();  // a run that was killed behind its last save had not come to that
    stop = agreed_signal() != 0;
  }
  return stop ? interrupt() : 0;
}

void Trainer::finish() {
  steps_.finish();
  if (validated_ != steps_.made()) validate();
  export_weights();
  const std::vector<CollectiveTotal>& collectives = recorder_.collectives();
  if (!collectives.empty()) tell([&](TrainObserver& observer) { observer.on_collectives(collectives); });
  const std::vector<RankMemory> peaks = gather_peaks(world_, context_);
  tell([&](TrainObserver& observer) { observer.on_finish(peaks, plan_.output_dir); });
}

bool Trainer::do_what_is_due(int64_t step) {
  const RunCalendar due = calendar();
  if (!due.samples_after(step) && !due.validates_after(step) && !due.saves_after(step)) return false;
  if (due.validates_after(step)) validate();
  if (due.samples_after(step)) sample();
  if (due.saves_after(step)) save(/*last=*/false);
  return agreed_signal() != 0;
}

void Trainer::validate() {
  validated_ = steps_.made();
  if (!data_.validation && !data_.validation_pairs) return;
  const Evaluation result =
      pairs_    ? pairs_->validate()
      : policy_ ? policy_->validate()
      : distil_ ? distil_->validate()
                : evaluate(engine_, model_, *data_.validation, *tokenizer_, plan_.layout.evaluation_rows);
  recorder_.forget();
  // What is compared are checkpoints: those that are due, and the last.
  if (plan_.best && (calendar().saves_after(validated_) || validated_ == plan_.max_steps))
    saver_.compare(validated_, result);
  tell([&](TrainObserver& observer) { observer.on_validation(validated_, result); });
}

void Trainer::sample() {
  note_phase(world_, "sampling");
  const std::string text = continue_prompt(model_, decoder_, *tokenizer_, *plan_.sample);
  recorder_.forget();
  tell([&](TrainObserver& observer) { observer.on_sample(steps_.made(), plan_.sample->prompt, text); });
}

void Trainer::export_weights() {
  note_phase(world_, "export");
  const ExportRecord record = saver_.load_best();
  if (const auto& best = saver_.best())
    tell([&](TrainObserver& observer) { observer.on_best(*best, checkpoint_path(plan_.output_dir, best->step)); });
  saver_.export_weights(record, /*writes=*/!workers_ || workers_->index() == 0);
}

int Trainer::agreed_signal() {
  if (!stop_signal_) return 0;
  std::array<double, 1> signal{static_cast<double>(stop_signal_())};
  all_reduce_values(deciders(), context_, signal, ReduceOp::max);
  recorder_.forget();
  return static_cast<int>(signal[0]);
}

int Trainer::interrupt() {
  saver_.finish();
  if (saver_.saved() != steps_.made()) save(/*last=*/true);
  tell([&](TrainObserver& observer) { observer.on_interrupt(steps_.made(), saver_.last_saved()); });
  return agreed_signal();
}

}  // namespace nought
