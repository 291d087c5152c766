// A table in tiles of its rows. Whole models with tiles are those without: tests/train/unit_tiles_test.cpp.
#include "nought/parallel/vocabulary_tiles.h"

#include <gtest/gtest.h>

namespace nought::vocabulary_tiles_test {
namespace {

TEST(VocabularyTiles, hold_every_row_once_in_order_and_find_each_token_in_one_tile) {
  constexpr int64_t kVocab = 11, kHidden = 4;
  Unit first("table.0"), second("table.1"), third("table.2");
  Unit* const units[] = {&first, &second, &third};
  const VocabularyTiles tiles =
      add_vocabulary_tiles(units, "table", {kVocab, kHidden}, Init::zeros(), ParameterRole::embedding);
  ASSERT_EQ(tiles.size(), 3U);
  int64_t next = 0;
  for (const VocabularyTile& tile : tiles) {
    EXPECT_EQ(tile.held.begin, next);
    next = tile.held.end;
  }
  EXPECT_EQ(next, kVocab);

  const std::vector<int32_t> ids{0, 10, 5, 5};
  const std::vector<HeldIds> held = ids_of_tiles(Context::reference(), ids, tiles);
  for (size_t i = 0; i < ids.size(); ++i) {
    int tiles_with_it = 0;
    for (size_t t = 0; t < tiles.size(); ++t) {
      if (held[t].tokens.data<int32_t>()[i] < 0) continue;
      ++tiles_with_it;
      EXPECT_EQ(tiles[t].held.begin + held[t].rows.data<int32_t>()[i], ids[i]);
    }
    EXPECT_EQ(tiles_with_it, 1) << ids[i];
  }
}

}  // namespace
}  // namespace nought::vocabulary_tiles_test
