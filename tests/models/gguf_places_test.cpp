// A parameter has a place in llama.cpp's files: its tensor, its rows, and what is added to it.
#include "nought/models/gguf_places.h"

#include "support/tiny_llama.h"
#include <gtest/gtest.h>

#include "nought/models/decoder.h"

namespace nought::gguf_places_test {
namespace {

/// The row of the tensor that holds a row of the parameter.
int64_t target_row(const GgufPlace& place, int64_t row, int64_t width) {
  if (place.in_order()) return place.parts.front().to / width + row;
  const GgufPart& part = place.parts.front();
  const int64_t sheet = row * width / place.sheet;
  for (const GgufLine& line : part.lines())
    if (line.from == row * width % place.sheet) return (sheet * part.step + line.to) / width;
  return -1;
}

TEST(GgufPlaces, rows_of_rotated_heads_are_in_pairs_where_neighbours_are_rotated) {
  const ModelConfig config = test::tiny_llama();
  const Decoder model(config);
  const GgufPlaces places(config);
  const int64_t half = config.head_dim / 2, width = config.hidden_size;
  int rotated = 0;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const GgufPlace place = places.of(parameter);
      if (parameter.name.ends_with("layers.0.self_attn.k_proj.weight")) {
        EXPECT_EQ(place.tensor(), "blk.0.attn_k.weight");
        EXPECT_EQ(target_row(place, 1, width), 2);
        EXPECT_EQ(target_row(place, half, width), 1);
        EXPECT_EQ(target_row(place, config.head_dim + half, width), config.head_dim + 1);
        const GgufPlace outputs = places.of_outputs(parameter, 3);
        EXPECT_EQ(target_row(outputs, half, 3), 1) << "of an adapter's factor";
        ++rotated;
      }
      if (parameter.name.ends_with("v_proj.weight")) {
        EXPECT_EQ(target_row(place, half, width), half);
      }
      EXPECT_EQ(place.parts.front().shape, parameter.placement.global);
    }
  EXPECT_EQ(rotated, 1);
}

}  // namespace
}  // namespace nought::gguf_places_test
