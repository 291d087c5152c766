// What is predicted for second copies, hops and codes is what happens, and what leaves a host is the table of ZeRO++:
// of three times the parameters a half, nothing and a quarter are left.
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::zeropp_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::expect_agreement;
using test::measure;
using test::Measurement;
using test::model_of;

constexpr int kRanks = 4, kHosts = 2;

Layout layout_with(const WireOptions& codes, int secondary, DType dtype = DType::bf16) {
  return {.ranks = kRanks,
          .zero_stage = 3,
          .host_ranks = kRanks / kHosts,
          .secondary = secondary,
          .micro_batch = 1,
          .seq_length = 64,
          .sharding = {.dtype = dtype, .codes = codes},
          .wire = Wire::threads};
}

TEST(ZeroPlusPlusAgreement, holds_for_second_copies_hops_and_codes) {
  const WireOptions all{.weight_bits = 8, .gradient_bits = 4, .feedback = ErrorFeedback{}};
  std::vector<Layout> layouts{layout_with({.weight_bits = 8}, 1), layout_with({}, 2),
                              layout_with({.gradient_bits = 4}, 1), layout_with(all, 2, DType::f32)};
  layouts[2].accumulation = 2;
  layouts.push_back(layout_with(all, 2));
  layouts.back().accumulation = 5;
  layouts.back().host_ranks = 0;  // one hop
  layouts.back().sharding.reduce_bucket = 175'000;
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}, {} and {} bits, {} neighbours", layout.str(), layout.sharding.codes.weight_bits,
                             layout.sharding.codes.gradient_bits, layout.secondary));
    const Measurement measured = measure(model_of("llama"), layout);
    expect_agreement(predict(model_of("llama"), layout), measured);
    EXPECT_EQ(measured.late_allocations, 0);
  }
}

TEST(ZeroPlusPlusAgreement, holds_for_rows_of_tokens_as_codes_and_frozen_codes) {
  Layout layout{.ranks = 4,
                .zero_stage = 3,
                .expert_ranks = 4,
                .micro_batch = 2,
                .seq_length = 128,
                .freezing = {.freeze = {"lm_head", "embed"}, .trainable = {}, .codes = WeightCodes{}},
                .wire = Wire::threads};
  ModelConfig config = model_of("mixtral");
  const auto sent = [&] {
    for (const Mesh::GroupTraffic& group : predict(config, layout).traffic_by_axes)
      if (group.traffic[Collective::all_to_all_v].calls > 0) return group.traffic[Collective::all_to_all_v].bytes;
    return int64_t{0};
  };
  const int64_t plain = sent();
  config.experts->quantized_dispatch = true;
  // Two of a layer's four exchanges of f32 rows go to experts.
  EXPECT_LT(sent(), plain * 65 / 100);
  EXPECT_GT(sent(), plain * 62 / 100);
}

/// Bytes of the records of every segment's shard.
int64_t records_of_shards(int bits) {
  const Mesh mesh;
  const Decoder decoder(model_of("llama"), {}, {}, ModelRanks(mesh, false, {}, {}));
  int64_t bytes = 0;
  for (const auto& unit : decoder.units())
    for (const Segment& segment : unit->segments())
      bytes += wire_record_bytes(Partition(segment, kRanks).shard(), bits);
  return bytes;
}

/// What a rank sends to other hosts in a step, by collective, in bytes.
Traffic between_hosts(const WireOptions& codes, int secondary) {
  Layout layout = layout_with(codes, secondary);
  layout.sharding.gradient_dtype = DType::bf16;
  for (const Mesh::GroupTraffic& group : predict(model_of("llama"), layout).traffic_by_axes)
    if (group.axes == "shard, between hosts") return group.traffic;
  ADD_FAILURE() << "nothing between hosts";
  return {};
}

/// In records of 16 bits a hop sends what it would as values: M elements, of which a rank of one of h hosts with l
/// ranks sends (h-1)/(h l). Scales come on top: 4 bytes for each kWireBlock elements.
TEST(ZeroPlusPlusAgreement, what_leaves_a_host_is_the_table_of_zero_plus_plus) {
  const int64_t m = records_of_shards(16) * (kHosts - 1);  // M, as one rank of a host sends its part of it
  const Traffic plain = between_hosts({.gradient_bits = 16}, 1);
  EXPECT_EQ(plain[Collective::all_gather].bytes, 2 * m) << "forward and backward";
  EXPECT_EQ(plain[Collective::all_to_all].bytes, m);
  EXPECT_EQ(plain.total_bytes(), 3 * m);

  const Traffic weights = between_hosts({.weight_bits = 8, .gradient_bits = 16}, 1);
  EXPECT_EQ(weights[Collective::all_gather].bytes, 2 * records_of_shards(8) * (kHosts - 1));
  const Traffic kept = between_hosts({.gradient_bits = 16}, 2);
  EXPECT_EQ(kept[Collective::all_gather].bytes, m) << "forward alone";
  const Traffic gradients = between_hosts({.gradient_bits = 4}, 1);
  EXPECT_EQ(gradients[Collective::all_to_all].bytes, records_of_shards(4) * (kHosts - 1));

  const Traffic all = between_hosts({.weight_bits = 8, .gradient_bits = 4}, 2);
  EXPECT_EQ(all.total_bytes(), (records_of_shards(8) + records_of_shards(4)) * (kHosts - 1));
  const auto share = static_cast<double>(all.total_bytes()) / static_cast<double>(m);
  EXPECT_GT(share, 0.75);
  EXPECT_LT(share, 0.75 * 1.02);
}

TEST(ZeroPlusPlusAgreement, a_second_copy_takes_a_share_of_the_parameters) {
  const auto parameters = [](int secondary) {
    return predict(model_of("llama"), layout_with({}, secondary)).steady[static_cast<size_t>(Category::parameters)];
  };
  const int64_t shard = parameters(1);  // M/4 elements
  EXPECT_EQ(parameters(2), shard + 2 * shard) << "and M/2";
}

}  // namespace
}  // namespace nought::zeropp_agreement_test
