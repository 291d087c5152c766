// docs/models.md says what the program has: every model_type, its architecture in llama.cpp, encoders, and folders of
// several parts.
#include <fstream>
#include <string>
#include <vector>

#include "support/golden.h"
#include "support/golden_root.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/models/gguf_architectures.h"
#include "nought/models/text_part.h"

namespace nought::models_page_test {
namespace {

/// The cells of the page's tables whose first one is code, by the number of their columns.
std::vector<std::vector<std::string>> rows_of_page(size_t columns) {
  std::ifstream file(test::docs_root() + "/models.md");
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    for (size_t begin = 1; begin < line.size();) {
      const size_t end = line.find('|', begin);
      std::string cell = line.substr(begin, end - begin);
      std::erase_if(cell, [](char c) { return c == '`'; });
      const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
      begin = end + 1;
    }
    if (cells.size() == columns && cells[0] != "model_type") rows.push_back(cells);
  }
  return rows;
}

TEST(ModelsPage, lists_every_family_with_its_architecture_in_llama_cpp) {
  std::vector<std::string> listed;
  for (const std::vector<std::string>& row : rows_of_page(4)) {
    listed.push_back(row[0]);
    const bool exported = std::ranges::count(gguf_families(), row[0]) > 0;
    EXPECT_EQ(row[3], exported ? gguf_architecture(ModelConfig::from_json({{"model_type", row[0]}})).name : "")
        << row[0];
  }
  EXPECT_EQ(listed, ModelConfig::families());
}

TEST(ModelsPage, lists_every_encoder) {
  std::vector<std::string> listed;
  for (const std::vector<std::string>& row : rows_of_page(3)) listed.push_back(row[0]);
  EXPECT_EQ(listed, ModelConfig::encoders());
  for (const std::string& family : listed)
    EXPECT_EQ(ModelConfig::from_folder(test::golden_folder("encoders/" + family)).family, family);
}

TEST(ModelsPage, lists_the_folders_of_which_the_text_part_is_read) {
  std::vector<std::string> listed;
  for (const std::vector<std::string>& row : rows_of_page(2)) listed.push_back(row[0]);
  EXPECT_THAT(listed, ::testing::UnorderedElementsAreArray(multimodal_types().begin(), multimodal_types().end()));
}

/// What is listed agrees with Hugging Face: there is a golden folder of each.
TEST(ModelsPage, lists_what_golden_data_prove) {
  std::vector<std::string> proved;
  const auto add = [&](std::span<const char* const> folders) {
    for (const char* name : folders) proved.push_back(ModelConfig::from_folder(test::golden_folder(name)).family);
  };
  add(test::kGoldenFamilies), add(test::kGoldenOptions);
  std::ranges::sort(proved);
  proved.erase(std::unique(proved.begin(), proved.end()), proved.end());
  EXPECT_EQ(proved, ModelConfig::families());
}

}  // namespace
}  // namespace nought::models_page_test
