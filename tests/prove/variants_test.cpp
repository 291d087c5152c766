// Mistakes that ranks can make together, put into what ranks do by patterns: 200 of them, all refused, with the right
// place named. Mistakes in the code stand in scripts/mutants.
#include <functional>

#include "prove/jobs.h"
#include "support/agreement.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/prove/dry_runs.h"
#include "nought/prove/matching.h"
#include "nought/prove/proof.h"
#include "nought/prove/recording.h"
#include "nought/prove/transcript.h"
#include "nought/prove/waits.h"

namespace nought::variants_test {
namespace {

using test::job_of_four;
using test::model_of;
using ::testing::HasSubstr;

/// Jobs whose ranks send messages, share matrices, sequences and states.
const std::vector<DryRuns>& all_runs() {
  static const std::vector<DryRuns> all = [] {
    std::vector<DryRuns> each;
    for (const Layout& layout :
         {job_of_four(1, 2, 1, 2), job_of_four(3, 1, 1, 1), job_of_four(2, 1, 2, 1), job_of_four(1, 1, 1, 4)})
      each.push_back(run_dry(model_of("llama", 4), layout));
    return each;
  }();
  return all;
}

/// The transcript as if the rank did not make the call.
void drop(Transcript& transcript, int number) {
  transcript.calls.erase(transcript.calls.begin() + number);
  std::erase_if(transcript.events, [&](const TranscriptEvent& event) { return event.call == number; });
  for (TranscriptEvent& event : transcript.events) event.call -= event.call > number ? 1 : 0;
}

/// The next call of the same group and of the same kind of call that is another one.
std::optional<int> next_other(const Transcript& transcript, int number) {
  const TranscriptCall& call = transcript.calls[as_index(number)];
  for (int i = number + 1; i < static_cast<int>(transcript.calls.size()); ++i) {
    const TranscriptCall& other = transcript.calls[as_index(i)];
    if (other.group != call.group || other.message() != call.message()) continue;
    if (call.message() && (other.kind != call.kind || other.peer != call.peer || other.tag != call.tag)) continue;
    const bool alike = other.kind == call.kind && other.bytes == call.bytes && other.op == call.op &&
                       transcript.place_of(other).subject == transcript.place_of(call).subject;
    return alike ? std::nullopt : std::optional(i);
  }
  return std::nullopt;
}

/// Puts a mistake at a call; false if it can not be made there.
using Pattern = std::function<bool(Transcript&, int number)>;
struct Named {
  const char* name;
  bool messages;  // it is about these, or about collectives
  Pattern make;
};

std::vector<Named> patterns() {
  const auto change = [](auto edit) {
    return [edit](Transcript& transcript, int number) {
      edit(transcript.calls[as_index(number)]);
      return true;
    };
  };
  const auto dropped = [](Transcript& transcript, int number) {
    drop(transcript, number);
    return true;
  };
  const auto swapped = [](Transcript& transcript, int number) {
    const auto other = next_other(transcript, number);
    if (!other) return false;
    std::swap(transcript.calls[as_index(number)], transcript.calls[as_index(*other)]);
    return true;
  };
  const auto elsewhere = [](Transcript& transcript, int number) {
    TranscriptCall& call = transcript.calls[as_index(number)];
    for (int group = 0; group < static_cast<int>(transcript.groups.size()); ++group)
      if (group != call.group && transcript.groups[as_index(group)].ranks.size() > 1 &&
          call.peer < static_cast<int>(transcript.groups[as_index(group)].ranks.size())) {
        call.group = group;
        return true;
      }
    return false;
  };
  return {{"dropped", false, dropped},
          {"dropped", true, dropped},
          {"swapped", false, swapped},
          {"swapped", true, swapped},
          {"in another group", false, elsewhere},
          {"of another size", false, change([](TranscriptCall& call) { call.bytes += 4; })},
          {"of another size", true, change([](TranscriptCall& call) { call.bytes += 4; })},
          {"of another dtype", false,
           change([](TranscriptCall& call) { call.dtype = call.dtype == DType::f64 ? DType::f32 : DType::f64; })},
          {"of another kind", false, change([](TranscriptCall& call) {
             call.kind = call.kind == Collective::all_gather ? Collective::all_to_all : Collective::all_gather;
           })}};
}

/// Calls of this kind, spread over the run.
std::vector<int> calls_of(const Transcript& transcript, bool messages, int count) {
  std::vector<int> all, some;
  for (int i = 0; i < static_cast<int>(transcript.calls.size()); ++i)
    if (transcript.calls[as_index(i)].message() == messages) all.push_back(i);
  for (int i = 0; i < count && !all.empty(); ++i)
    some.push_back(all[(2 * as_index(i) + 1) * all.size() / (2 * as_index(count))]);
  return some;
}

/// The mistake is found, and the text names the call, or a rank that it meets, with the place in the run.
void expect_named(const RecordedRanks& ranks, const Transcript& before, int number) {
  const auto found = find_mismatch(ranks);
  ASSERT_TRUE(found);
  const TranscriptPlace& place = before.place_of(before.calls[as_index(number)]);
  EXPECT_THAT(found->text, HasSubstr(fmt::format("rank {}", before.rank)));
  EXPECT_THAT(found->text, HasSubstr(place.part));
  EXPECT_THAT(found->text, HasSubstr(place.phase));
  EXPECT_THAT(found->text, HasSubstr(place.subject));
}

NOUGHT_SIZE(medium);
TEST(Variants, a_call_of_one_rank_that_others_do_not_make_is_named) {
  int turn = 0, made = 0;
  for (const DryRuns& runs : all_runs())
    for (const Named& pattern : patterns())
      for (size_t which = 0; which < runs.ranks.transcripts.size(); ++which)
        for (const int number : calls_of(runs.ranks.transcripts[which], pattern.messages, 2)) {
          if (!test::samples(turn++, 7)) continue;
          RecordedRanks ranks = runs.ranks;
          if (!pattern.make(ranks.transcripts[which], number)) continue;
          const Transcript& before = runs.ranks.transcripts[which];
          SCOPED_TRACE(
              fmt::format("{}: {} of rank {}", pattern.name, before.str(before.calls[as_index(number)]), before.rank));
          expect_named(ranks, before, number);
          ++made;
        }
  EXPECT_GE(made, test::sweep(20, 150));
  RecordProperty("variants", made);
}

/// The rank waits for the gradient of an activation before it sends that.
std::optional<RecordedRanks> with_early_wait(const RecordedRanks& of, size_t which, int micro_batch) {
  RecordedRanks ranks = of;
  Transcript& transcript = ranks.transcripts[which];
  const auto find = [&](TranscriptEvent::Kind kind, Collective::Kind call, const std::string& subject) {
    return std::find_if(transcript.events.begin(), transcript.events.end(), [&](const TranscriptEvent& event) {
      const TranscriptCall& one = transcript.calls[as_index(event.call)];
      return event.kind == kind && one.kind == call && transcript.place_of(one).subject == subject;
    });
  };
  const std::string of_gradient = fmt::format("gradient {}", micro_batch);
  const auto waits = find(TranscriptEvent::Kind::wait, Collective::recv, of_gradient);
  if (waits == transcript.events.end()) return std::nullopt;
  const TranscriptEvent waited = *waits, asked{.kind = TranscriptEvent::Kind::call, .call = waited.call};
  std::erase(transcript.events, asked), std::erase(transcript.events, waited);
  const auto send = find(TranscriptEvent::Kind::call, Collective::send, fmt::format("activation {}", micro_batch));
  if (send == transcript.events.end()) return std::nullopt;
  transcript.events.insert(send, {asked, waited});
  return ranks;
}

NOUGHT_SIZE(medium);
TEST(Variants, a_rank_that_waits_for_the_answer_before_it_asks_waits_in_a_circle) {
  int made = 0, turn = 0;
  for (const size_t job : {size_t{0}, size_t{3}}) {
    const RecordedRanks& of = all_runs()[job].ranks;
    EXPECT_FALSE(follow_waits(of).circle);
    for (const size_t which : {size_t{0}, size_t{1}})
      for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
        if (!test::samples(turn++, 4)) continue;
        const auto ranks = with_early_wait(of, which, micro_batch);
        if (!ranks) continue;
        const WaitGraph graph = follow_waits(*ranks);
        ASSERT_TRUE(graph.circle) << "rank " << which << ", activation " << micro_batch;
        EXPECT_THAT(graph.circle->text, HasSubstr("in a circle: "));
        EXPECT_THAT(graph.circle->text, HasSubstr(fmt::format("for gradient {}", micro_batch)));
        ++made;
      }
  }
  EXPECT_GE(made, test::sweep(2, 8));
}

/// A rank that keeps what it should give back.
class Forgetful final : public DryRunWatch {
 public:
  using Forgets = std::function<void(Forgetful&, std::string_view part, DryRunRank& rank)>;
  Forgetful(const Grid& grid, int rank, Forgets forgets) : recorder_(grid, rank), forgets_(std::move(forgets)) {}
  std::unique_ptr<Communicator> watched(std::unique_ptr<Communicator> group, const std::vector<int>& ranks) override {
    return recorder_.watched(std::move(group), ranks);
  }
  const StateSource& states() override { return recorder_.states(); }
  void enters(std::string_view part, DryRunRank& rank) override {
    forgets_(*this, part, rank);
    recorder_.enters(part, rank);
  }
  const std::vector<HeldBetween>& held() const { return recorder_.held(); }
  std::vector<Tensor> kept = {};

 private:
  TranscriptRecorder recorder_;
  Forgets forgets_;
};

std::optional<Counterexample> leak_of(const Layout& layout, int rank, const Forgetful::Forgets& forgets) {
  const Grid grid(layout.grid());
  Forgetful watch(grid, rank, forgets);
  DryRunPlace at{.place = grid.coordinate(rank, Axis::pipeline)};
  at.number = rank, at.watch = &watch;
  dry_run(model_of("llama"), layout, at);
  watch.kept.clear();
  return find_leak(watch.held(), rank);
}

NOUGHT_SIZE(medium);
TEST(Variants, what_is_kept_from_step_to_step_is_named_with_its_pool) {
  int turn = 0;
  for (int stage = 0; stage < 4; ++stage)
    for (int category = 0; category < kNumCategories; ++category) {
      if (!test::samples(turn++, 12)) continue;
      const auto kind = static_cast<Category>(category);
      const int rank = (stage + category) % 4;
      const auto found =
          leak_of(job_of_four(stage, 1, 1, 1), rank, [&](Forgetful& of, std::string_view part, DryRunRank& at) {
            if (part == "step" || part == "end")
              of.kept.push_back(Tensor::empty(*at.context.memory, {128}, DType::f32, kind));
          });
      ASSERT_TRUE(found) << name_of(kind) << " at stage " << stage;
      EXPECT_EQ(found->rank, rank);
      EXPECT_THAT(found->text, HasSubstr(fmt::format("512 B more of {} in the device pool", name_of(kind))));
    }
}

NOUGHT_SIZE(medium);
TEST(Variants, a_unit_that_is_not_released_is_named) {
  int turn = 0;
  for (int stage = 0; stage < 4; ++stage)
    for (const size_t unit : {size_t{0}, size_t{2}, size_t{4}}) {
      if (!test::samples(turn++, 5)) continue;
      std::string name;
      const auto found =
          leak_of(job_of_four(stage, 1, 1, 1), stage, [&](Forgetful&, std::string_view part, DryRunRank& at) {
            if (part != "end") return;
            Unit& forgotten = *at.decoder.units().at(unit);
            name = forgotten.name();
            at.model.before_forward(forgotten);
          });
      ASSERT_TRUE(found) << "stage " << stage;
      EXPECT_THAT(found->text, HasSubstr(fmt::format("unit {} of rank {} is leased", name, stage)));
    }
}

NOUGHT_SIZE(medium);
TEST(Variants, an_interval_that_nobody_writes_is_named) {
  int turn = 0, made = 0;
  for (const DryRuns& runs : all_runs())
    for (size_t which = 0; which < runs.saved.size(); ++which) {
      const auto& all = runs.saved[which].all();
      size_t at = 0;
      for (const auto& [key, intervals] : all) {
        if (at++ % std::max<size_t>(1, all.size() / 3) != 0 || !test::samples(turn++, 6)) continue;
        std::vector<StateIntervals> saved = runs.saved;
        std::vector<Interval>& forgotten = saved[which].all()[key];
        const Interval lost = forgotten.back();
        forgotten.pop_back();
        const auto found = find_missing(saved, runs.asked, runs.classes.chosen);
        ASSERT_TRUE(found) << key;
        EXPECT_THAT(found->text, HasSubstr(fmt::format("elements {} to {} of {} ", lost.begin, lost.end, key)));
        ++made;
      }
    }
  EXPECT_GE(made, test::sweep(5, 40));
}

}  // namespace
}  // namespace nought::variants_test
