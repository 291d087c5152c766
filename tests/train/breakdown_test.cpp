// A breakdown is the arithmetic of spans; what is issued behind what is a property of the program, not of the clock.
#include "nought/train/breakdown.h"

#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/kernels/watch.h"
#include "nought/models/decoder.h"
#include "nought/train/engine.h"

namespace nought {
namespace {

Span span_of(SpanKind kind, const std::string& name, int begin, int end, int64_t bytes = 0) {
  const Span::Clock::time_point start{};
  return {kind, name, start + std::chrono::milliseconds(begin), start + std::chrono::milliseconds(end), bytes};
}

TEST(Breakdown, communication_is_exposed_while_the_computing_thread_waits_for_it) {
  const std::vector<Span> spans{span_of(SpanKind::phase, "forward", 0, 100),
                                span_of(SpanKind::phase, "backward", 100, 300),
                                span_of(SpanKind::phase, "forward", 300, 350),
                                span_of(SpanKind::phase, "optimizer", 350, 400),
                                span_of(SpanKind::operation, "MatMul", 0, 50),
                                span_of(SpanKind::collective, "all_gather", 10, 60),
                                span_of(SpanKind::collective, "all_gather", 80, 90),
                                span_of(SpanKind::wait, "wait", 50, 70),
                                span_of(SpanKind::wait, "wait", 85, 95)};
  const StepBreakdown breakdown = breakdown_of(spans);
  EXPECT_NEAR(breakdown.forward, 0.150, 1e-12);
  EXPECT_NEAR(breakdown.backward, 0.200, 1e-12);
  EXPECT_NEAR(breakdown.optimizer, 0.050, 1e-12);
  EXPECT_NEAR(breakdown.communication, 0.060, 1e-12);
  EXPECT_NEAR(breakdown.exposed, 0.015, 1e-12);
  EXPECT_NEAR(breakdown.hidden(), 0.75, 1e-12);
  EXPECT_EQ(StepBreakdown{}.hidden(), 1);
}

TEST(Breakdown, collectives_are_summed_by_name_and_size) {
  std::vector<CollectiveTotal> totals;
  const std::vector<Span> spans{
      span_of(SpanKind::collective, "reduce_scatter", 0, 8, 64), span_of(SpanKind::collective, "all_gather", 8, 10, 64),
      span_of(SpanKind::collective, "all_gather", 10, 13, 32), span_of(SpanKind::collective, "all_gather", 13, 17, 64),
      span_of(SpanKind::wait, "wait", 0, 4)};
  add_collectives(collectives_of(spans, {}), totals);
  ASSERT_EQ(totals.size(), 3u);
  EXPECT_EQ(totals[0].bytes, 32);
  EXPECT_EQ(totals[1].name, "all_gather");
  EXPECT_EQ(totals[1].calls, 2);
  EXPECT_NEAR(totals[1].seconds, 0.006, 1e-12);
  EXPECT_EQ(totals[2].name, "reduce_scatter");
  add_collectives(collectives_of(spans, {"reduce_scatter"}), totals);
  EXPECT_EQ(totals[1].calls, 2);
  EXPECT_EQ(totals[2].calls, 2);
}

ModelConfig tiny(int64_t layers) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 32},
                                 {"hidden_size", 16},
                                 {"intermediate_size", 24},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 2},
                                 {"max_position_embeddings", 16},
                                 {"tie_word_embeddings", false}});
}

/// Collectives issued by the time a Unit's pass has its first result.
struct Issued {
  int64_t gathers = 0, reductions = 0;
};

/// By what is at work, "block.0.mlp, backward", in the second step of stage 3.
std::map<std::string, Issued> issued_at_first_results(int64_t layers, bool overlap) {
  std::map<std::string, Issued> issued;
  run_ranks(2, [&](Communicator& ranks, const Context& plain) {
    ShardedModel* watched = nullptr;
    Traffic before;
    Context context = plain;
    context.kernels = make_watching_kernels(plain.kernels, [&](std::string_view, std::string_view, const Tensor&) {
      if (watched == nullptr || ranks.rank() != 0) return;
      const Traffic now = ranks.traffic();
      const auto since = [&](Collective each) { return now[each].calls - before[each].calls; };
      issued.try_emplace(watched->at_work(), Issued{since(Collective::all_gather), since(Collective::reduce_scatter)});
    });
    Decoder decoder(tiny(layers));
    ShardedModel model(context, ranks, decoder, {.policy = Policy::stage(3), .overlap = overlap});
    model.load(InitialState(1));
    Engine engine(model);
    const Batch batch{context.zeros({1, 8}, DType::i32), context.zeros({1, 8}, DType::i32)};
    engine.step(std::span(&batch, 1), 16, 1e-3, 1);
    watched = &model, before = ranks.traffic();
    engine.step(std::span(&batch, 1), 16, 1e-3, 1);
  });
  return issued;
}

TEST(Overlap, at_stage_3_the_next_gather_and_the_last_reduction_are_under_way_while_a_unit_computes) {
  constexpr int64_t kLayers = 6, kUnits = kLayers + 2;
  const auto issued = issued_at_first_results(kLayers, true), serial = issued_at_first_results(kLayers, false);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const int64_t unit = layer + 1;  // the embedding is the first
    // What each pass begins with.
    const std::string forward = fmt::format("block.{}.attention_norm, forward", layer),
                      backward = fmt::format("block.{}.mlp, backward", layer);
    ASSERT_TRUE(issued.contains(forward) && issued.contains(backward)) << forward;
    EXPECT_EQ(issued.at(forward).gathers, unit + 2) << "its own, those before it, and the next";
    EXPECT_EQ(serial.at(forward).gathers, unit + 1);
    EXPECT_EQ(issued.at(backward).gathers - serial.at(backward).gathers, 1) << "one ahead on the way back too";
    EXPECT_EQ(issued.at(backward).reductions, kUnits - 1 - unit) << "of all Units behind it";
  }
}

/// Products sleep, and so take as long on a busy machine as on an idle one.
class SleepingKernels final : public Kernels {
 public:
  SleepingKernels(std::shared_ptr<Kernels> inner, std::chrono::milliseconds product)
      : inner_(std::move(inner)), product_(product) {}
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op)                              \
  void run(const Op& op, Stream& stream) override { \
    sleep_for(op);                                  \
    inner_->run(op, stream);                        \
  }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  template <class Op>
  void sleep_for(const Op&) const {}
  void sleep_for(const MatMul&) const { std::this_thread::sleep_for(product_); }

  std::shared_ptr<Kernels> inner_;
  std::chrono::milliseconds product_;
};

/// At stage 3, when every collective takes 3 ms on the wire and every product 2 ms: of three steps, since a thread that
/// is late for want of a core hides less.
std::vector<StepBreakdown> breakdowns_on_a_slow_wire(bool overlap) {
  std::vector<StepBreakdown> breakdowns;
  const auto body = [&](Communicator& ranks, const Context& plain) {
    Context context = plain;
    context.kernels = std::make_shared<SleepingKernels>(plain.kernels, std::chrono::milliseconds(2));
    Decoder decoder(tiny(/*layers=*/16));
    ShardedModel model(context, ranks, decoder, {.policy = Policy::stage(3), .overlap = overlap});
    model.load(InitialState(1));
    Engine engine(model);
    const Batch batch{context.zeros({1, 8}, DType::i32), context.zeros({1, 8}, DType::i32)};
    engine.step(std::span(&batch, 1), 16, 1e-3, 1);
    model.settle();
    const auto timeline = std::make_shared<Timeline>();
    ranks.record(timeline);
    timeline->start();
    for (int i = 0; i < 3; ++i) {
      engine.step(std::span(&batch, 1), 16, 1e-3, 1);
      model.settle();
      const StepBreakdown breakdown = breakdown_of(timeline->take());
      if (ranks.rank() == 0) breakdowns.push_back(breakdown);
    }
  };
  run_ranks(2, body, std::chrono::milliseconds(3));
  return breakdowns;
}

double most_hidden(const std::vector<StepBreakdown>& breakdowns) {
  double most = 0;
  for (const StepBreakdown& each : breakdowns) {
    EXPECT_GT(each.communication, 50 * 0.003) << "a gather for each pass of a Unit, and a reduction";
    most = std::max(most, each.hidden());
  }
  return most;
}

TEST(Overlap, at_stage_3_more_than_four_fifths_of_a_slow_wire_hide_behind_computation) {
  EXPECT_GT(most_hidden(breakdowns_on_a_slow_wire(true)), 0.8);
  EXPECT_LT(most_hidden(breakdowns_on_a_slow_wire(false)), 0.5) << "without overlap it does not hide";
}

}  // namespace
}  // namespace nought
