// Documents that are packed into one row, and rows that are padded, give what each document gives by itself.
#include "support/golden_case.h"
#include <gtest/gtest.h>

#include "nought/models/names.h"
#include "nought/train/probe.h"

namespace nought::packed_test {
namespace {

using test::difference;
using test::golden_folder;
using test::GoldenCase;
using test::TrainingRank;

using Document = std::vector<int32_t>;

/// Documents of many lengths, cut from the golden batch: some shorter than a window, one that fills all positions.
std::vector<Document> documents_of(const Context& context, const std::string& folder, int64_t vocab_size) {
  const ProbeInput input = read_probe_input(context, folder + "/golden.safetensors", vocab_size);
  const int64_t* ids = input.ids.data<int64_t>();
  std::vector<Document> documents;
  for (const Interval range : {Interval{0, 24}, {24, 33}, {5, 12}, {27, 28}, {26, 47}, {3, 5}})
    documents.emplace_back(ids + range.begin, ids + range.end);
  return documents;
}

/// The documents one behind the other in one row: each token's target is the next one of its document.
Batch packed(const Context& context, std::span<const Document> documents) {
  Document ids, targets, starts;
  for (const Document& document : documents) {
    starts.push_back(static_cast<int32_t>(ids.size()));
    ids.insert(ids.end(), document.begin(), document.end());
    targets.insert(targets.end(), document.begin() + 1, document.end());
    targets.push_back(kIgnoredTarget);
  }
  const Shape shape{1, static_cast<int64_t>(ids.size())};
  return {
      Tensor::of<int32_t>(*context.memory, shape, ids), Tensor::of<int32_t>(*context.memory, shape, targets), {starts}};
}

int64_t targets_of(std::span<const Document> documents) {
  int64_t count = 0;
  for (const Document& document : documents) count += static_cast<int64_t>(document.size()) - 1;
  return count;
}

/// Loss and all gradients of the micro-batches, on one rank.
ProbeOutput gradients_of(TrainingRank& rank, std::span<const Batch> batches, int64_t targets) {
  const double loss = rank.engine.accumulate(batches, static_cast<double>(targets)).loss;
  ProbeOutput output;
  const auto& units = rank.decoder.units();
  for (size_t i = 0; i < units.size(); ++i) {
    const std::vector<Tensor> gradients = rank.model.gather_gradients(i);
    for (size_t p = 0; p < gradients.size(); ++p) {
      if (!gradients[p]) continue;
      Tensor kept = rank.context.empty({gradients[p].numel()}, gradients[p].dtype());
      rank.context.copy(gradients[p].flat(0, gradients[p].numel()), kept);
      output.emplace_back(units[i]->parameters()[p].name, kept);
    }
  }
  rank.model.discard_gradients();
  output.emplace_back("loss", Tensor::of<double>(*rank.context.memory, {1}, std::span(&loss, 1)));
  return output;
}

void expect_equal(const ProbeOutput& actual, const ProbeOutput& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  double norm = 0;  // of all gradients: what vanishes in exact arithmetic is noise beside it
  for (const auto& [name, tensor] : expected) norm = std::hypot(norm, difference(tensor, tensor).norm);
  for (size_t i = 0; i < actual.size(); ++i) {
    const test::Difference d = difference(actual[i].second, expected[i].second);
    const double error = d.norm > 0 ? d.relative_l2 * d.norm : d.max_abs;
    EXPECT_LE(error, 1e-5 * std::max(d.norm, 1e-4 * norm)) << expected[i].first;
  }
}

class PackedFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(PackedFamily, packed_documents_equal_separate_runs) {
  const std::string folder = golden_folder(GetParam());
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    test::AloneRank alone(GoldenCase{.folder = folder, .recompute = recompute}.training());
    TrainingRank& rank = alone.rank;
    const auto documents = documents_of(rank.context, folder, rank.decoder.config().vocab_size);
    std::vector<Batch> separate;
    for (const Document& document : documents) separate.push_back(packed(rank.context, std::span(&document, 1)));
    const Batch together = packed(rank.context, documents);
    const int64_t targets = targets_of(documents);
    expect_equal(gradients_of(rank, std::span(&together, 1), targets), gradients_of(rank, separate, targets));

    const Tensor logits = rank.decoder.logits(rank.context, together);
    int64_t begin = 0;
    for (const Batch& batch : separate) {
      const Tensor alone = rank.decoder.logits(rank.context, batch);
      EXPECT_LE(difference(logits.slice(begin, begin + alone.dim(0)), alone).relative_l2, 1e-5) << begin;
      begin += alone.dim(0);
    }
  }
}

/// The documents as rows of one length, on the left or on the right of padding that holds other tokens.
ProbeInput padded(const Context& context, std::span<const Document> documents, bool left) {
  const int64_t length = 27;
  const Shape shape{static_cast<int64_t>(documents.size()), length};
  ProbeInput input{context.empty(shape, DType::i64), context.empty(shape, DType::i64),
                   context.empty(shape, DType::i64)};
  for (size_t row = 0; row < documents.size(); ++row)
    for (int64_t t = 0; t < length; ++t) {
      const auto size = static_cast<int64_t>(documents[row].size()), at = static_cast<int64_t>(row) * length + t;
      const int64_t token = left ? t - (length - size) : t;
      const bool real = 0 <= token && token < size;
      input.mask.data<int64_t>()[at] = real;
      input.ids.data<int64_t>()[at] = real ? documents[row][static_cast<size_t>(token)] : 17;
      input.labels.data<int64_t>()[at] = input.ids.data<int64_t>()[at];
    }
  return input;
}

TEST_P(PackedFamily, left_and_right_padding_equal_unpadded_runs) {
  const std::string folder = golden_folder(GetParam());
  for (const bool left : {false, true}) {
    ProbeOutput expected;
    std::vector<Tensor> logits;
    GoldenCase{.folder = folder}.training().on_ranks([&](TrainingRank& rank) {
      const auto documents = documents_of(rank.context, folder, rank.decoder.config().vocab_size);
      std::vector<Batch> separate;
      for (const Document& document : documents) separate.push_back(packed(rank.context, std::span(&document, 1)));
      expected = gradients_of(rank, separate, targets_of(documents));
      for (const Batch& batch : separate) logits.push_back(rank.decoder.logits(rank.context, batch));
    });
    GoldenCase{.folder = folder, .mesh = test::sharded(2, 3)}.training().on_ranks([&](TrainingRank& rank) {
      const auto documents = documents_of(rank.context, folder, rank.decoder.config().vocab_size);
      ProbeOutput output = probe(rank.model, rank.decoder, padded(rank.context, documents, left), true);
      if (!rank.is_first()) return;
      for (size_t row = 0; row < documents.size(); ++row) {
        const Tensor all = output[output.size() - 2].second;  // [rows, length, vocabulary]
        const int64_t length = all.dim(1), size = logits[row].dim(0), begin = left ? length - size : 0;
        const Tensor rows = all.reshape({all.dim(0) * length, all.dim(2)});
        const int64_t first = static_cast<int64_t>(row) * length;
        EXPECT_LE(difference(rows.slice(first + begin, first + begin + size), logits[row]).relative_l2, 1e-5) << row;
      }
      output.erase(output.end() - 2);
      expect_equal(output, expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PackedFamily, ::testing::ValuesIn(test::kGoldenFamilies), test::family_of);
INSTANTIATE_TEST_SUITE_P(Options, PackedFamily, ::testing::ValuesIn(test::long_options()), test::family_of);
INSTANTIATE_TEST_SUITE_P(States, PackedFamily, ::testing::ValuesIn(test::kGoldenStates), test::family_of);

}  // namespace
}  // namespace nought::packed_test
