// An optimizer from outside that does the arithmetic of a built-in one has its bits, whatever stores and moves what it
// updates: stages, ranks, dtypes, offload tiers, states in 8 bits, rounding at random, updates beside or behind a step.
#include "support/custom_optimizers.h"
#include "support/offload_runs.h"
#include "support/size.h"

namespace nought::custom_updates_test {
namespace {

using namespace test;

using CustomUpdates = Offload;
NOUGHT_FILE_SIZE(medium);

/// The built-in optimizer's options with the other in its place.
template <class Own, class... Arguments>
OptimizerOptions with(OptimizerOptions options, Arguments... arguments) {
  options.method = CustomOptions{std::make_shared<Own>(arguments...)};
  return options;
}

TEST_F(CustomUpdates, have_the_bits_of_built_in_ones_at_every_stage) {
  const OptimizerOptions adamw{.weight_decay = 0.1};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int stage : {0, 1, 2, 3}) {
      const Way way{.ranks = 2, .stage = stage, .dtype = dtype};
      SCOPED_TRACE(way.str());
      EXPECT_EQ(train(way, with<OwnAdamW>(adamw)), train(way, adamw));
      for (const double momentum : {0.0, 0.9}) {
        const OptimizerOptions sgd{.method = SgdOptions{.momentum = momentum}, .weight_decay = 0.1};
        EXPECT_EQ(train(way, with<OwnSgd>(sgd, momentum)), train(way, sgd)) << momentum;
      }
    }
}

TEST_F(CustomUpdates, have_the_bits_of_built_in_ones_in_every_offload_tier) {
  const OptimizerOptions adamw{.weight_decay = 0.1};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto expected = train({.ranks = 2, .stage = 3, .dtype = dtype}, adamw);
    for (const Way& way :
         {Way{2, 3, dtype, true}, Way{2, 3, dtype, true, to_host(100)}, Way{2, 3, dtype, false, to_file(77)},
          Way{2, 3, dtype, true, to_file(100)},
          Way{2, 3, dtype, false, with_gradients(to_file(333), /*early=*/true), parameters_in_file()}}) {
      SCOPED_TRACE(way.str());
      EXPECT_EQ(train(way, with<OwnAdamW>(adamw)), expected);
    }
  }
}

TEST_F(CustomUpdates, have_the_bits_of_built_in_ones_where_states_are_narrow) {
  for (const OptimizerOptions& adamw :
       {OptimizerOptions{.weight_decay = 0.1, .state_block = 64},
        OptimizerOptions{.weight_decay = 0.1, .state_dtype = DType::bf16, .master_weights = false, .seed = 3}})
    for (const OffloadOptions& offload : {OffloadOptions{}, to_file(192)}) {
      const Way way{2, 2, DType::bf16, false, offload};
      SCOPED_TRACE(way.str());
      EXPECT_EQ(train(way, with<OwnAdamW>(adamw)), train(way, adamw));
    }
}

TEST_F(CustomUpdates, have_the_bits_of_built_in_ones_one_step_late) {
  const OptimizerOptions adamw{.weight_decay = 0.1};
  OffloadOptions late = to_file(100);
  late.delay_after = 1;
  const Way way{2, 2, DType::bf16, false, late};
  EXPECT_EQ(train(way, with<OwnAdamW>(adamw)), train(way, adamw));
}

NOUGHT_SIZE(small);
TEST_F(CustomUpdates, end_the_run_with_what_they_throw) {
  class Failing final : public CustomOptimizer {
   public:
    std::string name() const override { return "failing"; }
    std::vector<StateKind> states() const override { return {}; }
    void update(const UpdateNumbers&, const UpdatedElements&) const override { throw Error("no update"); }
  };
  for (const OffloadOptions& offload : {OffloadOptions{}, to_host(100)})
    EXPECT_THROW(train({2, 2, DType::bf16, true, offload}, with<Failing>({})), Error);
}

}  // namespace
}  // namespace nought::custom_updates_test
