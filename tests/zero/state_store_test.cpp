// Tiles come back as they were left, whatever their offload tier; the next is read while one is worked on.
#include "nought/zero/state_store.h"

#include "support/guarded_context.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::state_store_test {
namespace {

class Store : public testing::Test {
 protected:
  OffloadOptions file(bool ahead, bool behind) const {
    return {.tier = {Pool::file, folder_.path().string(), {.backend = AioBackend::threads}},
            .reads_ahead = ahead,
            .writes_behind = behind,
            .buffers = 12};
  }
  /// Three tiles of two rows.
  std::unique_ptr<StateStore> make(const OffloadOptions& options) {
    auto store = std::make_unique<StateStore>(context_, options, "rank 0");
    for (int64_t tile = 0; tile < 3; ++tile)
      EXPECT_EQ(store->add({{.numel = 100 + tile}, {.dtype = DType::bf16, .numel = 3}}), static_cast<size_t>(tile));
    store->open();
    return store;
  }
  static std::vector<StateStore::Use> uses(StateStore::RowSet reads, StateStore::RowSet writes) {
    return {{0, reads, writes}, {1, reads, writes}, {2, reads, writes}};
  }

  test::TempFolder folder_;
  Context context_ = Context::cpu();
};

TEST_F(Store, gives_tiles_back_as_they_were_left) {
  OffloadOptions cramped = file(true, true);
  cramped.buffers = 4;
  for (const OffloadOptions& options :
       {OffloadOptions{}, file(false, false), file(true, false), file(false, true), file(true, true), cramped}) {
    const auto store = make(options);
    store->run(
        uses(0, StateStore::kAll), [](size_t) {},
        [&](size_t i, const std::vector<Tensor>& rows) {
          context_.run(Fill{.x = rows[0], .value = static_cast<double>(i)});
          context_.run(Fill{.x = rows[1], .value = static_cast<double>(i) + 0.5});
        });
    for (int pass = 1; pass < 4; ++pass)  // changes the first row alone
      store->run(
          uses(StateStore::kAll, 1), [](size_t) {},
          [&](size_t i, const std::vector<Tensor>& rows) {
            const std::vector<float> values = rows[0].to_vector<float>();
            EXPECT_EQ(values, std::vector<float>(100 + i, static_cast<float>(i) + static_cast<float>(pass - 1)));
            EXPECT_EQ(rows[1].to_vector<float>(), std::vector<float>(3, static_cast<float>(i) + 0.5F));
            context_.run(Fill{.x = rows[0], .value = static_cast<double>(i) + pass});
          });
    EXPECT_EQ(store->read(1, 0, {7, 9}).to_vector<float>(), (std::vector<float>{4, 4}));
    EXPECT_EQ(store->read(2, 1, {0, 3}).to_vector<float>(), (std::vector<float>{2.5, 2.5, 2.5}));
  }
}

TEST_F(Store, begins_with_the_next_tile_before_the_work_on_one_if_it_reads_ahead) {
  const auto order = [&](const OffloadOptions& options) {
    const auto store = make(options);
    store->run(
        uses(0, StateStore::kAll), [](size_t) {}, [](size_t, const std::vector<Tensor>&) {});
    std::string log;
    store->run(
        uses(StateStore::kAll, StateStore::kAll), [&](size_t i) { log += fmt::format("b{} ", i); },
        [&](size_t i, const std::vector<Tensor>&) { log += fmt::format("w{} ", i); });
    return log;
  };
  EXPECT_EQ(order(file(false, false)), "b0 w0 b1 w1 b2 w2 ");
  EXPECT_EQ(order(file(false, true)), "b0 w0 b1 w1 b2 w2 ");
  EXPECT_EQ(order(file(true, false)), "b0 b1 w0 b2 w1 w2 ");
  EXPECT_EQ(order(file(true, true)), "b0 b1 w0 b2 w1 w2 ");
  EXPECT_EQ(order({}), "b0 w0 b1 w1 b2 w2 ");
}

TEST(StateStore, brings_what_the_compute_stream_has_made_and_sends_what_the_work_leaves) {
  const Context context = test::guarded_context();
  StateStore store(context, {.tier = {Pool::host}, .sub_group = 8}, "rank 0");
  const std::vector<StateStore::Use> uses{{store.add({{.numel = 8}})}, {store.add({{.numel = 8}})}};
  store.open();
  EXPECT_TRUE(store.by_host());
  const Tensor from = context.zeros({5}, DType::bf16), to = context.zeros({5}, DType::f32);
  context.run(Fill{.x = from, .value = 3});
  store.begin(8);
  const auto gradients = [&](size_t i) { return store.room(i, StateStore::Room::gradients, {2, 7}, DType::bf16); };
  store.run(
      uses, [&](size_t i) { store.down(from, gradients(i), i); },
      [&](size_t i, const std::vector<Tensor>& rows) {
        EXPECT_EQ(gradients(i).to_vector<float>(), std::vector<float>(5, 3));
        std::fill_n(rows[0].data<float>(), 5, 7.0F + static_cast<float>(i));
        store.up(rows[0].flat(0, 5), to, i);
      });
  store.end();
  EXPECT_EQ(context.to_host<float>(to), std::vector<float>(5, 8));
  EXPECT_EQ(store.copies().bytes_down(), 20);
  EXPECT_EQ(store.copies().bytes_up(), 40);
  EXPECT_EQ(context.memory->ledger().current(Category::workspace, Pool::host), 0);
}

TEST_F(Store, has_as_many_places_as_its_buffers_allow) {
  OffloadOptions options = file(true, true);
  for (const auto& [buffers, places] : {std::pair(4, 1u), {7, 1u}, {8, 2u}, {12, 3u}, {100, 3u}}) {
    options.buffers = buffers;
    EXPECT_EQ(make(options)->places(), places) << buffers;
  }
  EXPECT_EQ(make(file(true, false))->places(), 2u);
  EXPECT_EQ(make(options)->note(), fmt::format("optimizer states are in files in {}, by threads", options.tier.folder));
  EXPECT_EQ(make({})->note(), "");
}

}  // namespace
}  // namespace nought::state_store_test
