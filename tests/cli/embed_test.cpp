// nought embed as a user runs it: its file, ranks that share the texts, and what it refuses.
#include <filesystem>

#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/io/safetensors.h"

namespace nought::embed_test {
namespace {

using test::Ended;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;

const std::string kFolder = test::golden_root() + "/encoders/bert";

/// The golden texts as --input, and where the vectors go.
struct Files {
  Files() {
    std::string lines;
    for (const Json& each : read_json_file(kFolder + "/golden_texts.json"))
      lines += Json{{"id", 1}, {"text", each.at("text")}}.dump() + "\n";
    folder.write("texts.jsonl", lines);
  }
  Ended embed(const std::string& options, const std::string& model = kFolder) const {
    return run_program(
        fmt::format("{} embed {} --output {} {}", test::known_path("nought"), model, output().string(), options));
  }
  std::string input() const { return "--input " + (folder / "texts.jsonl").string(); }
  std::filesystem::path output() const { return folder / "vectors.safetensors"; }
  Tensor written(const std::string& name) const { return SafetensorsFile(output()).load(name, *memory); }

  TempFolder folder;
  std::shared_ptr<Memory> memory = Memory::create();
};

TEST(EmbedCommand, writes_the_vectors_of_each_line_on_one_rank_and_on_two) {
  const Files files;
  const Ended one = files.embed(files.input() + " --token-counts");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("the vectors of 14 texts, 24 elements each"));
  EXPECT_EQ(one.err, "note: 2 of 14 texts are longer than 20 tokens and were cut\n");
  const Tensor alone = files.written("embeddings");
  EXPECT_EQ(alone.dtype(), DType::f32);
  EXPECT_LE(test::difference(alone, SafetensorsFile(kFolder + "/golden.safetensors").load("embeddings", *files.memory))
                .max_abs,
            1e-5);
  std::vector<double> counts;
  for (const Json& each : read_json_file(kFolder + "/golden_texts.json")) counts.push_back(each.at("cut").size());
  EXPECT_EQ(files.written("token_counts").to_vector<double>(), counts);

  const Ended two = files.embed(files.input() + " --ranks 2 --batch-size 3");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(files.written("embeddings").to_vector<double>(), alone.to_vector<double>());
}

TEST(EmbedCommand, refuses_in_one_line_what_it_cannot_read) {
  const Files files;
  const auto refuses = [&](const std::string& options, const std::string& message, const std::string& model = kFolder) {
    const Ended ended = files.embed(options, model);
    EXPECT_EQ(ended.exit_code, 1) << options;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(files.output()));
  };
  files.folder.write("other.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n");
  refuses("--input " + (files.folder / "other.jsonl").string(), "other.jsonl:2: expected an object with a \"text\"");
  refuses(files.input() + " --pooling first", "--pooling first: known are cls, max");
  refuses(files.input() + " --prompt-name passage", "has no prompt \"passage\"; it has document, query");
  refuses(files.input() + " --max-length 2", "none beside the 2 special ones");
  std::filesystem::copy(kFolder, files.folder / "bare", std::filesystem::copy_options::recursive);
  std::filesystem::remove(files.folder / "bare" / "tokenizer.json");
  refuses(files.input(), "has no tokenizer.json", (files.folder / "bare").string());
}

TEST(EmbedCommand, other_commands_say_what_an_encoder_is_for) {
  const Files files;
  const std::string run = files.folder
                              .write("run.json", Json{{"model", kFolder},
                                                      {"data", {{"files", {"texts.jsonl"}}}},
                                                      {"training", {{"output_dir", "out"}, {"max_steps", 1}}}}
                                                     .dump())
                              .string();
  for (const std::string& command : {"train " + run, "generate " + kFolder + " --prompt a"}) {
    const Ended ended = run_program(fmt::format("{} {}", test::known_path("nought"), command));
    EXPECT_EQ(ended.exit_code, 1) << command;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("is an encoder (bert), which predicts no next token: \"nought embed\""));
  }
}

}  // namespace
}  // namespace nought::embed_test
