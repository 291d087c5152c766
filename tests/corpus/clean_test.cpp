#include "nought/corpus/clean.h"

#include "support/temp_folder.h"

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/visit.h"

namespace nought::clean_test {

using testing::ElementsAre;
using testing::HasSubstr;

/// 300 documents, of which every third is too short for the rules below.
std::string sample() {
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    std::string text = i % 3 == 0 ? "too short" : "these are words enough for the rule that counts the words of it";
    if (i % 7 == 0) text += " mail me at a@b.org";
    lines += Json{{"text", text}, {"id", i}}.dump() + "\n";
  }
  return lines;
}

CleanOptions options_for(const test::TempFolder& folder, const std::string& output) {
  CleanOptions options;
  options.inputs = {folder / "in.jsonl"};
  options.documents.batch_bytes = 500;
  options.output = {.folder = folder / output, .rejected = folder / (output + "_rejected"), .shard_bytes = 3000};
  options.filters = read_filters((folder / "rules.json").string());
  options.personal_data = PersonalData::redact;
  options.threads = 1;
  return options;
}

std::vector<std::string> contents(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename() != ".nought-data.json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> all;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    all.push_back(file.filename().string() + "\n" + std::string(std::istreambuf_iterator<char>(in), {}));
  }
  return all;
}

struct Clean : testing::Test {
  Clean() {
    folder.write("in.jsonl", sample());
    folder.write("rules.json", R"([{"rule": "gopher", "min_doc_words": 9, "min_stop_words": 1}])");
  }
  const test::TempFolder folder;
};

TEST_F(Clean, counts_what_each_reason_took) {
  const CleanReport report = clean(options_for(folder, "out"), [](const CleanProgress&) {});
  EXPECT_EQ(report.documents, 300);
  ASSERT_EQ(report.rejected.size(), 1u);
  EXPECT_EQ(report.rejected[0].reason, "gopher_short_doc");
  EXPECT_EQ(report.rejected[0].documents + report.kept_documents, 300);
  EXPECT_EQ(report.rejected[0].examples.size(), 5u);
  EXPECT_EQ(report.emails, report.changed_documents);
  EXPECT_GT(report.emails, 0);
  EXPECT_EQ(from_json<CleanReport>(to_json(report), Origins()).rejected[0].examples, report.rejected[0].examples);
  EXPECT_THAT(contents(folder / "out").front(), HasSubstr("\"id\":1"));
  EXPECT_THAT(contents(folder / "out_rejected").front(),
              HasSubstr(R"("rejected":{"reason":"gopher_short_doc","rule":"gopher"}})"));
}

TEST_F(Clean, makes_the_same_files_on_any_number_of_threads_and_after_interruptions) {
  clean(options_for(folder, "whole"), [](const CleanProgress&) {});
  CleanOptions threaded = options_for(folder, "threaded");
  threaded.threads = 3;
  clean(threaded, [](const CleanProgress&) {});
  EXPECT_EQ(contents(folder / "threaded"), contents(folder / "whole"));
  ASSERT_GT(contents(folder / "whole").size(), 3u);

  struct Killed {};
  int runs = 0;
  for (bool done = false; !done; ++runs) {
    int batches = 0;
    try {
      clean(options_for(folder, "killed"), [&](const CleanProgress&) {
        if (++batches == 12) throw Killed();
      });
      done = true;
    } catch (const Killed&) {
    }
    ASSERT_LT(runs, 20);
  }
  EXPECT_GT(runs, 2);
  EXPECT_EQ(contents(folder / "killed"), contents(folder / "whole"));
  EXPECT_EQ(contents(folder / "killed_rejected"), contents(folder / "whole_rejected"));
}

TEST_F(Clean, another_run_does_not_go_on_with_its_folder) {
  clean(options_for(folder, "out"), [](const CleanProgress&) {});
  CleanOptions other = options_for(folder, "out");
  other.settings = "other";
  EXPECT_THAT(test::message_of<Error>([&] { clean(other, [](const CleanProgress&) {}); }), HasSubstr("--overwrite"));
  other.output.overwrite = true;
  EXPECT_EQ(clean(other, [](const CleanProgress&) {}).documents, 300);
}

TEST(Filters, unknown_rules_and_keys_are_named_with_the_nearest) {
  EXPECT_THAT(test::message_of<Error>([] { read_filters("gophr"); }), HasSubstr("did you mean \"gopher\"?"));
  const test::TempFolder folder;
  const std::string file = folder.write("r.json", R"([{"rule": "c4", "min_sentences": 1}])").string();
  EXPECT_THAT(test::message_of<Error>([&] { read_filters(file); }), HasSubstr("unknown key"));
  EXPECT_THAT(filter_names(), ElementsAre("gopher", "gopher-repetition", "c4", "fineweb"));
}

}  // namespace nought::clean_test
