#include "nought/train/run_saver.h"

#include "nought/base/open_file.h"
#include "nought/checkpoint/receipt.h"
#include "nought/checkpoint/resume.h"
#include "nought/checkpoint/run_files.h"
#include "nought/comm/first_rank.h"
#include "nought/io/files.h"
#include "nought/optim/custom_optimizer.h"
#include "nought/weights/hf_folder.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Where a checkpoint of the value model lies until that of the policy takes it in.
constexpr const char* kValuesAside = ".value_model";

}  // namespace

RunSaver::RunSaver(const RunPlan& plan, Communicator& world, const RunData& data, const Tokenizer& tokenizer,
                   const StepSource& source, Decoder& decoder, ShardedModel& model, Engine& engine, RunSteps& steps,
                   const AdapterRun* adapter, const PolicyRun* policy, ValueModel* values)
    : plan_(plan),
      world_(world),
      data_(data),
      tokenizer_(tokenizer),
      source_(source),
      decoder_(decoder),
      model_(model),
      engine_(engine),
      steps_(steps),
      adapter_(adapter),
      policy_(policy),
      values_(values),
      writer_(model, steps.checkpointed(), /*with_frozen=*/adapter == nullptr, plan.layout.async_save) {}

void RunSaver::hash_files() {
  if (world_.rank() == 0) files_ = hash_run_files(plan_);
}

Json RunSaver::fingerprint() const {
  Json run = {{"seed", plan_.seed},
              {"train_batch", plan_.layout.train_batch()},
              {"seq_length", plan_.layout.seq_length},
              {"separate_documents", plan_.data.separate_documents},
              {"dtype", name_of(plan_.layout.sharding.dtype)},
              {"data", fmt::format("{:016x}", source_.fingerprint())}};
  if (plan_.alignment.of_answers()) run["alignment"] = plan_.alignment.describe();
  if (plan_.layout.sharding.virtual_ranks > 0) run["virtual_ranks"] = plan_.layout.sharding.virtual_ranks;
  return run;
}

std::vector<std::string> RunSaver::describe_changes(const CheckpointInfo& info) const {
  std::vector<std::string> lines;
  const Json now = fingerprint(), &then = info.run;
  for (const auto& [key, value] : now.items())
    if (!then.contains(key) || then[key] != value)
      lines.push_back(
          fmt::format("{} is {}, the checkpoint was trained with {}: the run goes on, but not as if it "
                      "had never stopped",
                      key, value.dump(), then.value(key, Json()).dump()));
  const std::string files = describe_changed_files(then.value("files", Json()), files_);
  if (!files.empty()) lines.push_back(files);
  return lines;
}

void RunSaver::resume(const fs::path& checkpoint, const CheckpointInfo& info) {
  const bool own = is_checkpoint(checkpoint) && lies_in(checkpoint, plan_.output_dir);
  if (own) saved_ = info.step;
  last_saved_ = checkpoint;
  if (own && plan_.best && info.best && info.best->metric == plan_.best->metric) best_ = info.best;
}

void RunSaver::begin_receipt(const fs::path& checkpoint) {
  if (plan_.receipt_every == 0) return;
  receipt_.emplace(plan_, data_, model_, /*with_frozen=*/adapter_ == nullptr);
  receipt_->begin(steps_.made(), fingerprint(), files_, checkpoint);
}

Json RunSaver::about() const {
  const int64_t steps = steps_.made();
  int64_t tokens = 0;
  for (int64_t step = 0; step < steps; ++step) tokens += source_.tokens_of_step(step);
  Json about{
      {"family", decoder_.config().family},
      {"max_steps", plan_.max_steps},
      {"tokens", tokens},
      {"epoch", static_cast<double>(steps * plan_.layout.train_batch()) / static_cast<double>(source_.num_samples())}};
  for (const Resolved& row : plan_.resolved)
    if (row.key == "optimizer") about["optimizer"] = row.value;
  if (const auto* custom = std::get_if<CustomOptions>(&plan_.layout.sharding.optimizer.method))
    about["optimizer"] = custom->optimizer->name();
  if (!link_.empty()) about[kReceiptKey] = link_;
  return about;
}

ModelConfig RunSaver::exported_config() const { return with_stop_ids(decoder_.config(), data_.stop_ids, tokenizer_); }

TokenizerExport RunSaver::exported_tokenizer() const {
  return {plan_.data.tokenizer, plan_.data.add_special_tokens, data_.chat_template, data_.specials};
}

void RunSaver::write_beside(const fs::path& folder, int64_t step) const {
  if (policy_ != nullptr) policy_->save(folder, step);
  if (values_ != nullptr) {
    const fs::path aside = fs::path(plan_.output_dir) / kValuesAside;
    fs::rename(checkpoint_path(aside, step), folder / kValueModelFolder);
    fs::remove(aside);
    export_companions(values_->config(), plan_.layout.sharding.dtype, exported_tokenizer(), folder / kValueModelFolder);
  }
  if (adapter_ == nullptr)
    return export_companions(exported_config(), plan_.layout.sharding.dtype, exported_tokenizer(), folder);
  adapter_->write_config(folder);
  export_tokenizer(exported_tokenizer(), folder);
}

CheckpointInfo RunSaver::info(bool validated) {
  CheckpointInfo info{.step = steps_.made(),
                      .world_size = world_.size(),
                      .zero_stage = plan_.layout.zero_stage,
                      .run = fingerprint(),
                      .skipped = engine_.skipped(),
                      .loss_scale = engine_.scaler().state(),
                      .model_state = decoder_.state(),
                      .validated = validated,
                      .pending = model_.optimizer().pending(),
                      .best = best_,
                      .written_by = plan_.program,
                      .about = about()};
  info.run["files"] = files_;
  info.local = steps_.worker_info();
  if (adapter_ != nullptr) info.base = adapter_->base_info();
  return info;
}

std::string RunSaver::save_values() {
  const fs::path aside = fs::path(plan_.output_dir) / kValuesAside;
  if (world_.rank() == 0) with_io_errors(aside, [&] { remove_all_of(aside); });  // a run that was killed left it
  return values_->save(aside, steps_.made(), plan_.program);
}

void RunSaver::save(bool validated, bool last) {
  finish();
  steps_.drain();
  const int64_t step = steps_.made();
  if (receipt_) link_ = receipt_->line_of(step);
  if (values_ != nullptr)
    if (std::string failure = save_values(); !failure.empty())
      return end({.step = step, .path = checkpoint_path(plan_.output_dir, step), .failure = std::move(failure)}, last);
  const fs::path folder = plan_.output_dir, best = best_ ? checkpoint_path(folder, best_->step) : fs::path();
  writer_.begin(
      {.info = info(validated),
       .folder = folder,
       .add_files = [this, step](const fs::path& to) { write_beside(to, step); },
       .files_change = policy_ != nullptr,
       .states_change = plan_.layout.staleness.has_value(),
       .then = [folder, best, keep = plan_.save_total_limit] { remove_old_checkpoints(folder, keep, best); }});
  if (last || !plan_.layout.async_save) end(writer_.finish(), last);
}

bool RunSaver::go_on(const StepReport& report) {
  const bool added = receipt_ && receipt_->after_step(report);
  if (!writer_.under_way()) return added;
  if (const std::optional<SaveOutcome> outcome = writer_.advance()) end(*outcome, /*last=*/false);
  return added;
}

void RunSaver::finish() {
  if (writer_.under_way()) end(writer_.finish(), /*last=*/false);
}

void RunSaver::end(const SaveOutcome& outcome, bool last) {
  constexpr int kMostFailures = 3;
  const bool failed = !outcome.failure.empty();
  failures_ = failed ? failures_ + 1 : 0;
  require<IoError>(!failed || !last, "{}", outcome.failure);
  require<IoError>(failures_ < kMostFailures, "{} checkpoints in a row could not be saved, the last one because of {}",
                   failures_, outcome.failure);
  if (!failed) saved_ = outcome.step, last_saved_ = outcome.path;
  if (failed && best_ && best_->step == outcome.step) best_ = best_before_;
  if (told_) told_(outcome);
}

void RunSaver::remove_old() {
  const fs::path best = best_ ? checkpoint_path(plan_.output_dir, best_->step) : fs::path();
  if (world_.rank() == 0) remove_old_checkpoints(plan_.output_dir, plan_.save_total_limit, best);
}

void RunSaver::compare(int64_t step, const Evaluation& evaluation) {
  best_before_ = best_;
  best_ = best_with(best_, step, evaluation, *plan_.best);
}

ExportRecord RunSaver::load_best() {
  ExportRecord record{.step = steps_.made(), .written_by = plan_.program, .receipt = link_};
  if (!best_ || best_->step == record.step) return record;
  const fs::path path = found_by_first(world_, model_.context(), [&] {
    fs::path found = checkpoint_path(plan_.output_dir, best_->step);
    require<IoError>(is_checkpoint(found),
                     "{} was the best checkpoint and is gone: `nought convert` writes the weights of another one",
                     found.string());
    return found.string();
  });
  Checkpoint checkpoint(path, decoder_);
  if (adapter_ != nullptr) adapter_->take_up(checkpoint);
  steps_.end_serving();
  model_.load(checkpoint, checkpoint.info().step - checkpoint.info().skipped);
  if (values_ != nullptr) values_->resume(path);
  record.best = best_;
  return record;
}

void RunSaver::export_weights(const ExportRecord& record, bool writes) {
  if (writes && adapter_ != nullptr)
    adapter_->export_to(model_, exported_tokenizer(), plan_.output_dir);
  else if (writes)
    export_hf_folder(model_, exported_config(), exported_tokenizer(), plan_.output_dir, plan_.max_shard_bytes,
                     plan_.model_dir);
  if (writes && values_ != nullptr)
    values_->export_to(fs::path(plan_.output_dir) / kValueModelFolder, exported_tokenizer());
  if (world_.rank() == 0) write_export_record(record, plan_.output_dir);
}

}  // namespace nought
