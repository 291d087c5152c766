#include "nought/prove/recording.h"

#include <algorithm>
#include <utility>

namespace nought {

namespace {

/// The end of a recorded call. Who waits for it is written down.
class RecordedEnd final : public Event::State {
 public:
  RecordedEnd(Event end, TranscriptRecorder& recorder, int call)
      : end_(std::move(end)), recorder_(recorder), call_(call) {}
  void settle() override {
    recorder_.wait(call_);
    if (end_.state()) end_.state()->settle();
  }
  bool ready() override { return end_.ready(); }
  std::exception_ptr error() override { return end_.state() ? end_.state()->error() : nullptr; }

  const Event& end() const { return end_; }
  int call() const { return call_; }

 private:
  Event end_;
  TranscriptRecorder& recorder_;
  int call_;
};

class RecordedCommunicator final : public Communicator {
 public:
  RecordedCommunicator(std::unique_ptr<Communicator> inner, TranscriptRecorder& recorder, int group)
      : inner_(std::move(inner)), recorder_(recorder), group_(group) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }
  Event submit(Collective collective) override {
    const Tensor& payload = collective.payload();
    TranscriptCall call{.group = group_,
                        .kind = collective.kind,
                        .op = collective.op,
                        .dtype = payload ? payload.dtype() : DType::u8,
                        .bytes = payload && !sizes_differ(collective.kind) ? payload.bytes() : 0,
                        .peer = collective.root,
                        .tag = collective.tag};
    if (collective.kind == Collective::send_recv) {
      call.kind = Collective::send, call.posted = true;
      recorder_.call(call);
      call.kind = Collective::recv, call.posted = false, call.ends_posted = true;
      call.peer = collective.source, call.bytes = collective.out.bytes(), call.dtype = collective.out.dtype();
    }
    const int number = recorder_.call(call);
    return Event(std::make_shared<RecordedEnd>(inner_->submit(std::move(collective)), recorder_, number));
  }
  void follow(const Event& event) override {
    const auto* const recorded = dynamic_cast<const RecordedEnd*>(event.state().get());
    if (recorded == nullptr) return inner_->follow(event);
    recorder_.follow(group_, recorded->call());
    inner_->follow(recorded->end());
  }
  std::unique_ptr<Communicator> split(int color, int key) override { return inner_->split(color, key); }
  Traffic traffic() override { return inner_->traffic(); }
  void record(std::shared_ptr<Timeline> timeline) override { inner_->record(std::move(timeline)); }
  Timeline* timeline() const override { return inner_->timeline(); }
  void set_timeout(std::chrono::milliseconds timeout) override { inner_->set_timeout(timeout); }
  FlightRecorder* recorder() const override { return &recorder_.flight(); }

 private:
  std::unique_ptr<Communicator> inner_;
  TranscriptRecorder& recorder_;
  int group_;
};

/// Units that somebody has leased and not released.
std::vector<std::string> leased_units(const ShardedModel& model) {
  std::vector<std::string> leased;
  const auto& units = model.model().units();
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit]->segments().empty()) continue;
    try {
      model.residency().whole({unit, 0});
      leased.push_back(units[unit]->name());
    } catch (const Error&) {  // it is not leased, as it should be
    }
  }
  return leased;
}

}  // namespace

TranscriptRecorder::TranscriptRecorder(const Grid& grid, int rank, bool with_frozen, Deadline deadline)
    : grid_(grid),
      with_frozen_(with_frozen),
      deadline_(deadline),
      flight_(FlightPage::make(), rank, grid.ranks(), ""),
      asked_(with_frozen) {
  transcript_.rank = rank, transcript_.stage = grid.coordinate(rank, Axis::pipeline);
}

std::string TranscriptRecorder::name_of_group(const std::vector<int>& ranks) const {
  if (std::ssize(ranks) == grid_.ranks()) return "all ranks";
  const auto along = [&](std::initializer_list<Axis> axes) {
    std::string text;
    int size = 1;
    for (const Axis axis : axes) {
      const auto place = [&](int rank) { return grid_.coordinate(rank, axis); };
      if (std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return place(rank) == place(ranks.front()); }))
        continue;
      text += (text.empty() ? "" : " x ") + std::string(name_of(axis));
      size *= grid_.size(axis);
    }
    return std::pair(text, size == static_cast<int>(ranks.size()));
  };
  auto [name, whole] = along({Axis::pipeline, Axis::replicate, Axis::shard, Axis::context, Axis::tensor});
  if (!whole && name != "pipeline") {
    const auto experts =
        along({Axis::pipeline, Axis::replicate, Axis::expert_shard, Axis::expert, Axis::expert_tensor});
    if (experts.second) name = experts.first;
  }
  if (name == "pipeline" && ranks.size() == 2 && grid_.size(Axis::pipeline) > 2)
    name = fmt::format("stages {} and {}", grid_.coordinate(ranks.front(), Axis::pipeline),
                       grid_.coordinate(ranks.back(), Axis::pipeline));
  return name;
}

std::unique_ptr<Communicator> TranscriptRecorder::watched(std::unique_ptr<Communicator> group,
                                                          const std::vector<int>& ranks) {
  std::string name = name_of_group(ranks);
  const auto alike = std::count_if(transcript_.groups.begin(), transcript_.groups.end(),
                                   [&](const TranscriptGroup& each) { return each.ranks == ranks; });
  if (alike > 0) name += fmt::format(", group {} of these", alike + 1);
  transcript_.groups.push_back({ranks, std::move(name)});
  if (ranks.size() == 1) return group;
  return std::make_unique<RecordedCommunicator>(std::move(group), *this,
                                                static_cast<int>(transcript_.groups.size()) - 1);
}

void TranscriptRecorder::enters(std::string_view part, DryRunRank& rank) {
  if (std::chrono::steady_clock::now() >= deadline_) throw DeadlinePassed();
  HeldBetween held;
  const MemoryLedger& ledger = rank.context.memory->ledger();
  for (int pool = 0; pool < kNumPools; ++pool)
    for (int category = 0; category < kNumCategories; ++category)
      held.bytes[static_cast<size_t>(pool)][static_cast<size_t>(category)] =
          ledger.current(static_cast<Category>(category), static_cast<Pool>(pool));
  held.leased = leased_units(rank.model);
  if (part == "end") saved_ = saved_intervals(rank.model, rank.local ? &*rank.local : nullptr, with_frozen_);
  const std::lock_guard lock(mutex_);
  if (part == "step") {
    part_ = fmt::format("step {}", ++steps_);
    flight_.set_step(steps_);
  } else {
    part_ = part;
  }
  flight_.set_phase("");
  held.before = part_;
  held_.push_back(std::move(held));
}

int TranscriptRecorder::place_now() {
  const auto activity = flight_.page()->load<FlightActivity>(FlightPage::kActivity);
  TranscriptPlace place{part_, flight_text(activity.phase), flight_text(activity.unit), std::string(flight_.subject())};
  // Most calls have the place of one of the last few before them.
  constexpr size_t kLookedAt = 4;
  std::vector<TranscriptPlace>& places = transcript_.places;
  for (size_t back = 1; back <= std::min(kLookedAt, places.size()); ++back)
    if (places[places.size() - back] == place) return static_cast<int>(places.size() - back);
  places.push_back(std::move(place));
  return static_cast<int>(places.size()) - 1;
}

int TranscriptRecorder::call(TranscriptCall call) {
  const std::lock_guard lock(mutex_);
  call.place = place_now();
  transcript_.calls.push_back(call);
  const int number = static_cast<int>(transcript_.calls.size()) - 1;
  transcript_.events.push_back({.kind = TranscriptEvent::Kind::call, .call = number});
  return number;
}

void TranscriptRecorder::wait(int call) {
  const std::lock_guard lock(mutex_);
  transcript_.events.push_back({.kind = TranscriptEvent::Kind::wait, .call = call});
}

void TranscriptRecorder::follow(int group, int call) {
  const std::lock_guard lock(mutex_);
  transcript_.events.push_back({.kind = TranscriptEvent::Kind::follow, .call = call, .group = group});
}

}  // namespace nought
