// The seconds of a step are those of its work and of its transfers, less what is hidden.
#include "nought/plan/step_time.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::step_time_test {
namespace {

using testing::HasSubstr;
using testing::Not;

ModelConfig small_model(int layers = 2) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 256},
                                 {"hidden_size", 64},
                                 {"intermediate_size", 128},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 4},
                                 {"max_position_embeddings", 64}});
}

const MachineRates kRates{.flops = 100, .memory = 10, .read = 5, .write = 4, .note = {}};

/// 10 s of products, 2 s of other operations, 6 s of the update; 4 s of reads and 5 s of writes.
Prediction prediction_with(const OffloadOptions& options) {
  Prediction prediction;
  prediction.executed_flops = 1000, prediction.other_bytes = 20, prediction.update_bytes = 60;
  prediction.states.read = prediction.states.written = 20;
  prediction.by_update = prediction.states;
  prediction.layout.sharding.offload_optimizer = options;
  return prediction;
}

double seconds_with(bool ahead, bool behind, int64_t buffers) {
  const OffloadOptions options{.tier = {Pool::file}, .reads_ahead = ahead, .writes_behind = behind, .buffers = buffers};
  return step_time(small_model(), prediction_with(options), kRates).seconds();
}

TEST(StepTime, transfers_are_hidden_behind_the_update_as_far_as_the_tiles_in_memory_let_them) {
  EXPECT_DOUBLE_EQ(seconds_with(false, false, 12), 18 + 9);
  EXPECT_DOUBLE_EQ(seconds_with(true, false, 12), 18 + 9 - 4);
  EXPECT_DOUBLE_EQ(seconds_with(false, true, 12), 18 + 9 - 5);
  EXPECT_DOUBLE_EQ(seconds_with(true, true, 12), 18 + 9 - 6);
  EXPECT_DOUBLE_EQ(seconds_with(true, true, 8), 18 + 9 - 4) << "two tiles: the next is read, and writes are waited for";
  EXPECT_DOUBLE_EQ(seconds_with(true, true, 4), 18 + 9) << "one tile";
}

TEST(StepTime, what_no_update_moves_is_hidden_behind_the_passes) {
  Prediction prediction = prediction_with({.tier = {Pool::file}});
  prediction.by_update = {};
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction, kRates).seconds(), 18);
  prediction.states.read += 30;  // 6 s beyond the 9 s
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction, kRates).seconds(), 18 + 3);
}

TEST(StepTime, an_update_overlapped_with_passes_hides_its_files_there_too) {
  OffloadOptions options{.tier = {Pool::file}, .early = true};
  // 12 s of passes, 8 of them backward, and 6 of the update; 4 s of reads and 5 s of writes.
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction_with(options), kRates).seconds(), 18);
  Prediction more = prediction_with(options);
  more.states.read += 50, more.by_update.read += 50;  // 19 s
  EXPECT_DOUBLE_EQ(step_time(small_model(), more, kRates).seconds(), 18 + 19 - 14);
  more.layout.recompute.mode = Recompute::full;
  EXPECT_DOUBLE_EQ(step_time(small_model(), more, kRates).seconds(), 18 + 19 - 15);
  more.layout.sharding.offload_optimizer = {.tier = {Pool::file}, .delay_after = 40};
  EXPECT_DOUBLE_EQ(step_time(small_model(), more, kRates).seconds(), 18 + 19 - 18);
}

TEST(StepTime, gradients_in_files_are_hidden_behind_the_passes_before_states_are) {
  Prediction prediction = prediction_with({.tier = {Pool::file}, .early = true});
  prediction.of_gradients = {.read = 0, .written = 40};  // 10 s of the 12
  prediction.states = prediction.states + prediction.of_gradients;
  const StepTime time = step_time(small_model(), prediction, kRates);
  EXPECT_DOUBLE_EQ(time.seconds(), 18 + 9 - 8) << "the update's 6 s and 2 of the passes are left for states";
  EXPECT_THAT(to_text(time), HasSubstr("gradients to files"));
}

TEST(StepTime, without_files_and_without_their_rate_there_is_no_time_for_them) {
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction_with({}), {.flops = 100, .memory = 10}).seconds(), 18);
  Prediction moved = prediction_with({});
  moved.states = {.down = 30, .up = 10};
  moved.by_update = {};
  const StepTime time = step_time(small_model(), moved, kRates);
  EXPECT_DOUBLE_EQ(time.seconds(), 18 + 8) << "a copy reads and writes";
  EXPECT_THAT(to_text(time), Not(HasSubstr("files")));
}

Layout pipelined(PipelineSchedule schedule, int64_t ranks) {
  return {.ranks = static_cast<int>(ranks),
          .pipeline = {.schedule = schedule, .ranks = ranks, .chunks = default_chunks(schedule)},
          .micro_batch = 1,
          .seq_length = 16,
          .accumulation = 4,
          .wire = Wire::threads};
}

double seconds_of_part(const StepTime& time, std::string_view name) {
  for (const StepPart& part : time.parts)
    if (part.name == name) return part.seconds();
  return 0;
}

TEST(StepTime, the_whole_step_has_the_idle_time_of_its_pipeline) {
  const ModelConfig config = small_model(/*layers=*/6);
  const MachineRates rates{.flops = 1e9, .memory = 1e12, .note = {}};
  double plain = 0;
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zbv}) {
    const Layout layout = pipelined(schedule, 2);
    for (const Prediction& place : predict_places(config, layout)) {
      const StepTime time = step_time(config, place, rates);
      ASSERT_TRUE(time.timeline);
      const double busy = time.timeline->busy(static_cast<size_t>(place.place));
      EXPECT_NEAR(seconds_of_part(time, "waiting for stages"), time.timeline->end() - busy, 1e-12);
      EXPECT_GE(time.seconds(), time.timeline->end());
      EXPECT_NEAR(time.seconds(), time.timeline->end(), 0.05 * time.timeline->end()) << "and the update, and norms";
      EXPECT_THAT(to_text(time), HasSubstr("waiting for stages"));
      if (schedule == PipelineSchedule::one_f_one_b) plain = std::max(plain, time.seconds());
    }
    if (schedule == PipelineSchedule::zbv) {
      OperationTimes times(rates);
      EXPECT_LT(slowest_step(config, predict_places(config, layout), times).seconds(), plain) << "less of it is idle";
    }
  }
}

const MachineRates kWithoutFiles{.flops = 100, .memory = 10, .note = {}};

TEST(StepTime, ranks_that_are_more_than_the_cores_wait_for_them) {
  MachineRates rates = kWithoutFiles;
  rates.share = 3;
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction_with({}), rates).seconds(), 3 * 18);
  rates.share = 0.5;
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction_with({}), rates).seconds(), 18);
  // Three stages on one core can not work at once, whatever their timeline says.
  rates = {.flops = 1e9, .memory = 1e12, .note = {}, .share = 3};
  const StepTime time = step_time(small_model(), predict(small_model(), pipelined(PipelineSchedule::gpipe, 3)), rates);
  double busy = 0;
  for (size_t rank = 0; rank < 3; ++rank) busy += time.timeline->busy(rank);
  EXPECT_GE(time.seconds(), busy);
  // On two cores a stage works alone while the pipeline fills and drains, and all three of them meanwhile.
  rates.share = 1.5;
  const Prediction prediction = predict(small_model(), pipelined(PipelineSchedule::gpipe, 3));
  const StepTime shared = step_time(small_model(), prediction, rates);
  EXPECT_GT(shared.seconds(), 1.01 * std::max(shared.timeline->end(), 1.5 * busy / 3));
  EXPECT_LT(shared.seconds(), time.seconds());
}

TEST(StepTime, collectives_take_a_time_for_each_call_and_for_what_they_send) {
  Prediction prediction = prediction_with({});
  prediction.traffic.counts[static_cast<size_t>(Collective::all_gather)] = {.bytes = 30, .elements = 0, .calls = 2};
  prediction.traffic.counts[static_cast<size_t>(Collective::all_reduce)] = {.bytes = 40, .elements = 0, .calls = 1};
  MachineRates rates = kWithoutFiles;
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction, rates).seconds(), 18) << "not measured";
  rates.call = 1, rates.gathered = 10, rates.reduced = 5;
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction, rates).seconds(), 18 + (2 + 3) + (1 + 2 + 4));
  // Nobody waits for what was sent, and messages of a pipeline are in its timeline.
  Prediction ring = prediction;
  ring.traffic.counts[Collective::send] = {.bytes = 50, .elements = 0, .calls = 3};
  ring.traffic.counts[Collective::recv] = {.bytes = 0, .elements = 0, .calls = 3};
  EXPECT_DOUBLE_EQ(step_time(small_model(), ring, rates).seconds(), 18 + (2 + 3) + (1 + 2 + 4) + (3 + 5));
  ring.traffic_by_axes = {{"pipeline", ring.traffic}};
  EXPECT_DOUBLE_EQ(step_time(small_model(), ring, rates).seconds(), 18 + (2 + 3) + (1 + 2 + 4));
  rates.share = 0.5;  // cores are free
  prediction.layout.sharding.overlap = true;
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction, rates).seconds(), 18 + 12 - 8)
      << "overlapped with the backward pass";
}

TEST(StepTime, the_host_takes_time_for_every_operation) {
  Prediction prediction = prediction_with({});
  prediction.operations = 20;
  MachineRates rates = kWithoutFiles;
  rates.operation = 0.1;
  const StepTime time = step_time(small_model(), prediction, rates);
  EXPECT_DOUBLE_EQ(time.seconds(), 18 + 2);
  EXPECT_THAT(to_text(time), HasSubstr("the host, per operation"));
}

TEST(StepTime, says_how_far_repeated_measurements_were_apart) {
  MachineRates rates = kWithoutFiles;
  EXPECT_EQ(step_time(small_model(), prediction_with({}), rates).str(), "18 s");
  rates.fastest = 0.5, rates.slowest = 2, rates.busy = true;
  const StepTime time = step_time(small_model(), prediction_with({}), rates);
  EXPECT_EQ(time.str(), "18 s (9 s to 36 s)");
  EXPECT_THAT(to_text(time), HasSubstr("18 s, 9 s to 36 s by repeated measurements\n  the machine was busy"));
  EXPECT_DOUBLE_EQ(to_json(time)["slowest"], 36);
}

TEST(StepTime, the_table_has_a_row_for_each_part_and_its_json_the_numbers) {
  StepTime time =
      step_time(small_model(), prediction_with({.tier = {Pool::file}, .reads_ahead = true, .buffers = 8}), kRates);
  time.note = "something is left out";
  const std::string text = to_text(time);
  for (const char* part :
       {"products ", "1 kFLOP ", " 100 FLOP/s ", "10 s", "other operations", "the update", "states from files ",
        "states to files", ", 100% of it hidden", "whole step", "23 s", "something is left out"})
    EXPECT_THAT(text, HasSubstr(part));
  const OrderedJson json = to_json(time);
  EXPECT_DOUBLE_EQ(json["seconds"], 23);
  EXPECT_DOUBLE_EQ(json["parts"][3]["hidden_seconds"], 4);
}

TEST(StepTime, efficiency_is_of_what_crosses_at_the_rate_of_its_source) {
  Prediction prediction = prediction_with({.tier = {Pool::file}});
  Layout& layout = prediction.layout;
  layout.micro_batch = 2, layout.seq_length = 8, layout.accumulation = 4, layout.recompute.mode = Recompute::full;
  const std::vector<CrossingPart> parts = step_time(small_model(), prediction, kRates).crossing;
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_DOUBLE_EQ(parts[0].efficiency, 160.0 / 260);  // 16 tokens at 10 B/s
  EXPECT_EQ(parts[1].source, "files");
  EXPECT_DOUBLE_EQ(parts[1].bandwidth, 2 / (1 / 5.0 + 1 / 4.0));
  EXPECT_DOUBLE_EQ(parts[1].intensity, 16);  // 64 tokens of a step
  EXPECT_DOUBLE_EQ(parts[2].intensity, 24 * 64);
  layout.sharding.offload_param.tier.pool = Pool::file;
  EXPECT_DOUBLE_EQ(step_time(small_model(), prediction, kRates).crossing[0].efficiency, 80.0 / 180);
}

}  // namespace
}  // namespace nought::step_time_test
