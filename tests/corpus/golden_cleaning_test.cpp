// The decisions of datatrove's filters on the same documents.
#include "support/golden.h"
#include "support/temp_folder.h"

#include "nought/base/json.h"
#include "nought/corpus/filter.h"

namespace nought::golden_cleaning_test {

const Json& golden() {
  static const Json json = read_json_file(test::golden_folder("scale/data_cleaning.json"));
  return json;
}

struct Score {
  int documents = 0, decisions = 0, reasons = 0, with_lines = 0, lines = 0;
};

/// How often the filter decides, and for C4 keeps as many lines, as datatrove's filter `key`.
Score score_of(const Filter& filter, const char* key) {
  Score score;
  for (const Json& each : golden()["filters"]) {
    const Json& expect = each["expect"][key];
    FilteredText text(each["text"].get<std::string>());
    const std::string_view reason = filter.apply(text);
    ++score.documents;
    score.decisions += reason.empty() == expect["keep"].get<bool>();
    score.reasons += expect.value("reason", "") == reason;
    if (!expect.contains("xlines")) continue;
    ++score.with_lines;
    score.lines += expect["xlines"] == 1 + std::count(text.str().begin(), text.str().end(), '\n');
  }
  return score;
}

void expect_all(const Filter& filter, const char* key) {
  const Score score = score_of(filter, key);
  EXPECT_EQ(score.decisions, score.documents) << key;
  EXPECT_EQ(score.reasons, score.documents) << key;
  EXPECT_EQ(score.lines, score.with_lines) << key;
}

TEST(GoldenCleaning, decisions_reasons_and_lines_are_those_of_datatrove) {
  ASSERT_EQ(golden()["filters"].size(), 106u);
  const Filters filters = read_filters("gopher,gopher-repetition,c4,fineweb");
  expect_all(*filters[0], "gopher_quality");
  expect_all(*filters[1], "gopher_repetition");
  expect_all(*filters[2], "c4");
  expect_all(*filters[3], "fineweb");
}

TEST(GoldenCleaning, a_file_of_rules_changes_one_of_them) {
  const test::TempFolder folder;
  folder.write("rules.json", R"([{"rule": "c4", "filter_no_terminal_punct": false}])");
  expect_all(*read_filters((folder / "rules.json").string()).front(), "c4_no_terminal_punct");
}

}  // namespace nought::golden_cleaning_test
