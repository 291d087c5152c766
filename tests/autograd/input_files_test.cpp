#include "nought/autograd/input_files.h"

#include <cstring>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/autograd/recompute.h"
#include "nought/comm/thread.h"

namespace nought::input_files_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SavedInputsInFiles : public testing::Test {
 protected:
  RecomputeOptions in_files() const {
    RecomputeOptions options = Recompute::full;
    options.tier.pool = Pool::file, options.tier.folder = folder_.path().string();
    return options;
  }
  test::TempFolder folder_;
};

constexpr int64_t kRows = 300, kColumns = 100;
constexpr int64_t kStride = 128 << 10;  // of their 120,000 bytes in a file

Tensor numbers(const Context& context, float first) {
  std::vector<float> values(kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return context.upload<float>({kRows, kColumns}, values);
}

void expect_numbers(const Context& context, const Tensor& x, float first) {
  EXPECT_EQ(x.shape(), (Shape{kRows, kColumns}));
  EXPECT_EQ(x.buffer()->pool(), Pool::device);
  EXPECT_EQ(context.to_host<float>(x), context.to_host<float>(numbers(context, first)));
}

/// Two passes at one time, whose backward passes come in either order, as a pipeline makes them.
TEST_F(SavedInputsInFiles, of_several_passes_come_back_as_they_were) {
  for (const bool guarded : {false, true}) {
    const Context context = guarded ? test::guarded_context() : Context::cpu();
    SavedInputs saved(in_files());
    const MemoryLedger& ledger = context.memory->ledger();
    for (int round = 0; round < 3; ++round) {
      const auto first = [&](size_t pass, size_t i) { return static_cast<float>(1000 * round + 100 * pass + 10 * i); };
      std::vector<std::vector<SavedInputs::Kept>> kept(2);
      for (size_t pass = 0; pass < 2; ++pass) {
        SavedInputs::Pass of_pass = saved.begin(context, 4, numbers(context, 0));
        for (size_t i = 0; i < 4; ++i) kept[pass].push_back(of_pass.keep(context, numbers(context, first(pass, i))));
        EXPECT_THROW(of_pass.keep(context, numbers(context, 0)), Error);
      }
      for (const size_t pass : round == 1 ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1})
        for (size_t i = 4; i-- > 0; kept[pass].pop_back())
          expect_numbers(context, kept[pass][i](context), first(pass, i));
      EXPECT_EQ(ledger.current(Category::activations, Pool::file), 2 * 4 * kStride) << "later passes have the rooms";
    }
    EXPECT_EQ(saved.file_traffic().written, 3 * 8 * kRows * kColumns * 4);
    EXPECT_EQ(saved.file_traffic().read, saved.file_traffic().written);
  }
}

TEST_F(SavedInputsInFiles, take_the_memory_of_two_whatever_their_number) {
  for (const bool guarded : {false, true}) {
    const Context context = guarded ? test::guarded_context() : Context::cpu();
    SavedInputs saved(in_files());
    MemoryLedger& ledger = context.memory->ledger();
    const int64_t one = numbers(context, 0).bytes();
    SavedInputs::Pass pass = saved.begin(context, 20, numbers(context, 0));
    const auto alive = [&] {
      context.stream->synchronize();
      return ledger.current(Category::activations) + ledger.current(Category::activations, Pool::host);
    };
    std::vector<SavedInputs::Kept> kept;
    for (int i = 0; i < 20; ++i) {
      kept.push_back(pass.keep(context, numbers(context, static_cast<float>(i))));
      EXPECT_LE(alive(), 2 * (one + 8192)) << i;
    }
    for (int i = 20; i-- > 0; kept.pop_back()) {
      expect_numbers(context, kept.back()(context), static_cast<float>(i));
      EXPECT_LE(alive(), 2 * (one + 8192)) << i << ": what was read ahead, and on a device what the last copy read";
    }
  }
}

TEST_F(SavedInputsInFiles, are_read_ahead_unless_nobody_wants_them) {
  const Context context = Context::cpu();
  SavedInputs saved(in_files());
  const int64_t one = numbers(context, 0).bytes();
  std::vector<SavedInputs::Kept> kept;
  {
    SavedInputs::Pass pass = saved.begin(context, 4, numbers(context, 0));
    for (int i = 0; i < 4; ++i) kept.push_back(pass.keep(context, numbers(context, static_cast<float>(i))));
  }
  EXPECT_EQ(saved.file_traffic().read, 0);
  expect_numbers(context, kept[3](context), 3);
  EXPECT_EQ(saved.file_traffic().read, 2 * one) << "it, and the one before it";
  expect_numbers(context, kept[2](context), 2);
  EXPECT_EQ(saved.file_traffic().read, 3 * one);
  kept[0] = {};
  expect_numbers(context, kept[1](context), 1);
  EXPECT_EQ(saved.file_traffic().read, 3 * one);
}

TEST_F(SavedInputsInFiles, of_a_larger_pass_get_a_larger_file_and_of_a_smaller_one_the_same) {
  const Context context = Context::cpu();
  SavedInputs saved(in_files());
  const auto bytes_after = [&](int64_t count) {
    SavedInputs::Pass pass = saved.begin(context, count, numbers(context, 0));
    const SavedInputs::Kept kept = pass.keep(context, numbers(context, 5));
    expect_numbers(context, kept(context), 5);
    return context.memory->ledger().current(Category::activations, Pool::file);
  };
  EXPECT_EQ(bytes_after(2), 2 * kStride);
  EXPECT_EQ(bytes_after(1), 2 * kStride);
  EXPECT_EQ(bytes_after(3), 3 * kStride);
}

/// The bits are those of inputs that stay on the device, also of ranks with fewer elements than others or none.
TEST_F(SavedInputsInFiles, have_the_bits_of_those_on_the_device_with_fp8_and_shared_out) {
  for (const bool fp8 : {false, true})
    for (const int ranks : {1, 2, 5})
      for (const bool guarded : {false, true})
        run_ranks(test::contexts_of(ranks, guarded), [&](Communicator& world, const Context& context) {
          const std::vector<float> values{-3.7f, 0.01f, 5, -6, 7.1f, 8, 90, 1000, 11, -12.3f, 13, 0};
          const Tensor x = context.upload<float>({3, 4}, values);
          std::vector<std::vector<float>> back;
          for (const Pool pool : {Pool::device, Pool::file}) {
            RecomputeOptions options = in_files();
            options.tier.pool = pool, options.fp8 = fp8, options.partitioned = true;
            SavedInputs saved(options, &world);
            SavedInputs::Pass pass = saved.begin(context, 2, x);
            const SavedInputs::Kept first = pass.keep(context, x), second = pass.keep(context, x);
            const Tensor late = second(context), early = first(context);
            EXPECT_EQ(early.shape(), x.shape());
            back.push_back(context.to_host<float>(early));
            EXPECT_EQ(context.to_host<float>(late), back.back());
            if (pool == Pool::file) {
              const int64_t part = (12 + ranks - 1) / ranks;
              EXPECT_EQ(saved.file_traffic().written, 2 * (fp8 ? part + 1 : 4 * part));
            }
          }
          EXPECT_EQ(back[1], back[0]);
          EXPECT_TRUE(fp8 || back[1] == values);
        });
}

TEST_F(SavedInputsInFiles, that_find_no_folder_say_whose_they_are) {
  RecomputeOptions options = in_files();
  options.tier.folder += "/missing/deeper";
  const Context context = Context::cpu();
  SavedInputs saved(options, nullptr, "rank 3");
  EXPECT_THAT(test::message_of<IoError>([&] { saved.begin(context, 1, numbers(context, 0)); }),
              AllOf(HasSubstr("rank 3"), HasSubstr("saved inputs"), HasSubstr("missing")));
}

}  // namespace
}  // namespace nought::input_files_test
