// One flipped bit anywhere in a checkpoint is refused, or it changes nothing that is read: a run never goes on from
// other values than those that were saved.
#include <random>

#include "support/loaded_states.h"
#include "support/saved_model.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/weights/hf_folder.h"

namespace nought::bit_flips_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

/// A checkpoint of two ranks, whose optimizer states are no zeros.
fs::path save_in(const TempFolder& folder) {
  const CheckpointInfo info{.step = 30,
                            .zero_stage = 2,
                            .run = {{"seed", 1}, {"train_batch", 8}},
                            .skipped = 1,
                            .model_state = {0.5},
                            .validated = true,
                            .best = BestModel{.step = 20, .value = 1.25},
                            .written_by = "1 (abc)",
                            .about = {{"max_steps", 60}}};
  return test::SavedModel{.ranks = 2, .settings = {.policy = Policy::stage(2)}, .info = info, .tokenizer = "bytes"}
      .save(folder.path());
}

struct Read {
  Json manifest;
  std::map<std::string, std::vector<float>> states;
  friend bool operator==(const Read&, const Read&) = default;
};

/// What a run and the other commands read. Throws what they throw.
Read read_all(const fs::path& path) {
  const Decoder decoder(test::tiny_llama());
  check_other_files(path);
  read_checkpoint_info(path);
  return {read_manifest(path), test::states_in(path, decoder)};
}

TEST(BitFlips, are_refused_or_change_nothing_in_whichever_file_of_a_checkpoint) {
  const TempFolder folder;
  const fs::path path = save_in(folder);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_GE(files.size(), 4u);
  const Read whole = read_all(path);
  std::mt19937 random(30);
  std::map<std::string, int> refused, harmless;
  const int flips = test::sweep(100, 1000);
  for (int i = 0; i < flips; ++i) {
    const fs::path& file = files[random() % files.size()];
    const auto at = static_cast<int64_t>(random() % fs::file_size(file));
    const int bit = static_cast<int>(random() % 8);
    const std::string name = file.filename().string();
    test::flip_bit(file, at, bit);
    try {
      EXPECT_EQ(read_all(path), whole) << "byte " << at << " of " << name << " was not missed";
      ++harmless[name];
    } catch (const IoError&) {
      ++refused[name];
    } catch (const std::exception& error) {
      ADD_FAILURE() << "byte " << at << " of " << name << ": no error of a file: " << error.what();
    }
    test::flip_bit(file, at, bit);
  }
  EXPECT_EQ(read_all(path), whole) << "as it was";
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    std::printf("%s: %d refused, %d harmless\n", name.c_str(), refused[name], harmless[name]);
    EXPECT_GT(refused[name], 0) << name << " is not covered at all";
  }
}

TEST(BitFlips, every_bit_of_every_number_of_a_manifest_is_covered) {
  const TempFolder folder;
  const fs::path path = save_in(folder);
  const fs::path manifest = path / "manifest.json";
  const std::string text = test::read_bytes(manifest);
  const Json whole = read_manifest(path);
  for (const char* member : {"\"step\": 30", "\"skipped\": 1", "\"format\": \"nought-checkpoint-3\"", "\"seed\": 1"}) {
    const size_t begin = text.find(member);
    ASSERT_NE(begin, std::string::npos) << member;
    for (size_t at = begin; at < begin + std::string_view(member).size(); ++at)
      for (int bit = 0; bit < 8; ++bit) {
        test::flip_bit(manifest, static_cast<int64_t>(at), bit);
        try {
          EXPECT_EQ(read_manifest(path), whole) << test::read_bytes(manifest).substr(begin, 40);
        } catch (const IoError&) {
        }
        test::flip_bit(manifest, static_cast<int64_t>(at), bit);
      }
  }
}

}  // namespace
}  // namespace nought::bit_flips_test
