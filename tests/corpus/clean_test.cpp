#include "nought/corpus/clean.h"

#include "corpus/corpus_files.h"
#include "support/temp_folder.h"

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/visit.h"
#include "nought/corpus/corpus_folder.h"

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
  EXPECT_THAT(test::shards_of(folder / "out").front().second, HasSubstr("\"id\":1"));
  EXPECT_THAT(test::shards_of(folder / "out_rejected").front().second,
              HasSubstr(R"("rejected":{"reason":"gopher_short_doc","rule":"gopher"}})"));
}

TEST_F(Clean, makes_the_same_files_on_any_number_of_threads_and_after_interruptions) {
  clean(options_for(folder, "whole"), [](const CleanProgress&) {});
  CleanOptions threaded = options_for(folder, "threaded");
  threaded.threads = 3;
  clean(threaded, [](const CleanProgress&) {});
  EXPECT_EQ(test::shards_of(folder / "threaded"), test::shards_of(folder / "whole"));
  ASSERT_GT(test::shards_of(folder / "whole").size(), 3u);

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
  EXPECT_EQ(test::shards_of(folder / "killed"), test::shards_of(folder / "whole"));
  EXPECT_EQ(test::shards_of(folder / "killed_rejected"), test::shards_of(folder / "whole_rejected"));
}

TEST_F(Clean, another_run_does_not_go_on_with_its_folder) {
  clean(options_for(folder, "out"), [](const CleanProgress&) {});
  CleanOptions other = options_for(folder, "out");
  other.settings = "other";
  EXPECT_THAT(test::message_of<Error>([&] { clean(other, [](const CleanProgress&) {}); }), HasSubstr("--overwrite"));
  other.output.overwrite = true;
  EXPECT_EQ(clean(other, [](const CleanProgress&) {}).documents, 300);
}

TEST(CorpusFolder, what_others_left_is_not_mixed_with_it) {
  const test::TempFolder folder;
  folder.write("out/00000.jsonl", "{}\n");
  folder.write("out/notes.txt", "mine");
  EXPECT_THAT(test::message_of<ConfigError>([&] { CorpusFolder({.folder = folder / "out"}, ""); }),
              HasSubstr("holds 00000.jsonl already"));
  CorpusFolder anew({.folder = folder / "out", .overwrite = true}, "");
  EXPECT_TRUE(anew.is_new() && test::shards_of(folder / "out").empty());
  anew.keep("{\"a\":1}\n");
  anew.save({1, 2, 3}, Json(7), /*complete=*/false);
  anew.keep("lost");
  const CorpusFolder later({.folder = folder / "out"}, "");
  EXPECT_FALSE(later.is_new());
  EXPECT_EQ(later.state().place(), (DocumentPlace{1, 2, 3}));
  EXPECT_EQ(later.state().report, 7);
  EXPECT_EQ(read_bytes(folder / "out/00000.jsonl"), "{\"a\":1}\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "out/notes.txt"));
  EXPECT_NE(identity_of({folder / "out/notes.txt"}), identity_of({folder / "out/00000.jsonl"}));
}

TEST(Filters, unknown_rules_and_keys_are_named_with_the_nearest) {
  EXPECT_THAT(test::message_of<Error>([] { read_filters("gophr"); }), HasSubstr("did you mean \"gopher\"?"));
  const test::TempFolder folder;
  const std::string file = folder.write("r.json", R"([{"rule": "c4", "min_sentences": 1}])").string();
  EXPECT_THAT(test::message_of<Error>([&] { read_filters(file); }), HasSubstr("unknown key"));
  EXPECT_THAT(filter_names(), ElementsAre("gopher", "gopher-repetition", "c4", "fineweb"));
}

}  // namespace nought::clean_test
