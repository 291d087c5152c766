#include "nought/checkpoint/checkpoint_writer.h"

#include <array>
#include <exception>
#include <utility>

#include "nought/base/open_file.h"
#include "nought/base/timing.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/checkpoint_rank_states.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/mesh.h"
#include "nought/io/atomic_folder.h"
#include "nought/io/files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// What the event failed with; "" if it did not. Waits for it.
std::string failure_of(const Event& event) {
  try {
    event.wait();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// What f throws; "" if it does not.
template <class F>
std::string failure_in(F&& f) {
  try {
    f();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(ShardedModel& model, const CheckpointedWorkers& workers, bool with_frozen,
                                   bool beside_training)
    : model_(model),
      workers_(workers),
      world_(workers.world == nullptr ? model.mesh().world() : *workers.world),
      with_frozen_(with_frozen),
      contexts_(model.context()),
      room_(beside_training ? SaveRoom(model) : SaveRoom()),
      thread_(Stream::Kind::worker, "save") {
  thread_.submit(use_one_openmp_thread);  // the cores are at work
}

CheckpointWriter::~CheckpointWriter() {
  if (file_) file_->stop();
}

// --- beginning ---

void CheckpointWriter::begin(SaveRequest request) {
  require(!under_way(), "checkpoint-{} is saved while another one is", request.info.step);
  began_ = std::chrono::steady_clock::now(), stall_ = 0;
  waited_before_ = model_.optimizer().states().waited_for_readers();
  stall_ += seconds_of([&] {
    request_ = std::move(request);
    path_ = checkpoint_path(request_.folder, request_.info.step);
    failure_.clear(), done_ = {};
    phase_ = Phase::writing;
    model_.settle();
    if (world_.rank() == 0) failure_ = failure_in([&] { begin_folder(path_); });
    // No rank writes before there is the folder.
    if (ask_all(/*waits=*/true).second == 0) begin_writing();
  });
}

void CheckpointWriter::begin_writing() {
  const fs::path partial = partial_folder(path_);
  file_ = std::make_shared<RankFile>(model_, workers_.steps, with_frozen_, room_, contexts_, world_.rank(), partial);
  file_->begin_copies();
  const bool first = world_.rank() == 0, at_once = file_->changes_at_once() || request_.files_change;
  const Event taken = thread_.submit([this, file = file_, first, at_once, partial] {
    file->take();
    if (first && at_once && request_.add_files) with_io_errors(path_, [&] { request_.add_files(partial); });
  });
  done_ = thread_.submit([this, file = file_, first, at_once, partial, taken] {
    taken.wait();
    file->finish();
    if (first && !at_once && request_.add_files) with_io_errors(path_, [&] { request_.add_files(partial); });
  });
  model_.optimizer().states().protect_until(taken);
  if (at_once || request_.states_change || !room_.exists()) taken.state()->settle();
}

void CheckpointWriter::begin_publishing() {
  file_.reset();
  phase_ = Phase::publishing;
  done_ = world_.rank() == 0 ? thread_.submit([this] { publish(); }) : Event();
}

void CheckpointWriter::publish() {
  const fs::path partial = partial_folder(path_);
  with_io_errors(path_, [&] {
    CheckpointEntries entries = take_entries(request_.info.world_size, partial);
    const Json own = entries.own.empty() ? Json() : rank_states_json(model_.mesh(), std::move(entries.own));
    write_manifest(request_.info, std::move(entries.blocks), partial, own);
  });
  publish_folder(path_);
  if (request_.then) request_.then();
}

// --- going on ---

std::pair<int, int> CheckpointWriter::ask_all(bool waits) {
  if (waits && done_.state()) done_.state()->settle();
  const bool ready = done_.ready();
  if (ready && failure_.empty()) failure_ = failure_of(done_);
  std::array<double, 2> told{ready ? 1.0 : 0.0, failure_.empty() ? 0.0 : 1.0};
  all_reduce_values(world_, model_.context(), told);
  return {static_cast<int>(told[0]), static_cast<int>(told[1])};
}

std::optional<SaveOutcome> CheckpointWriter::advance(bool waits) {
  require(under_way(), "no checkpoint is being saved");
  std::optional<std::string> ended;
  stall_ += seconds_of([&] {
    const auto [ready, failed] = ask_all(waits);
    if (ready < world_.size()) return;
    if (failed > 0)
      ended = give_up();
    else if (phase_ == Phase::writing)
      begin_publishing();
    else
      ended = "";
  });
  if (!ended) return std::nullopt;
  return end(std::move(*ended));
}

SaveOutcome CheckpointWriter::finish() {
  while (true)
    if (std::optional<SaveOutcome> outcome = advance(/*waits=*/true)) return std::move(*outcome);
}

std::string CheckpointWriter::give_up() {
  file_.reset();
  std::string failure;
  for (const std::string& text : texts_of_ranks(world_, model_.context(), failure_))
    if (failure.empty()) failure = text;
  if (world_.rank() == 0)
    failure_in(
        [&] { with_io_errors(path_, [&] { remove_all_of(partial_folder(path_)); }); });  // the next save tries again
  return failure;
}

SaveOutcome CheckpointWriter::end(std::string failure) {
  phase_ = Phase::none;
  model_.optimizer().states().protect_until({});
  const double waited = model_.optimizer().states().waited_for_readers() - waited_before_;
  SaveOutcome outcome{.step = request_.info.step,
                      .path = path_,
                      .failure = std::move(failure),
                      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(),
                      .stall = stall_ + waited};
  request_ = {};
  return outcome;
}

}  // namespace nought
