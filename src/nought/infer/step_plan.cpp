#include "nought/infer/step_plan.h"

#include <algorithm>
#include <utility>

namespace nought {

namespace {

/// Takes numbers from the front of a plan.
class WordReader {
 public:
  explicit WordReader(std::span<const int32_t> words) : words_(words) {}
  int32_t number() { return take(1)[0]; }
  std::span<const int32_t> take(int64_t count) {
    require(0 <= count && count <= std::ssize(words_), "the plan of a step ends early: {} words are left, {} needed",
            words_.size(), count);
    const auto taken = words_.first(static_cast<size_t>(count));
    words_ = words_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const int32_t> words_;
};

}  // namespace

std::vector<int32_t> StepPlan::words() const {
  const auto word = [](int64_t number) { return static_cast<int32_t>(number); };
  std::vector<int32_t> words{word(static_cast<int64_t>(work)), word(std::ssize(changes))};
  for (const CacheChange& each : changes)
    words.insert(words.end(), {word(each.sequence), word(each.from), word(each.count)});
  words.push_back(word(std::ssize(next)));
  for (const NextTokens& each : next) {
    words.insert(words.end(), {word(each.sequence), word(each.wants_every), each.adapter, word(std::ssize(each.ids))});
    words.insert(words.end(), each.ids.begin(), each.ids.end());
  }
  return words;
}

StepPlan StepPlan::read(std::span<const int32_t> words) {
  WordReader reader(words);
  StepPlan plan;
  const int32_t work = reader.number();
  require(0 <= work && work <= static_cast<int32_t>(Work::end), "the plan of a step names the work {}", work);
  plan.work = static_cast<Work>(work);
  for (int32_t left = reader.number(); left > 0; --left) {
    const auto change = reader.take(3);
    plan.changes.push_back({.sequence = change[0], .from = change[1], .count = change[2]});
  }
  for (int32_t left = reader.number(); left > 0; --left) {
    const auto head = reader.take(4);
    plan.next.push_back(
        {.sequence = head[0], .ids = reader.take(head[3]), .wants_every = head[1] != 0, .adapter = head[2]});
  }
  return plan;
}

StepPlans::StepPlans(Communicator& ranks, const Context& context)
    : ranks_(ranks), context_(context), first_(context.empty({kWordsAtOnce}, DType::i32, Category::communication)) {}

void StepPlans::send(const StepPlan& plan) {
  std::vector<int32_t> words = plan.words();
  words.insert(words.begin(), static_cast<int32_t>(words.size()));
  const int64_t all = std::ssize(words);
  words.resize(static_cast<size_t>(std::max(all, kWordsAtOnce)));
  const auto first = std::span<const int32_t>(words).first(static_cast<size_t>(kWordsAtOnce));
  context_.upload(first, first_);
  ranks_.broadcast(first_, 0).wait();
  if (all <= kWordsAtOnce) return;
  const auto rest = std::span<const int32_t>(words).subspan(first.size());
  ranks_.broadcast(context_.upload({std::ssize(rest)}, rest, Category::communication), 0).wait();
}

StepPlan StepPlans::receive() {
  ranks_.broadcast(first_, 0).wait();
  words_ = context_.to_host<int32_t>(first_);
  const auto all = static_cast<int64_t>(words_.front());
  if (const int64_t more = 1 + all - kWordsAtOnce; more > 0) {
    const Tensor rest = context_.empty({more}, DType::i32, Category::communication);
    ranks_.broadcast(rest, 0).wait();
    const std::vector<int32_t> words = context_.to_host<int32_t>(rest);
    words_.insert(words_.end(), words.begin(), words.end());
  }
  return StepPlan::read(std::span<const int32_t>(words_).subspan(1, static_cast<size_t>(all)));
}

}  // namespace nought
