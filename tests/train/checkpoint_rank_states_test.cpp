// What ranks have for themselves in checkpoints: the same rank of the same mesh gets it back, and no other.
#include "nought/checkpoint/checkpoint_rank_states.h"

#include <fstream>

#include "support/cut_units.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/thread.h"

namespace nought::checkpoint_rank_states_test {
namespace {

using testing::HasSubstr;

/// Values that differ by rank and element.
std::vector<float> values_of(int rank, int64_t numel, float of) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) values.push_back(of + static_cast<float>(100 * rank) + static_cast<float>(i));
  return values;
}

/// A model whose ranks have an error of rank + 3 elements and a count.
struct Own {
  Own(const Context& context, const Mesh& mesh, int64_t more = 3)
      : units(mesh),
        model(context, mesh, units, {}),
        error(context.zeros({mesh.world().rank() + more}, DType::f32)),
        count(context.zeros({2}, DType::i64)) {
    model.load(InitialState(1));
    model.keep_for_rank([this] { return std::vector<RankLocalTensor>{{"error/first", error}}; });
    model.keep_for_rank([this] { return std::vector<RankLocalTensor>{{"count", count}}; });
  }
  test::CutUnits units;
  ShardedModel model;
  Tensor error, count;
};

void save(const GridSizes& sizes, const std::filesystem::path& folder) {
  run_ranks(test::ranks_of(sizes), [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, sizes);
    Own own(context, mesh);
    const int rank = world.rank();
    context.copy(context.upload<float>(own.error.shape(), values_of(rank, own.error.numel(), 0.5F)), own.error);
    context.copy(context.upload<int64_t>({2}, std::vector<int64_t>{rank, -7}), own.count);
    save_checkpoint(own.model, {.step = 4, .world_size = world.size()}, folder);
  });
}

/// What each rank of a run on this mesh gets, and is told.
void load(const GridSizes& sizes, const std::filesystem::path& folder,
          const std::function<void(int, const Own&, const std::string&)>& check, int64_t more = 3) {
  run_ranks(test::ranks_of(sizes), [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, sizes);
    const Own own(context, mesh, more);
    const std::string line = Checkpoint(last_checkpoint(folder), own.units).fill_rank_states(own.model);
    check(world.rank(), own, line);
  });
}

TEST(RankStates, the_same_rank_of_the_same_mesh_gets_its_own_back) {
  for (const GridSizes& sizes : {GridSizes{}, GridSizes{.shard = 3}, GridSizes{.shard = 2, .tensor = 2}}) {
    const test::TempFolder folder;
    save(sizes, folder.path());
    load(sizes, folder.path(), [](int rank, const Own& own, const std::string& line) {
      EXPECT_EQ(line, "");
      EXPECT_EQ(own.model.context().to_host<float>(own.error), values_of(rank, rank + 3, 0.5F));
      EXPECT_EQ(own.model.context().to_host<int64_t>(own.count), (std::vector<int64_t>{rank, -7}));
    });
  }
}

TEST(RankStates, another_layout_drops_them_and_says_so_in_one_line) {
  const test::TempFolder folder;
  save({.shard = 2, .tensor = 2}, folder.path());
  for (const GridSizes& sizes : {GridSizes{.shard = 4}, GridSizes{.shard = 2}})
    load(sizes, folder.path(), [&](int, const Own& own, const std::string& line) {
      EXPECT_THAT(line, HasSubstr(fmt::format("has count, error of 4 ranks (shard 2, tensor 2), and here are {0} ranks "
                                              "(shard {0}): they are dropped; count, error begin anew",
                                              sizes.shard)));
      EXPECT_EQ(own.model.context().to_host<int64_t>(own.count), (std::vector<int64_t>{0, 0}));
    });
}

TEST(RankStates, what_is_missing_or_of_another_shape_begins_anew_and_what_nobody_wants_is_named) {
  const test::TempFolder folder;
  save({.shard = 2}, folder.path());
  load(
      {.shard = 2}, folder.path(),
      [](int rank, const Own& own, const std::string& line) {
        EXPECT_THAT(line, HasSubstr("has no error of this rank"));
        EXPECT_EQ(own.model.context().to_host<float>(own.error), std::vector<float>(static_cast<size_t>(rank) + 5, 0));
        EXPECT_EQ(own.model.context().to_host<int64_t>(own.count), (std::vector<int64_t>{rank, -7}));
      },
      /*more=*/5);
  run_ranks(2, [&](Communicator& world, const Context& context) {
    test::CutUnits units{Mesh(world)};
    const ShardedModel model(context, world, units, {});
    EXPECT_THAT(Checkpoint(last_checkpoint(folder.path()), units).fill_rank_states(model),
                HasSubstr("has count, error of each rank, for which this run has no use: they are dropped"));
  });
}

TEST(RankStates, a_flipped_bit_is_found_and_a_file_elsewhere_is_refused) {
  const test::TempFolder folder;
  save({}, folder.path());
  const std::filesystem::path path = last_checkpoint(folder.path()), file = path / "rank-00000.safetensors";
  const auto message = [&] {
    return test::message_of<IoError>([&] { load({}, folder.path(), [](int, const Own&, const std::string&) {}); });
  };
  const SafetensorsFile before(file);
  test::flip_bit(file, static_cast<int64_t>(before.raw(before.at("rank/error/first")).data() -
                                            before.raw(before.entries().front()).data()) -
                           before.entries().back().bytes.end);
  EXPECT_THAT(message(), HasSubstr("rank/error/first is damaged"));
  write_manifest({.step = 4}, Json::array(), path,
                 {{"mesh", Json::object()}, {"tensors", {{{"name", "x"}, {"file", "../x"}}}}});
  EXPECT_THAT(test::message_of<IoError>([&] { read_manifest(path); }), HasSubstr("which is none of the folder"));
}

TEST(RankStates, of_one_name_are_refused) {
  const Context context = Context::reference();
  const Tensor one = context.zeros({1}, DType::f32);
  EXPECT_THAT(test::message_of<Error>([&] { specs_of({{"a/b", one}, {"a/b", one}}); }), HasSubstr("are called a/b"));
}

}  // namespace
}  // namespace nought::checkpoint_rank_states_test
