// Layout never changes the result: stages, rank counts, accumulation, recompute and overlap walk the same path; what
// each holds and sends is what the formulas say.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "support/guarded_context.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/tensor/random.h"
#include "nought/train/engine.h"

namespace nought {
namespace {

constexpr int64_t kLength = 16, kVocabulary = 96;

struct Layout {
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
  int accumulation = 1;
  RecomputeOptions recompute = {};
  bool overlap = true, tied = false;
  int steps = 30;
  int scale_power = 16;  // of f16
  std::optional<DType> gradients = {}, wire = {};
  double gradient_factor = 1;
  Fp8Scaling fp8 = Fp8Scaling::none;
  bool masters = true;
  int64_t bucket = 0;
  int64_t rows = 4;  // of a step, over all ranks and micro-batches
  bool guarded = false;
  OffloadOptions offload = {};
  Method method = AdamOptions{};
  int64_t state_block = 0;

  std::string str() const {
    return fmt::format("{} ranks, stage {}, {}, accumulation {}{}, states in the {} pool", ranks, stage, name_of(dtype),
                       accumulation, guarded ? ", on the guarded device" : "", name_of(offload.home));
  }
};

ModelConfig tiny_llama(bool tied) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 48},
                                 {"intermediate_size", 80},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 64},
                                 {"tie_word_embeddings", tied}});
}

/// Rows [begin, end) of the batch of a step: a noisy sequence that can be learned.
Batch rows_of(const Context& context, const Layout& layout, int step, int64_t begin, int64_t end) {
  Batch batch = empty_batch(end - begin, kLength, *context.memory);
  for (int64_t row = begin; row < end; ++row)
    for (int64_t t = 0; t < kLength; ++t) {
      const auto token = [&](int64_t i) {
        const uint32_t noise = philox(7, static_cast<uint64_t>(step * layout.rows + row), static_cast<uint64_t>(i))[0];
        return static_cast<int32_t>((i * 5 + row + (noise % 4 == 0 ? noise % 17 : 0)) % kVocabulary);
      };
      const int64_t at = (row - begin) * kLength + t;
      batch.input_ids.data<int32_t>()[at] = token(t);
      batch.targets.data<int32_t>()[at] = token(t + 1);
    }
  return batch;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<double> scales;  // that steps were computed with, negative where they were skipped
  std::vector<float> weights;
};

/// Calls body(model, engine) on every rank of a layout.
template <class Body>
void with_model(const Layout& layout, Body body) {
  run_ranks(test::contexts_of(layout.ranks, layout.guarded), [&](Communicator& ranks, const Context& context) {
    Decoder decoder(tiny_llama(layout.tied), layout.recompute, {.scaling = layout.fp8, .history = 4});
    ShardedModel model(context, ranks, decoder,
                       {.policy = Policy::stage(layout.stage),
                        .dtype = layout.dtype,
                        .gradient_dtype = layout.gradients.value_or(layout.dtype),
                        .overlap = layout.overlap,
                        .optimizer = {.method = layout.method,
                                      .weight_decay = 0.1,
                                      .state_block = layout.state_block,
                                      .state_dtype = layout.masters ? DType::f32 : DType::bf16,
                                      .master_weights = layout.masters},
                        .wire_dtype = layout.wire,
                        .reduce_bucket = layout.bucket,
                        .gather_bucket = layout.bucket,
                        .offload_optimizer = layout.offload});
    model.load(InitialState(3));
    const LossScaleOptions scaling{.initial_power = layout.scale_power, .scale_window = 8};
    Engine engine(model, layout.dtype == DType::f16 ? LossScaler(scaling) : LossScaler(), layout.gradient_factor);
    body(model, engine);
  });
}

StepResult take_step(const Layout& layout, ShardedModel& model, Engine& engine, int step) {
  const int rank = model.mesh().world().rank();
  const int64_t parts = layout.ranks * layout.accumulation, rows = layout.rows / parts;
  require(rows * parts == layout.rows, "{} rows do not divide into {} parts", layout.rows, parts);
  std::vector<Batch> batches;
  for (int micro = 0; micro < layout.accumulation; ++micro) {
    const int64_t begin = (micro * layout.ranks + rank) * rows;
    batches.push_back(rows_of(model.context(), layout, step, begin, begin + rows));
  }
  return engine.step(batches, layout.rows * kLength, 2e-3, 1.0);
}

Result train(const Layout& layout) {
  Result result;
  with_model(layout, [&](ShardedModel& model, Engine& engine) {
    Result mine;
    for (int step = 0; step < layout.steps; ++step) {
      const StepResult each = take_step(layout, model, engine, step);
      mine.losses.push_back(each.loss), mine.norms.push_back(each.skipped ? 0 : each.grad_norm);
      mine.scales.push_back(each.skipped ? -each.loss_scale : each.loss_scale);
    }
    for (size_t unit = 0; unit < model.model().units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter&, const Tensor& whole) {
        for (float value : model.context().to_host<float>(whole)) mine.weights.push_back(value);
      });
    if (model.mesh().world().rank() == 0) result = std::move(mine);
  });
  return result;
}

void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.scales, b.scales);
}

void expect_losses_within(const Result& a, const Result& b, double tolerance) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], b.losses[i], tolerance) << "step " << i;
}

TEST(Layouts, zero_stages_agree_bit_for_bit_and_rank_counts_within_rounding) {
  const Result one = train({.ranks = 1, .stage = 0});
  EXPECT_LT(one.losses.back(), one.losses.front() - 1) << "the model does not learn, so the test says little";
  for (const int ranks : {1, 2, 4}) {
    const Result first = train({.ranks = ranks, .stage = 0});
    for (const int stage : {1, 2, 3}) {
      const Layout layout{.ranks = ranks, .stage = stage};
      SCOPED_TRACE(layout.str());
      expect_same_bits(train(layout), first);
    }
    expect_losses_within(first, one, 1e-5);
  }
}

TEST(Layouts, zero_stages_agree_bit_for_bit_in_fp16_and_skip_the_same_steps) {
  const Result exact = train({});
  for (const int ranks : {1, 2, 4}) {
    // 2^22 overflows at first, on some ranks and in the sum over them; a window of 8 steps tries it again.
    const Layout layout{.ranks = ranks, .stage = 0, .dtype = DType::f16, .steps = 40, .scale_power = 22};
    const Result first = train(layout);
    EXPECT_LT(first.scales.front(), 0) << "nothing overflowed, so the test says little";
    EXPECT_GE(std::count_if(first.scales.begin(), first.scales.end(), [](double s) { return s > 0; }), 20);
    EXPECT_LT(first.losses.back(), first.losses.front() - 1);
    for (const int stage : {1, 2, 3}) {
      Layout other = layout;
      other.stage = stage;
      SCOPED_TRACE(other.str());
      expect_same_bits(train(other), first);
    }
  }
  // Without overflows half precision follows single precision.
  const Result half = train({.ranks = 2, .stage = 2, .dtype = DType::f16, .scale_power = 10});
  EXPECT_EQ(std::count_if(half.scales.begin(), half.scales.end(), [](double s) { return s < 0; }), 0);
  expect_losses_within(half, exact, 0.02);
}

TEST(Layouts, gradients_may_accumulate_and_travel_in_other_dtypes) {
  const Result exact = train({.ranks = 4, .stage = 0});
  struct Dtypes {
    DType compute, sums, wire;
  };
  for (const Dtypes& dtypes : {Dtypes{DType::bf16, DType::f32, DType::f32},
                               {DType::bf16, DType::f32, DType::bf16},
                               {DType::bf16, DType::bf16, DType::f32},
                               {DType::f32, DType::f32, DType::bf16},
                               {DType::f16, DType::f32, DType::f32}}) {
    for (const int accumulation : {1, 2}) {
      Layout layout{.ranks = 2, .dtype = dtypes.compute, .accumulation = accumulation, .steps = 12, .scale_power = 10};
      layout.gradients = dtypes.sums, layout.wire = dtypes.wire;
      std::vector<Result> stages;
      for (const int stage : {0, 1, 2, 3}) {
        layout.stage = stage;
        layout.overlap = stage % 2 == 0;
        stages.push_back(train(layout));
      }
      SCOPED_TRACE(fmt::format("{}, sums {}, wire {}", layout.str(), name_of(dtypes.sums), name_of(dtypes.wire)));
      expect_same_bits(stages[1], stages[0]);
      expect_same_bits(stages[3], stages[2]);
      if (accumulation == 1) {
        expect_same_bits(stages[2], stages[0]);
      }
      for (size_t i = 0; i < stages[0].losses.size(); ++i) EXPECT_NEAR(stages[0].losses[i], exact.losses[i], 0.05);
    }
  }
}

TEST(Layouts, what_gradients_are_divided_by_before_their_sum_changes_no_more_than_rounding) {
  const Layout layout{.ranks = 4, .stage = 2};
  Layout power = layout, other = layout;
  power.gradient_factor = 4;  // the ranks' own means: a power of two moves no bit
  other.gradient_factor = 4 / 3.0;
  const Result plain = train(layout);
  expect_same_bits(train(power), plain);
  expect_losses_within(train(other), plain, 1e-5);
}

TEST(Layouts, zero_stages_agree_bit_for_bit_in_bf16_and_with_tied_embeddings) {
  for (const int ranks : {2, 3, 4}) {
    for (const bool tied : {false, true}) {
      Layout layout{.ranks = ranks, .stage = 0, .dtype = DType::bf16, .tied = tied, .steps = 12, .rows = 2 * ranks};
      const Result first = train(layout);
      for (const int stage : {1, 2, 3}) {
        layout.stage = stage;
        SCOPED_TRACE(layout.str());
        expect_same_bits(train(layout), first);
      }
    }
  }
}

TEST(Layouts, with_accumulation_stages_0_and_1_agree_and_2_and_3_agree) {
  for (const int ranks : {1, 2}) {
    Result results[4];
    for (const int stage : {0, 1, 2, 3}) results[stage] = train({.ranks = ranks, .stage = stage, .accumulation = 2});
    expect_same_bits(results[0], results[1]);
    expect_same_bits(results[2], results[3]);
    expect_losses_within(results[0], results[2], 1e-5);
  }
}

TEST(Layouts, four_micro_batches_of_one_equal_one_of_four) {
  const Result whole = train({.ranks = 1, .accumulation = 1});
  expect_losses_within(train({.ranks = 1, .accumulation = 4}), whole, 1e-5);
  expect_losses_within(train({.ranks = 2, .stage = 2, .accumulation = 2}), whole, 1e-5);
}

TEST(Layouts, recompute_changes_no_bit) {
  for (const Layout& base :
       {Layout{.ranks = 1}, Layout{.ranks = 2, .stage = 3}, Layout{.ranks = 2, .stage = 2, .dtype = DType::bf16}}) {
    Layout recomputed = base;
    std::vector<RecomputeOptions> ways{Recompute::selective, Recompute::full};
    for (const int64_t checkpoints : {1, 2})  // of three blocks
      for (const Pool pool : {Pool::device, Pool::host}) {
        ways.emplace_back(Recompute::full);
        ways.back().checkpoints = checkpoints;
        ways.back().pool = pool;
        ways.back().contiguous = (checkpoints == 1) == (pool == Pool::host);
      }
    const Result plain = train(base);
    for (const RecomputeOptions& way : ways) {
      recomputed.recompute = way;
      SCOPED_TRACE(fmt::format("{}, {}", base.str(), way.str()));
      expect_same_bits(train(recomputed), plain);
    }
  }
}

/// Scales are those of all ranks' largest values, so no layout moves a bit of 8-bit training.
TEST(Layouts, fp8_is_the_same_at_every_stage_and_with_recompute_and_learns_as_bf16_does) {
  const Result wide = train({.dtype = DType::bf16});
  for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::current})
    for (const int ranks : {1, 2, 4}) {
      const Result first = train({.ranks = ranks, .dtype = DType::bf16, .fp8 = scaling});
      EXPECT_NE(first.losses, wide.losses);
      EXPECT_NEAR(first.losses.back(), wide.losses.back(), 0.1) << name_of(scaling);
      for (const int stage : {1, 2, 3}) {
        Layout layout{.ranks = ranks, .stage = stage, .dtype = DType::bf16, .fp8 = scaling};
        SCOPED_TRACE(layout.str());
        layout.recompute = stage == 1 ? Recompute::none : stage == 2 ? Recompute::selective : Recompute::full;
        expect_same_bits(train(layout), first);
      }
    }
}

/// Four micro-batches of one row are the same, one after another or on four ranks: so are their largest values.
TEST(Layouts, fp8_is_the_same_over_micro_batches_and_over_ranks) {
  const Layout ranks{.ranks = 4, .stage = 2, .dtype = DType::bf16, .gradients = DType::f32, .fp8 = Fp8Scaling::delayed};
  const Layout micro_batches{
      .dtype = DType::bf16, .accumulation = 4, .gradients = DType::f32, .fp8 = Fp8Scaling::delayed};
  expect_losses_within(train(ranks), train(micro_batches), 1e-2);
}

TEST(Layouts, training_without_fp32_masters_is_the_same_at_every_stage_and_learns) {
  const Result wide = train({.dtype = DType::bf16});
  for (const int ranks : {1, 2, 4}) {
    const Result first = train({.ranks = ranks, .dtype = DType::bf16, .masters = false});
    EXPECT_NEAR(first.losses.back(), wide.losses.back(), 0.15);
    for (const int stage : {1, 2, 3})
      expect_same_bits(train({.ranks = ranks, .stage = stage, .dtype = DType::bf16, .masters = false}), first);
  }
}

TEST(Layouts, overlap_changes_no_bit) {
  for (const int stage : {0, 1, 2, 3}) {
    const Layout base{.ranks = 2, .stage = stage, .accumulation = 2, .steps = 8};
    Layout blocking = base;
    blocking.overlap = false;
    SCOPED_TRACE(base.str());
    expect_same_bits(train(blocking), train(base));
  }
}

TEST(Layouts, buckets_change_no_bit) {
  for (const int stage : {0, 1, 2, 3})
    for (const int accumulation : {1, 2})
      for (const std::optional<DType>& wire : {std::optional<DType>(), std::optional(DType::f32)}) {
        Layout layout{.ranks = 2, .stage = stage, .dtype = DType::bf16, .accumulation = accumulation, .steps = 6};
        layout.wire = wire;
        SCOPED_TRACE(layout.str());
        const Result alone = train(layout);
        for (const int64_t bucket : {12'000, 40'000, 1'000'000}) {
          layout.bucket = bucket;
          layout.overlap = bucket != 40'000;
          expect_same_bits(train(layout), alone);
        }
      }
}

/// A host read, a missing wait or a buffer that goes back too early would be a fault or another number there.
TEST(Layouts, a_device_that_runs_late_and_that_the_host_cannot_read_gives_the_same_bits) {
  const Layout half{.dtype = DType::f16, .steps = 10, .scale_power = 22};
  Layout kept{.accumulation = 2, .recompute = Recompute::full, .steps = 4};
  kept.recompute.pool = Pool::host;
  Layout packed{.dtype = DType::bf16, .tied = true, .steps = 4, .gradients = DType::f32, .bucket = 40'000};
  packed.wire = DType::bf16;
  const Layout layouts[] = {{.steps = 6},
                            {.dtype = DType::bf16, .overlap = false, .steps = 4, .fp8 = Fp8Scaling::delayed},
                            {.dtype = DType::bf16, .steps = 3, .fp8 = Fp8Scaling::current, .masters = false},
                            half,
                            kept,
                            packed};
  for (Layout layout : layouts)
    for (const int ranks : {1, 2})
      for (const int stage : {0, 3}) {
        layout.ranks = ranks, layout.stage = stage, layout.guarded = false;
        const Result expected = train(layout);
        layout.guarded = true;
        SCOPED_TRACE(layout.str());
        expect_same_bits(train(layout), expected);
      }
}

/// Clipping is on, and half precision skips its first steps. Each layout runs without; with states on the host beside
/// the guarded device; in a file beside either device.
TEST(Layouts, where_optimizer_states_live_changes_no_bit) {
  const test::TempFolder folder;
  const OffloadOptions host{.home = Pool::host, .sub_group = 5000};
  const OffloadOptions file{.home = Pool::file,
                            .folder = folder.path().string(),
                            .sub_group = 20'000,
                            .reads_ahead = true,
                            .writes_behind = true,
                            .buffers = 12};
  Layout half{.dtype = DType::f16, .steps = 8, .scale_power = 22}, lion{.accumulation = 2, .steps = 4};
  lion.method = LionOptions{};
  Layout muon{.dtype = DType::bf16, .steps = 4}, codes{.dtype = DType::bf16, .steps = 4};
  muon.method = MuonOptions{};
  codes.state_block = 256;
  Layout wide{.dtype = DType::bf16, .accumulation = 4, .tied = true, .steps = 4, .gradients = DType::f32};
  int turn = 0;
  for (const Layout& base : {half, lion, muon, codes, wide})
    for (const int ranks : {1, 2, 4}) {
      if (ranks == 4 && base.accumulation > 1) continue;
      Layout layout = base;
      layout.ranks = ranks, layout.stage = turn++ % 4;
      if (ranks * layout.accumulation > layout.rows) layout.rows = 2 * layout.rows;
      const Result expected = train(layout);
      for (const auto& [offload, guarded] : {std::pair(host, true), {file, false}, {file, true}}) {
        layout.offload = offload, layout.guarded = guarded;
        SCOPED_TRACE(layout.str());
        expect_same_bits(train(layout), expected);
      }
    }
}

TEST(Precision, bf16_with_fp32_masters_follows_fp32_within_one_percent) {
  const Result full = train({.ranks = 2, .stage = 2}), half = train({.ranks = 2, .stage = 2, .dtype = DType::bf16});
  const auto end = [](const Result& result) {  // the mean of the last ten steps
    return std::accumulate(result.losses.end() - 10, result.losses.end(), 0.0) / 10;
  };
  EXPECT_NEAR(end(half), end(full), 0.01 * end(full));
}

/// Psi padded to equal shards, Unit by Unit: what the partition really lays out.
int64_t padded_parameters(const Model& model, int ranks) {
  int64_t padded = 0;
  for (const auto& unit : model.units()) padded += Partition(unit->segments()[0].size, ranks).padded();
  return padded;
}

TEST(Memory, model_states_take_what_the_formulas_say) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 2, 4})
      for (const int stage : {0, 1, 2, 3})
        with_model({.ranks = ranks, .stage = stage, .dtype = dtype}, [&](ShardedModel& model, Engine&) {
          model.settle();
          const MemoryLedger& ledger = model.context().memory->ledger();
          const int64_t psi = padded_parameters(model.model(), ranks), element = size_of(dtype);
          EXPECT_LE(psi - model.model().parameter_count(),
                    static_cast<int64_t>(model.model().units().size()) * ranks * Partition::kAlignment);
          // 16-bit training keeps 12 bytes of fp32 master and moments per parameter; f32 is its own master.
          const int64_t states = dtype == DType::f32 ? 8 : 12;
          const auto shard = [&](int from_stage) { return stage >= from_stage ? psi / ranks : psi; };
          EXPECT_EQ(ledger.current(Category::optimizer), states * shard(1)) << stage;
          EXPECT_EQ(ledger.current(Category::gradients), element * shard(2)) << stage;
          EXPECT_EQ(ledger.current(Category::parameters), element * shard(3)) << stage;
        });
}

/// Nothing but the states leaves the device, and nothing comes in their place: to the byte.
TEST(Memory, the_peak_of_a_device_falls_by_the_states_that_the_host_holds) {
  for (const int ranks : {1, 2}) {
    Layout layout{.ranks = ranks, .stage = 2, .dtype = DType::bf16, .rows = 8};
    layout.guarded = true;
    const auto peaks = [&] {
      std::array<int64_t, 3> found{};  // of the device; of the optimizer there, and on the host
      with_model(layout, [&](ShardedModel& model, Engine& engine) {
        MemoryLedger& ledger = model.context().memory->ledger();
        model.context().stream->synchronize();  // what was loaded has left the host
        ledger.reset_peaks();
        for (int step = 0; step < 2; ++step) take_step(layout, model, engine, step);
        model.settle();
        if (model.mesh().world().rank() == 0)
          found = {ledger.peak_total(), ledger.peak(Category::optimizer), ledger.peak(Category::optimizer, Pool::host)};
      });
      return found;
    };
    const auto [all, states, none] = peaks();
    layout.offload = {.home = Pool::host, .sub_group = 100'000};
    const auto [device, left, host] = peaks();
    EXPECT_EQ(none, 0);
    EXPECT_EQ(device, all - states) << ranks;
    EXPECT_EQ(left, 0);
    EXPECT_LE(host, states);  // without the padding of shards
    EXPECT_GE(host, states - 12 * 1024);
  }
}

TEST(Memory, sharded_gradients_and_parameters_are_whole_for_two_units_at_most) {
  with_model({.ranks = 2, .stage = 3}, [&](ShardedModel& model, Engine& engine) {
    int64_t largest = 0;
    for (const auto& unit : model.model().units())
      largest = std::max(largest, Partition(unit->segments()[0].size, 2).padded() * 4);
    take_step({.ranks = 2, .stage = 3}, model, engine, 0);
    model.settle();
    const MemoryLedger& ledger = model.context().memory->ledger();
    const int64_t shards = padded_parameters(model.model(), 2) * 4 / 2;
    EXPECT_LE(ledger.peak(Category::parameters), shards + 2 * largest);
    EXPECT_LE(ledger.peak(Category::gradients), shards + 2 * largest);
  });
}

TEST(Traffic, a_step_sends_two_or_three_times_the_parameters) {
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 1, 2, 3}) {
      const Layout layout{.ranks = ranks, .stage = stage};
      SCOPED_TRACE(layout.str());
      with_model(layout, [&](ShardedModel& model, Engine& engine) {
        take_step(layout, model, engine, 0);
        const Traffic before = model.mesh().world().traffic();
        take_step(layout, model, engine, 1);
        const Traffic after = model.mesh().world().traffic();
        const auto sent = [&](Collective collective) {
          return after[collective].elements - before[collective].elements;
        };
        const int64_t once = padded_parameters(model.model(), ranks) * (ranks - 1) / ranks;
        EXPECT_EQ(sent(Collective::reduce_scatter), once);
        EXPECT_EQ(sent(Collective::all_gather), stage == 3 ? 2 * once : once);
        // All that is left are the loss, the norm, one value for each Unit, and whether a rank wants to stop.
        const auto values = static_cast<int64_t>(model.model().units().size()) + 2;
        EXPECT_LE(after.total_elements() - before.total_elements() - (stage == 3 ? 3 : 2) * once, 2 * values + ranks);
      });
    }
}

TEST(Traffic, buckets_send_the_same_in_fewer_collectives) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto step_of = [&](int64_t bucket) {
      const Layout layout{.ranks = 2, .stage = stage, .bucket = bucket};
      Traffic traffic;
      with_model(layout, [&](ShardedModel& model, Engine& engine) {
        const Traffic before = model.mesh().world().traffic();
        take_step(layout, model, engine, 0);
        if (model.mesh().world().rank() != 0) return;
        traffic = model.mesh().world().traffic();
        for (size_t c = 0; c < kNumCollectives; ++c) {
          traffic.counts[c].elements -= before.counts[c].elements;
          traffic.counts[c].calls -= before.counts[c].calls;
        }
      });
      return traffic;
    };
    const Traffic alone = step_of(0), all = step_of(1'000'000);
    EXPECT_EQ(all.total_elements(), alone.total_elements());
    EXPECT_EQ(alone[Collective::reduce_scatter].calls, 5);  // embedding, three blocks, head
    EXPECT_EQ(all[Collective::reduce_scatter].calls, 1);
    if (stage < 3) {
      EXPECT_EQ(all[Collective::all_gather].calls, 1);
    }
  }
}

TEST(Traffic, accumulation_reduces_once_without_gradient_sharding_and_every_time_with_it) {
  for (const int stage : {0, 1, 2, 3}) {
    const Layout layout{.ranks = 2, .stage = stage, .accumulation = 2};
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      const Traffic before = model.mesh().world().traffic();
      take_step(layout, model, engine, 0);
      const int64_t sent = model.mesh().world().traffic()[Collective::reduce_scatter].elements -
                           before[Collective::reduce_scatter].elements;
      EXPECT_EQ(sent, padded_parameters(model.model(), 2) / 2 * (stage >= 2 ? 2 : 1)) << stage;
    });
  }
}

}  // namespace
}  // namespace nought
