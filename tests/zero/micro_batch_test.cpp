// A micro-batch holds what is its own: its gradients until they are final, its deferred products, what its model keeps.
#include "nought/zero/micro_batch.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/autograd/functions.h"
#include "nought/comm/thread.h"

namespace nought::micro_batch_test {
namespace {

constexpr int64_t kTokens = 6, kVocabulary = 20, kHidden = 8;
constexpr double kScale = 0.5 / kTokens;

/// An embedding, a product and a tied head: the head forms the gradient of the embedding in the forward pass.
class Tied final : public Model {
 public:
  Tied() {
    Unit& embedding = add_unit("embedding");
    table_ = embedding.add("table", {kVocabulary, kHidden}, Init::normal(0.5), ParameterRole::embedding);
    Unit& block = add_unit("block");
    norm_ = block.add("norm", {kHidden}, Init::ones(), ParameterRole::norm);
    weight_ = block.add("weight", {kHidden, kHidden}, Init::normal(0.5));
    add_unit("head").borrow(embedding);
  }
  Var loss(Tape& tape, const Batch& batch, double gradient_scale) override {
    const auto unit = [&](size_t i) -> Unit& { return *units()[i]; };
    Var x = tape.run_unit(unit(0), {}, [&](Tape& t, const Var&) { return embedding(t, batch.input_ids, table_); });
    x = tape.run_unit(unit(1), x, [&](Tape& t, const Var& in) {
      return add(t, in, linear(t, rms_norm(t, in, norm_, 1e-6), weight_, {}, WeightLayout::out_in));
    });
    return tape.run_unit(unit(2), x, [&](Tape& t, const Var& in) {
      return cross_entropy_head(t, in, table_, batch.targets, gradient_scale);
    });
  }

 private:
  ParameterView table_, norm_, weight_;
};

Batch batch_of(const Context& context, int32_t seed) {
  Batch batch{context.empty({1, kTokens}, DType::i32), context.empty({1, kTokens}, DType::i32)};
  for (int32_t i = 0; i < kTokens; ++i) {
    batch.input_ids.data<int32_t>()[i] = (seed * 7 + i * 3) % kVocabulary;
    batch.targets.data<int32_t>()[i] = (seed * 5 + i * 2 + 1) % kVocabulary;
  }
  return batch;
}

/// Calls body(model, batches) on each rank of every stage.
template <class Body>
void on_every_stage(const Body& body) {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
      run_ranks(ranks, [&](Communicator& group, const Context& context) {
        Tied tied;
        ShardedModel model(context, group, tied, {.policy = Policy::stage(stage)});
        model.load(InitialState(1));
        const std::vector<Batch> batches{batch_of(context, group.rank()), batch_of(context, group.rank() + 9)};
        body(model, batches);
      });
    }
}

using Gradients = std::vector<std::vector<float>>;

/// The summed gradients of the step, which ends.
Gradients take_gradients(ShardedModel& model) {
  model.finish_gradients();
  Gradients all;
  for (size_t unit = 0; unit < model.model().units().size(); ++unit)
    for (const Tensor& gradient : model.gather_gradients(unit)) all.push_back(gradient.to_vector<float>());
  model.discard_gradients();
  return all;
}

Gradients one_after_another(ShardedModel& model, const std::vector<Batch>& batches, bool deferred) {
  for (size_t i = 0; i < batches.size(); ++i) {
    MicroBatch micro_batch(model, batches[i],
                           {.gradient_scale = kScale, .last = i + 1 == batches.size(), .deferred = deferred});
    micro_batch.forward();
    micro_batch.backward();
    if (deferred) micro_batch.form_weight_gradients();
  }
  return take_gradients(model);
}

TEST(MicroBatch, deferred_weight_gradients_have_the_same_bits_at_every_stage) {
  on_every_stage([](ShardedModel& model, const std::vector<Batch>& batches) {
    const Gradients at_once = one_after_another(model, batches, false);
    EXPECT_TRUE(std::any_of(at_once[2].begin(), at_once[2].end(), [](float each) { return each != 0; }));
    EXPECT_EQ(one_after_another(model, batches, true), at_once);
  });
}

TEST(MicroBatch, two_between_their_passes_add_up_as_two_in_turn) {
  on_every_stage([](ShardedModel& model, const std::vector<Batch>& batches) {
    const Gradients in_turn = one_after_another(model, batches, false);
    for (const bool second_first : {false, true}) {
      MicroBatch first(model, batches[0], {.gradient_scale = kScale, .last = second_first});
      MicroBatch second(model, batches[1], {.gradient_scale = kScale, .last = !second_first});
      const double loss = first.forward().item();
      EXPECT_NE(second.forward().item(), loss);
      (second_first ? second : first).backward();
      (second_first ? first : second).backward();
      const Gradients sums = take_gradients(model);
      for (size_t i = 0; i < sums.size(); ++i)
        for (size_t k = 0; k < sums[i].size(); ++k) ASSERT_NEAR(sums[i][k], in_turn[i][k], 1e-6);
      if (model.options().policy.shard_gradients) {
        EXPECT_EQ(sums, in_turn) << "each is reduced alone, and a sum of two has no order";
      }
    }
  });
}

TEST(MicroBatch, one_that_is_given_up_leaves_nothing_behind_where_gradients_are_sharded) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    Tied tied;
    ShardedModel model(context, group, tied, {.policy = Policy::stage(2)});
    model.load(InitialState(1));
    const Batch batch = batch_of(context, 1), other = batch_of(context, 2);
    const int64_t before = context.memory->ledger().current(Category::gradients);
    {
      MicroBatch given_up(model, other, {});
      given_up.forward();
      EXPECT_GT(context.memory->ledger().current(Category::gradients), before) << "the head's, formed already";
    }
    EXPECT_EQ(context.memory->ledger().current(Category::gradients), before);
    const auto alone = one_after_another(model, {batch}, false);
    {
      MicroBatch given_up(model, other, {});
      given_up.forward();
    }
    EXPECT_EQ(one_after_another(model, {batch}, false), alone);
  });
}

TEST(MicroBatch, what_is_not_recorded_wants_no_gradients) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  Tied tied;
  ShardedModel model(context, *self, tied, {.training = false});
  model.load(InitialState(1));
  const Batch batch = batch_of(context, 1);
  MicroBatch evaluated(model, batch, {.recording = false}), recorded(model, batch, {});
  const double loss = evaluated.forward().item();
  EXPECT_GT(loss, 0);
  EXPECT_EQ(recorded.forward().item(), loss);
  recorded.backward();
  EXPECT_EQ(context.memory->ledger().current(Category::gradients), 0);
  EXPECT_THROW(evaluated.backward(), Error);
}

TEST(MicroBatch, deferred_products_free_what_they_kept_one_by_one) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  Tied tied;
  ShardedModel model(context, *self, tied, {});
  model.load(InitialState(1));
  const Batch batch = batch_of(context, 1);
  const auto kept = [&] { return context.memory->ledger().current(Category::activations); };
  const int64_t before = kept();
  {
    MicroBatch micro_batch(model, batch, {.deferred = true});
    micro_batch.forward();
    micro_batch.backward();
    const int64_t waiting = kept();
    EXPECT_GT(waiting, before) << "the inputs of the products";
    micro_batch.form_weight_gradients();
    EXPECT_LT(kept(), waiting);
  }
  EXPECT_EQ(kept(), before);
}

TEST(MicroBatch, between_the_walk_back_and_the_products_only_small_gradients_wait) {
  for (const int stage : {2, 3})
    run_ranks(2, [&](Communicator& group, const Context& context) {
      Tied tied;
      ShardedModel model(context, group, tied, {.policy = Policy::stage(stage)});
      model.load(InitialState(1));
      const Batch batch = batch_of(context, group.rank());
      const auto kept = [&] { return context.memory->ledger().current(Category::gradients); };
      MicroBatch micro_batch(model, batch, {.gradient_scale = kScale, .deferred = true});
      micro_batch.forward();
      const int64_t head = kept();
      micro_batch.backward();
      EXPECT_GE(kept(), head + kHidden * 4) << "the norm's";
      EXPECT_LT(kept(), head + kHidden * kHidden * 4) << "no room for the product's";
      micro_batch.form_weight_gradients();
      model.finish_gradients();
      EXPECT_LT(kept(), head) << "shards alone";
      model.discard_gradients();
    });
}

}  // namespace
}  // namespace nought::micro_batch_test
