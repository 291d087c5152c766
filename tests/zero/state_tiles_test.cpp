// Tiles hold every element of the pieces once, and no more than they may.
#include "nought/zero/state_tiles.h"

#include "support/small_units.h"
#include <gtest/gtest.h>

namespace nought::state_tiles_test {
namespace {

class StateTiles : public testing::Test {
 protected:
  StateTiles() : units_(test::small_units()) {
    const Unit& unit = *units_[0];
    for (const ParameterPiece& piece : pieces_in(unit, 0, {0, unit.segments()[0].size}))
      pieces_.push_back({piece, piece.parameter, &unit.parameters()[piece.parameter], 0, {.method = AdamOptions{}}});
    scope_ = {0, Partition(unit.segments()[0].size, 1).padded()};
    for (const TrainedPiece& piece : pieces_) numel_ += piece.piece.in_segment.size();
  }
  std::vector<StateTile> make(const TileRules& rules) const { return make_tiles(pieces_, scope_, rules); }

  test::Units units_;
  std::vector<TrainedPiece> pieces_;
  Interval scope_;
  int64_t numel_ = 0;
};

TEST_F(StateTiles, have_every_element_once_and_in_order) {
  for (const int64_t most : {1, 7, 100, 1000}) {
    int64_t before = -1, sum = 0;
    for (const StateTile& tile : make({.masters = DType::f32, .most = most})) {
      EXPECT_LE(tile.numel, most);
      int64_t in_tile = 0;
      for (const TrainedPiece& piece : tile.pieces) {
        EXPECT_GT(piece.piece.in_segment.begin, before);
        EXPECT_EQ(piece.piece.in_segment.size(), piece.piece.in_parameter.size());
        before = piece.piece.in_segment.end - 1;
        EXPECT_EQ(piece.in_tile, (Interval{in_tile, in_tile + piece.piece.in_segment.size()}));
        EXPECT_EQ(piece.in_masters, piece.in_tile);
        in_tile += piece.in_tile.size();
      }
      EXPECT_EQ(tile.numel, in_tile);
      ASSERT_EQ(tile.rows.size(), 3u);
      for (const StateRow& row : tile.rows) EXPECT_EQ(row.numel, tile.numel);
      sum += in_tile;
    }
    EXPECT_EQ(sum, numel_);
  }
}

TEST_F(StateTiles, are_one_with_room_for_padding_where_nothing_moves) {
  const std::vector<StateTile> tiles = make({.masters = DType::f32});
  ASSERT_EQ(tiles.size(), 1u);
  for (const StateRow& row : tiles[0].rows) EXPECT_EQ(row.numel, scope_.size());
  for (const TrainedPiece& piece : tiles[0].pieces) EXPECT_EQ(piece.in_masters, piece.piece.in_segment);
}

TEST_F(StateTiles, begin_at_multiples_of_blocks_of_codes) {
  for (const int64_t most : {1, 16, 40, 200}) {
    int64_t blocks = 0;
    for (const StateTile& tile : make({.state_block = 16, .most = most})) {
      EXPECT_LE(tile.numel, std::max<int64_t>(most, 16));
      ASSERT_EQ(tile.rows.size(), 4u);
      EXPECT_EQ(tile.rows[0].dtype, DType::u8);
      EXPECT_TRUE(tile.rows[1].scales);
      blocks += tile.rows[1].numel;
      for (const TrainedPiece& piece : tile.pieces) EXPECT_EQ(piece.piece.in_parameter.begin % 16, 0);
    }
    EXPECT_EQ(blocks, ceil_div(37 * 3, 16) + ceil_div(6, 16));
  }
}

TEST_F(StateTiles, that_stay_are_the_first_and_keep_masters_if_they_need_them) {
  const std::vector<StateTile> tiles = make({.masters = DType::f32, .most = 20, .stay = 2, .staying_masters = false});
  ASSERT_GT(tiles.size(), 2u);
  for (size_t i = 0; i < tiles.size(); ++i) {
    EXPECT_EQ(tiles[i].stays, i < 2);
    EXPECT_EQ(tiles[i].keeps_masters, i >= 2);
    EXPECT_EQ(tiles[i].rows.size(), i < 2 ? 2u : 3u);
  }
  EXPECT_TRUE(make({.stay = 0})[0].stays);
}

TEST_F(StateTiles, keep_pieces_whole_where_they_must_be) {
  const std::vector<StateTile> tiles = make({.most = 5, .cuts_pieces = false});
  ASSERT_EQ(tiles.size(), 2u);
  for (const StateTile& tile : tiles) EXPECT_EQ(tile.pieces.size(), 1u);
}

}  // namespace
}  // namespace nought::state_tiles_test
