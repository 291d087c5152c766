#include "nought/checkpoint/checkpoint_contents.h"

#include "support/saved_model.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/decoder.h"
#include "nought/nn/freezing.h"

namespace nought::checkpoint_contents_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CheckpointContents, are_counted_once_however_they_are_spread) {
  for (const int ranks : {1, 2}) {
    const TempFolder folder;
    const auto freeze = [](Decoder& decoder) { apply({.freeze = {"embed_tokens"}, .trainable = {}}, decoder); };
    const CheckpointContents contents = contents_of(test::SavedModel{.ranks = ranks,
                                                                     .settings = {.policy = Policy::stage(2)},
                                                                     .info = {.step = 7, .written_by = "1 (abc)"},
                                                                     .prepare = freeze}
                                                        .save(folder.path()));
    EXPECT_EQ(contents.format, "nought-checkpoint-3");
    EXPECT_EQ(contents.info.step, 7);
    EXPECT_EQ(contents.info.written_by, "1 (abc)");
    EXPECT_FALSE(contents.info.written_at.empty());
    EXPECT_THAT(contents.states, ElementsAre("exp_avg", "exp_avg_sq", "master"));
    EXPECT_EQ(contents.parameters, Decoder(test::tiny_llama()).parameter_count());
    EXPECT_EQ(contents.frozen, 256 * 16);
    EXPECT_EQ(contents.files, ranks);
    EXPECT_GT(contents.bytes, (contents.parameters + 2 * (contents.parameters - contents.frozen)) * 4);
  }
}

TEST(CheckpointContents, a_file_that_is_gone_is_named) {
  const TempFolder folder;
  test::SavedModel{.info = {.step = 7}}.save(folder.path());
  fs::remove(folder / "checkpoint-7/rank-00000.safetensors");
  EXPECT_THAT(message_of<IoError>([&] { contents_of(folder / "checkpoint-7"); }), HasSubstr("rank-00000.safetensors"));
}

}  // namespace
}  // namespace nought::checkpoint_contents_test
