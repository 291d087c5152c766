// A checkpoint is whole on the disk before it has its name, and every block of every state is checked when it is read.
#include <cerrno>
#include <map>

#include "support/in_folder.h"
#include "support/recorded_calls.h"
#include "support/saved_model.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"

namespace nought::checkpoint_integrity_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::RecordedCall;
using test::RecordedCalls;
using test::TempFolder;
using testing::HasSubstr;

/// A checkpoint of two ranks in bf16, so that the masters are states of their own.
fs::path save_one(const TempFolder& folder, const std::string& tokenizer = "bytes") {
  return test::SavedModel{.ranks = 2,
                          .settings = {.policy = Policy::stage(2), .dtype = DType::bf16, .gradient_dtype = DType::bf16},
                          .tokenizer = tokenizer}
      .save(folder / "out");
}

class CheckpointIntegrity : public test::InFolder {};

TEST_F(CheckpointIntegrity, all_files_are_flushed_before_the_folder_gets_its_name_and_its_parent_after_that) {
  folder.write("words/tokenizer.json", "{}");
  folder.write("words/tokenizer_config.json", "{\"a\": 1}");
  std::vector<RecordedCall> calls;
  fs::path saved;
  {
    const RecordedCalls recorded;
    saved = save_one(folder, (folder / "words").string());
    calls = recorded.calls();
  }
  const auto named =
      std::find_if(calls.begin(), calls.end(), [&](const RecordedCall& call) { return call.path == saved; });
  ASSERT_NE(named, calls.end());
  EXPECT_EQ(named->name, "rename");
  std::map<std::string, std::string> flushed;  // by file name
  for (auto call = calls.begin(); call != named; ++call)
    if (call->name == "fsync") flushed[call->path.filename().string()] = call->bytes;
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(saved)) {
    names.push_back(file.path().filename().string());
    EXPECT_EQ(flushed[names.back() + ".partial"], test::read_bytes(file.path())) << names.back();
  }
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("config.json", "manifest.json", "rank-00000.safetensors",
                                            "rank-00001.safetensors", "tokenizer.json", "tokenizer_config.json"));
  EXPECT_TRUE(flushed.contains("checkpoint-3.partial")) << "the folder, with the names of its files";
  EXPECT_EQ(std::count(named, calls.end(), RecordedCall{"fsync", saved.parent_path()}), 1);
}

TEST_F(CheckpointIntegrity, a_flush_that_fails_leaves_the_checkpoint_before_it) {
  const fs::path path = save_one(folder);
  const std::string manifest = test::read_bytes(path / "manifest.json");
  RecordedCalls recorded;
  recorded.fail_next("fsync", EIO);
  EXPECT_THROW(save_one(folder), IoError);
  EXPECT_EQ(test::read_bytes(path / "manifest.json"), manifest);
  Decoder decoder(test::tiny_llama());
  EXPECT_EQ(Checkpoint(path, decoder).info().step, 3);
}

TEST_F(CheckpointIntegrity, a_manifest_of_a_newer_version_is_refused_before_its_members_are_read) {
  folder.write("checkpoint-3/manifest.json", "{\"format\": \"nought-checkpoint-5\", \"steps\": [3]}");
  const std::string message = fmt::format(
      "{}: its format is nought-checkpoint-5, this program reads up to nought-checkpoint-4: use the version of nought "
      "that wrote it, or a newer one",
      (folder / "checkpoint-3/manifest.json").string());
  Decoder decoder(test::tiny_llama());
  EXPECT_EQ(message_of<IoError>([&] { read_checkpoint_info(folder / "checkpoint-3"); }), message);
  EXPECT_EQ(message_of<IoError>([&] { Checkpoint(folder / "checkpoint-3", decoder); }), message);
}

/// Flips a bit in the middle of a tensor of a safetensors file; twice is not at all.
void flip_bit_of(const fs::path& file, const TensorEntry& entry) {
  uint64_t header = 0;
  std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
  test::flip_bit(file,
                 static_cast<int64_t>(sizeof header + header) + entry.bytes.begin + entry.bytes.size() / 2 / 4 * 4);
}

StateKind kind_of(const std::string& block) {
  for (const StateKind kind : {StateKind::master, StateKind::exp_avg, StateKind::exp_avg_sq})
    if (block.starts_with(std::string(name_of(kind)) + "/")) return kind;
  throw std::runtime_error(block + " is of no state");
}

const Parameter& parameter_of(const Model& model, const std::string& block) {
  const std::string name = block.substr(block.find('/') + 1, block.rfind('[') - block.find('/') - 1);
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters())
      if (parameter.name == name) return parameter;
  throw std::runtime_error(block + " is of no parameter");
}

TEST_F(CheckpointIntegrity, one_flipped_bit_in_a_block_of_any_state_is_found_and_named) {
  const fs::path path = save_one(folder);
  const Context context = Context::reference();
  Decoder decoder(test::tiny_llama());
  const auto fill = [&](const TensorEntry& entry, int64_t count) {
    const Parameter& parameter = parameter_of(decoder, entry.name);
    const int64_t begin = std::stoll(entry.name.substr(entry.name.rfind('[') + 1));
    Checkpoint(path, decoder)
        .fill(kind_of(entry.name), parameter, {begin, begin + count}, context.empty({count}, DType::f32));
  };
  std::map<StateKind, int> damaged;
  for (const char* name : {"rank-00000.safetensors", "rank-00001.safetensors"}) {
    const std::vector<TensorEntry> entries = SafetensorsFile(path / name).entries();
    for (const TensorEntry& entry : entries) {
      flip_bit_of(path / name, entry);
      EXPECT_THAT(message_of<IoError>([&] { fill(entry, entry.shape.numel()); }),
                  HasSubstr("block " + entry.name + " is damaged"));
      EXPECT_THROW(fill(entry, 1), IoError) << "a part of the block: " << entry.name;
      flip_bit_of(path / name, entry);
      fill(entry, entry.shape.numel());
      ++damaged[kind_of(entry.name)];
    }
  }
  EXPECT_EQ(damaged.size(), 3u);
}

TEST_F(CheckpointIntegrity, damaged_weights_are_found_by_whoever_loads_the_weights_alone) {
  const fs::path path = save_one(folder), file = path / "rank-00000.safetensors";
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  Decoder decoder(test::tiny_llama());
  ShardedModel model(context, *self, decoder, {.training = false});
  model.load(Checkpoint(path, decoder));
  const std::vector<TensorEntry> entries = SafetensorsFile(file).entries();
  const auto master = std::find_if(entries.begin(), entries.end(),
                                   [](const TensorEntry& entry) { return kind_of(entry.name) == StateKind::master; });
  ASSERT_NE(master, entries.end());
  flip_bit_of(file, *master);
  EXPECT_THAT(message_of<IoError>([&] { model.load(Checkpoint(path, decoder)); }), HasSubstr("is damaged"));
}

}  // namespace
}  // namespace nought::checkpoint_integrity_test
