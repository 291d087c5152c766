// A parameter has a place in llama.cpp's files: its tensor, its rows, and what is added to it.
#include "nought/models/gguf_places.h"

#include "support/tiny_llama.h"
#include <gtest/gtest.h>

#include "nought/models/decoder.h"

namespace nought::gguf_places_test {
namespace {

TEST(GgufPlaces, rows_of_rotated_heads_are_in_pairs_where_neighbours_are_rotated) {
  const ModelConfig config = test::tiny_llama();
  const Decoder model(config);
  const GgufPlaces places(config);
  const int64_t half = config.head_dim / 2;
  int rotated = 0;
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const GgufPlace place = places.of(parameter);
      if (parameter.name.ends_with("layers.0.self_attn.k_proj.weight")) {
        EXPECT_EQ(place.tensor, "blk.0.attn_k.weight");
        EXPECT_EQ(place.target_row(1), 2);
        EXPECT_EQ(place.target_row(half), 1);
        EXPECT_EQ(place.target_row(config.head_dim + half), config.head_dim + 1);
        ++rotated;
      }
      if (parameter.name.ends_with("v_proj.weight")) {
        EXPECT_EQ(place.target_row(half), half);
      }
      EXPECT_EQ(place.shape, parameter.placement.global);
    }
  EXPECT_EQ(rotated, 1);
}

}  // namespace
}  // namespace nought::gguf_places_test
