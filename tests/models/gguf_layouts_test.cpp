// Every layout puts each element of a parameter to a place of its own, and fills its tensors.
#include "nought/models/gguf_layouts.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

namespace nought::gguf_layouts_test {
namespace {

TEST(GgufLayouts, move_each_element_once_and_fill_the_tensors) {
  const DeltaShape delta{.key_heads = 2, .value_heads = 6, .key_dim = 3, .value_dim = 5};
  const int64_t grouped = 2 * delta.keys() + 2 * delta.values();
  const std::vector<std::pair<Shape, GgufPlace>> places{
      {{12, 5}, rows_in_pairs("t", {12, 5}, 6)},
      {{12}, rows_in_pairs("t", {12}, 6)},
      {{24, 5}, heads_apart("t", {24, 5}, 2, 4)},
      {{3, 4, 5}, turned("t", {3, 4, 5})},
      {{3, 4, 6}, columns_apart("t", "u", {3, 4, 6}, true, true)},
      {{3, 4, 6}, columns_apart("t", "u", {3, 4, 6}, false, true)},
      {{3, 6}, columns_apart("t", "u", {3, 6}, true, false)},
      {{2 * (3 + 4), 5}, latent_apart("t", "u", {14, 5}, 2, 3)},
      {{grouped, 4}, key_heads_apart("t", "u", {grouped, 4}, delta)},
      {{delta.width(), 4}, value_heads_tiled("t", {delta.width(), 4}, delta, 2 * delta.keys(), delta.value_dim)},
      {{6}, value_heads_tiled("t", {6}, delta, 0, 1)},
      {{4, delta.values()}, value_columns_tiled("t", {4, delta.values()}, delta)}};
  for (size_t which = 0; which < places.size(); ++which) {
    SCOPED_TRACE(which);
    const auto& [shape, place] = places[which];
    std::multiset<int64_t> from;
    std::map<std::string, std::multiset<int64_t>> to;
    std::map<std::string, int64_t> sizes;
    for (const GgufPart& part : place.parts) {
      sizes[part.tensor] = part.shape.numel();
      for (int64_t sheet = 0; sheet < shape.numel() / place.sheet; ++sheet)
        for (const GgufLine& line : part.lines())
          for (int64_t i = 0; i < line.count; ++i) {
            from.insert(sheet * place.sheet + line.from + i * line.stride);
            to[part.tensor].insert(sheet * part.step + line.to + i);
          }
    }
    const auto is_a_count = [](const std::multiset<int64_t>& all, int64_t end) {
      int64_t next = 0;
      for (const int64_t each : all)
        if (each != next++) return false;
      return next == end;
    };
    EXPECT_TRUE(is_a_count(from, shape.numel()));
    for (const auto& [tensor, size] : sizes) EXPECT_TRUE(is_a_count(to[tensor], size)) << tensor;
  }
}

}  // namespace
}  // namespace nought::gguf_layouts_test
