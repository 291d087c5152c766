// What is wrong on an accelerator is wrong on the guarded device, every time: five mistakes in the step of a model,
// each of which goes unnoticed on a CPU or depends on the moment there.
#include <cmath>
#include <cstdio>

#include "support/forwarding_communicator.h"
#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/tiny_llama.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/nn/objective.h"

namespace nought::faults_test {
namespace {

using ::testing::HasSubstr;

/// Hands all collectives on, and forgets the Event of every gather: what waits for it waits for nothing.
class Forgetful final : public test::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Event submit(Collective collective) override {
    const bool forgets = collective.kind == Collective::all_gather;
    const Event event = inner().submit(std::move(collective));
    return forgets ? Event() : event;
  }
};

/// Looks at a logit from the host before it makes losses of all.
class Curious final : public Objective {
 public:
  RowLoss rows(const Batch& batch) const override {
    return [inner = CrossEntropyObjective().rows(batch)](const Context& context, const LogitRows& rows) {
      if (std::isnan(*rows.logits.data<float>())) std::puts("a logit is no number");
      inner(context, rows);
    };
  }
  double weight(const Batch& batch) const override { return CrossEntropyObjective().weight(batch); }
};

struct Mistake {
  bool forgets_gathers = false, reads_logits = false;
  test::Fault kernels = test::Fault::none;
};

/// The loss of a batch at stage 3.
double loss_on(int ranks, bool guarded, const Mistake& mistake = {}) {
  test::TrainingCase each = test::learning(test::tiny_llama(), test::sharded(ranks, 3));
  if (mistake.reads_logits) each.prepare = [](Decoder& decoder) { decoder.set_objective(std::make_shared<Curious>()); };
  double loss = 0;
  run_ranks(test::contexts_of(ranks, guarded, mistake.kernels), [&](Communicator& group, const Context& context) {
    Forgetful forgetful(group);
    test::TrainingRank rank(mistake.forgets_gathers ? static_cast<Communicator&>(forgetful) : group, context, each);
    const double mine = rank.evaluate(0);
    if (rank.is_first()) loss = mine;
  });
  return loss;
}

TEST(Faults, without_one_the_guarded_device_agrees_with_the_cpu) {
  for (const int ranks : {1, 2}) EXPECT_EQ(loss_on(ranks, true), loss_on(ranks, false)) << ranks;
  EXPECT_EQ(loss_on(1, false, {.reads_logits = true}), loss_on(1, false)) << "on a CPU nobody notices";
}

TEST(Faults, a_read_on_the_host_ends_the_program) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(loss_on(1, true, {.reads_logits = true}), "");
}

TEST(Faults, a_gather_that_nobody_waits_for_is_a_loss_that_is_no_number) {
  EXPECT_TRUE(std::isnan(loss_on(2, true, {.forgets_gathers = true})));
}

TEST(Faults, tensors_that_work_in_flight_does_not_keep_are_somebody_elses) {
  // The ids of tokens are gone too: each is -1 by now.
  EXPECT_THAT(test::message_of<Error>([] { loss_on(1, true, {.kernels = test::Fault::frees_early}); }),
              HasSubstr("is outside [0, 256)"));
}

TEST(Faults, an_operation_on_another_stream_has_not_run_when_its_result_is_read) {
  EXPECT_TRUE(std::isnan(loss_on(1, true, {.kernels = test::Fault::other_stream})));
}

TEST(Faults, the_memory_of_another_rank_is_for_transports_alone) {
  std::vector<Tensor> windows(2);
  run_ranks(test::contexts_of(2, true), [&](Communicator& ranks, const Context& context) {
    const auto rank = static_cast<size_t>(ranks.rank());
    windows[rank] = context.zeros({4}, DType::f32);
    ranks.barrier().wait();
    const Tensor own = context.zeros({4}, DType::f32), &theirs = windows[1 - rank];
    EXPECT_EQ(test::message_of<DeviceError>([&] { context.run(AddTo{.x = theirs, .into = own}); }),
              "AddTo: x lies in the memory of another rank");
    EXPECT_EQ(test::message_of<DeviceError>([&] { context.copy(theirs, own); }),
              "copy: f32[4] lies in the memory of another rank than f32[4]");
    ranks.all_reduce(windows[rank]).wait();  // a transport reads both
    EXPECT_EQ(context.to_host<float>(windows[rank]), std::vector<float>(4));
    ranks.barrier().wait();
  });
}

}  // namespace
}  // namespace nought::faults_test
