// The text of a profile shows what was measured, as deep and as detailed as it is asked for.
#include "nought/observe/profile.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/base/lines.h"

namespace nought::profile_test {
namespace {

namespace fs = std::filesystem;

ModuleProfile module_of(const std::string& name, double seconds, std::vector<ModuleProfile> inside = {}) {
  return {.name = name,
          .parameters = 1000,
          .forward = {1, seconds / 3, {1e6, 1e3}},
          .backward = {2, 2 * seconds / 3, {2e6, 1e3}},
          .inside = std::move(inside)};
}

/// A step of a tenth of a second.
StepProfile a_profile(const ProfileOptions& options) {
  StepProfile profile{.options = options, .step = 3, .seconds = 0.1, .dtype = "bf16", .world_size = 2};
  profile.micro_batch = 4, profile.seq_length = 128, profile.rank_parameters = 500;
  profile.model_flops = 6e6, profile.peak_flops = 1e9;
  profile.times = {.forward = 0.03, .backward = 0.05, .optimizer = 0.01};
  profile.operations = {{"MatMul 2 x 3 x 4", {12, 0.06, {9e6, 1e6}}},
                        {"Adam", {4, 0.01, {0, 5e6}}},
                        {"Fill", {4, 0.0001, {0, 5e6}}},
                        {"Cast", {3, 0.0002, {0, 5e6}}}};
  const auto block = [&](const std::string& name) {
    return module_of(name, 0.03, {module_of("attention", 0.01), module_of("mlp", 0.02)});
  };
  profile.model = module_of("llama", 0.07, {module_of("embedding", 0.001), block("block.0"), block("block.1")});
  return profile;
}

/// The line that begins with `start`, spaces apart; its words.
std::vector<std::string> words_after(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(start)) continue;
    std::istringstream words(line.substr(start.size()));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {"no line"};
}

using Words = std::vector<std::string>;

TEST(ProfileText, has_the_passes_and_what_the_formula_says) {
  const std::string text = to_text(a_profile({.recompute_factor = 1}));
  EXPECT_EQ(words_after(text, "forward and the head's gradients"),
            (Words{"30.00", "ms", "30.0%", "1", "M", "33.3", "M"}))
      << text;
  EXPECT_EQ(words_after(text, "the step"), (Words{"100.00", "ms", "100.0%", "3", "M", "30", "M"}));
  EXPECT_EQ(words_after(text, "what the model needs, and MFU"), (Words{"6.0%", "6", "M", "60", "M"}));
  EXPECT_EQ(words_after(text, "and 1 x forward for recomputation"), (Words{"8.0%", "8", "M", "80", "M"}));
}

TEST(ProfileText, operations_come_longest_first_and_those_beyond_sixteen_share_a_row) {
  StepProfile profile = a_profile({});
  for (int i = 0; i < 14; ++i) profile.operations[fmt::format("Small {}", i)] = {3, 1e-4 - 1e-6 * i, {0, 5e6}};
  const std::string text = to_text(profile);
  EXPECT_LT(text.find("MatMul 2 x 3 x 4"), text.find("Adam"));
  EXPECT_EQ(words_after(text, "MatMul 2 x 3 x 4"),
            (Words{"12", "60.00", "ms", "60.0%", "9", "M", "150", "M", "1", "M", "16.7", "M"}));
  EXPECT_EQ(words_after(text, "2 others").at(0), "6") << text;
  EXPECT_EQ(words_after(text, "the rest: collectives, waiting, tape"), (Words{"28.39", "ms", "28.4%"}));
  EXPECT_EQ(text.find("for recomputation"), std::string::npos);
}

TEST(ProfileText, shows_the_longest_kinds_of_modules_down_to_the_depth) {
  const std::string text = to_text(a_profile({.top_modules = 2, .detailed = false}));
  EXPECT_EQ(words_after(text, "depth 1: block x 2").at(0), "2.00K") << text;
  EXPECT_EQ(words_after(text, "depth 2: mlp x 2"),
            (Words{"2.00K", "13.33", "ms", "26.67", "ms", "40.0%", "6", "M", "150", "M"}));
  EXPECT_NE(text.find("\n         embedding"), std::string::npos);
  EXPECT_EQ(text.find("every module"), std::string::npos);
  EXPECT_EQ(to_text(a_profile({.module_depth = 1, .top_modules = 2})).find("mlp"), std::string::npos);
  EXPECT_EQ(to_text(a_profile({.top_modules = 1, .detailed = false})).find("embedding"), std::string::npos);
  EXPECT_EQ(to_text(a_profile({.module_depth = 0})).find("block"), std::string::npos);
}

TEST(ProfileText, details_are_every_module_within_its_own) {
  const std::string text = to_text(a_profile({}));
  for (const char* line : {"\nllama ", "\n  embedding ", "\n  block.0 ", "\n  block.1 ", "\n    attention "})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(ProfileText, fits_a_terminal_without_cutting_anything) {
  StepProfile profile = a_profile({.top_modules = 2});
  profile.operations["MatMul 50304 x 768 x 512, a' (head)"] = {12, 0.02, {9e6, 1e6}};
  EXPECT_NE(to_text(profile).find("a', b': stored transposed"), std::string::npos);
  EXPECT_EQ(to_text(a_profile({})).find("a', b'"), std::string::npos) << "there is nothing to explain";
  EXPECT_EQ(to_text(profile, 120), to_text(profile));
  for (const int width : {40, 80, 120}) {
    const std::string text = to_text(profile, width);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << line;
    for (const char* word : {"the rest:", "MatMul", "optimizer", "mlp"})
      EXPECT_NE(text.find(word), std::string::npos) << word << " at " << width;
  }
  EXPECT_EQ(words_after(to_text(profile, 80), "Adam"), (Words{"4", "10.00", "ms", "10.0%", "500", "M"}));
}

TEST(ProfileWriter, writes_the_text_where_a_file_is_named) {
  const test::TempFolder folder;
  ProfileWriter writer;
  StepReport report{.step = 3};
  writer.on_step(report);
  report.profile = a_profile({.output_file = (folder / "profile.txt").string()});
  writer.on_step(report);
  std::ifstream file(folder / "profile.txt");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), to_text(*report.profile));
}

}  // namespace
}  // namespace nought::profile_test
