#include "nought/data/tokenize.h"

#include <map>

#include "support/byte_level.h"
#include "support/compressed.h"
#include "support/documents.h"
#include "support/golden.h"
#include "support/golden_tokens.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/data/formats.h"
#include "nought/data/token_file.h"
#include "nought/data/token_folder.h"

namespace nought::tokenize_test {
namespace {

namespace fs = std::filesystem;
using test::golden_file;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

std::string prose(int sentences, int seed) {
  const std::array words{"the",     "river", "runs", "under", "an",    "old",
                         "bridge,", "where", "7",    "boats", "don't", "wait"};
  std::string text;
  uint64_t state = static_cast<uint64_t>(seed) * 7919 + 1;
  for (int i = 0; i < sentences; ++i) {
    for (int w = 0; w < 9; ++w) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += std::string(words[state >> 33 & 0x7]) + " " + words[(state >> 40) % words.size()] + " ";
    }
    text.back() = '.';
    text += i % 5 == 0 ? "\n\n" : "\n";
  }
  return text;
}

TokenizeOptions options_for(const TempFolder& folder, std::vector<fs::path> inputs) {
  TokenizeOptions options;
  options.inputs = std::move(inputs);
  options.output = folder / "out";
  options.corpus.portion_bytes = 500;
  options.file_tokens = 2000;
  return options;
}

TokenizeProgress run(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  return tokenize(options, tokenizer, [](const TokenizeProgress&) {});
}

/// The bytes of every file of the folder.
std::map<std::string, std::string> bytes_of(const fs::path& folder) {
  std::map<std::string, std::string> bytes;
  for (const auto& entry : fs::directory_iterator(folder))
    bytes[entry.path().filename()] = test::read_bytes(entry.path());
  return bytes;
}

struct Documents {
  std::vector<int32_t> ids;
  std::vector<uint8_t> targets;
  int64_t count = 0;
};

Documents documents_in(const fs::path& folder) {
  Documents all;
  for (const fs::path& path : expand_data_files(std::array{folder.string()})) {
    const TokenFile file(path);
    std::vector<int32_t> ids(static_cast<size_t>(file.size()));
    std::vector<uint8_t> targets(ids.size());
    file.read(0, ids), file.read_mask(0, targets);
    all.ids.insert(all.ids.end(), ids.begin(), ids.end());
    all.targets.insert(all.targets.end(), targets.begin(), targets.end());
    all.count += file.num_documents();
  }
  return all;
}

std::vector<fs::path> prose_files(const TempFolder& folder, int files) {
  std::vector<fs::path> paths;
  for (int i = 0; i < files; ++i) paths.push_back(folder.write(fmt::format("in/{}.txt", i), prose(40 + 60 * i, i)));
  return paths;
}

NOUGHT_SIZE(medium);
TEST(Tokenize, the_tokens_are_those_of_whole_documents_wherever_portions_are_cut) {
  const TempFolder folder;
  for (const std::string& name : {golden_file("r50k_base.tiktoken"), golden_file("cl100k_base.tiktoken"),
                                  golden_file("o200k_base.tiktoken"), std::string("bytes")}) {
    const auto tokenizer = make_tokenizer(name);
    TokenizeOptions options = options_for(folder, prose_files(folder, 3));
    options.overwrite = true;
    const TokenizeProgress progress = run(options, *tokenizer);
    std::vector<int32_t> whole;
    for (const fs::path& input : options.inputs) test::encode_document(*tokenizer, test::read_bytes(input), whole);
    const Documents documents = documents_in(options.output);
    EXPECT_EQ(documents.ids, whole) << name;
    EXPECT_EQ(documents.count, 3);
    EXPECT_EQ(progress.documents, 3);
    EXPECT_EQ(progress.tokens, static_cast<int64_t>(whole.size()));
    EXPECT_GE(progress.files, 2);
  }
}

TEST(Tokenize, the_bytes_are_the_same_on_any_number_of_threads) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer(golden_file("r50k_base.tiktoken"));
  TokenizeOptions options = options_for(folder, prose_files(folder, 4));
  std::map<std::string, std::string> first;
  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    options.overwrite = true;
    run(options, *tokenizer);
    if (first.empty()) first = bytes_of(options.output);
    EXPECT_EQ(bytes_of(options.output), first) << threads << " threads";
  }
}

TEST(Tokenize, a_run_that_was_killed_anywhere_goes_on_to_the_same_bytes) {
  struct Killed {};
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  TokenizeOptions options = options_for(folder, prose_files(folder, 4));
  options.threads = 2;
  run(options, *tokenizer);
  const auto whole = bytes_of(options.output);
  for (int64_t stop = 1; stop < 60; stop += 7) {
    options.overwrite = true;
    int64_t portions = 0;
    const auto kill = [&](const TokenizeProgress&) {
      if (++portions == stop) throw Killed();
    };
    try {
      tokenize(options, *tokenizer, kill);
    } catch (const Killed&) {
    }
    options.overwrite = false;
    const TokenizeProgress rest = run(options, *tokenizer);
    EXPECT_EQ(bytes_of(options.output), whole) << "killed after " << stop;
    EXPECT_EQ(rest.bytes, rest.total_bytes);
    if (stop > 30) {
      EXPECT_GT(rest.kept_bytes, 0) << "killed after " << stop;
    }
  }
  const TokenizeProgress again = run(options, *tokenizer);
  EXPECT_EQ(again.kept_bytes, again.total_bytes);
  EXPECT_EQ(bytes_of(options.output), whole);
}

TEST(Tokenize, compressed_text_gives_the_same_tokens) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const std::string text = prose(200, 4);
  std::vector<Documents> found;
  for (const auto& [name, bytes] : {std::pair("a.txt", text), std::pair("b.txt.gz", test::gzipped(text)),
                                    std::pair("c.txt.zst", test::zstandard(text))}) {
    TokenizeOptions options = options_for(folder, {folder.write(name, bytes)});
    options.output = folder / (std::string(name) + ".tokens");
    const TokenizeProgress progress = run(options, *tokenizer);
    EXPECT_EQ(progress.bytes, static_cast<int64_t>(text.size()));
    EXPECT_EQ(progress.total_bytes, progress.bytes);
    found.push_back(documents_in(options.output));
    EXPECT_EQ(found.back().ids, found.front().ids);
  }
  EXPECT_EQ(found.front().count, 1);
  EXPECT_EQ(corpus_format(folder.write("d.jsonl.gz", test::gzipped("{\"text\": \"a\"}\n")), {}), CorpusFormat::jsonl);
  EXPECT_EQ(
      expand_data_files(std::array{folder.write("e/f.txt.gz", test::gzipped(text)).parent_path().string()}).size(), 1u);
}

TEST(Tokenize, parquet_gives_the_tokens_of_its_rows_as_json_lines) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  std::vector<Documents> found;
  for (const char* name : {"packed.jsonl", "packed.parquet"}) {
    TokenizeOptions options = options_for(folder, {test::golden_folder("parquet/" + std::string(name))});
    options.corpus.field = "lengths";
    options.output = folder / (std::string(name) + ".tokens");
    run(options, *tokenizer);
    found.push_back(documents_in(options.output));
  }
  EXPECT_GT(found[0].count, 100);
  EXPECT_EQ(found[0].ids, found[1].ids);
  const fs::path parquet = test::golden_folder("parquet/conversations_none.parquet");
  EXPECT_EQ(corpus_format(parquet, {}), CorpusFormat::chat);
  fs::create_directory(folder / "set");
  fs::copy(parquet, folder / "set/train-00000.parquet");
  EXPECT_EQ(expand_data_files(std::array{(folder / "set").string()}).size(), 1u);
}

TEST(Tokenize, what_a_folder_holds_is_not_mixed_with_something_else) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const std::vector<fs::path> inputs = prose_files(folder, 2);
  TokenizeOptions options = options_for(folder, inputs);
  run(options, *tokenizer);
  const auto refusal = [&] { return message_of<ConfigError>([&] { run(options, *tokenizer); }); };
  options.file_tokens = 300;
  EXPECT_THAT(refusal(), HasSubstr("other options: --overwrite"));
  options = options_for(folder, {inputs[0]});
  EXPECT_THAT(refusal(), HasSubstr("other input files"));
  options = options_for(folder, inputs);
  std::string changed = test::read_bytes(inputs[0]);
  changed[10] = '!';
  folder.write("in/0.txt", changed);
  EXPECT_THAT(refusal(), HasSubstr("changed since"));
  options.overwrite = true;
  EXPECT_EQ(refusal(), "");
}

TEST(Tokenize, an_incomplete_folder_is_no_data) {
  const TempFolder folder;
  write_token_index(folder.path(), {});
  EXPECT_THAT(message_of<ConfigError>([&] { expand_data_files(std::array{folder.path().string()}); }),
              HasSubstr("is not complete: run the same `nought tokenize` again"));
}

TEST(Tokenize, a_separator_ends_a_document_and_is_no_part_of_it) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  std::string text;
  std::vector<int32_t> expected;
  for (int i = 0; i < 80; ++i) {
    const std::string story = prose(1 + i % 7, i);
    text += (i > 0 ? "<|end|>" : "") + story;
    test::encode_document(*tokenizer, story, expected);
  }
  for (const std::string ending : {"", "<|end|>", "<|end|><|end|>"}) {
    TokenizeOptions options = options_for(folder, {folder.write("stories.txt", text + ending)});
    options.corpus.separator = "<|end|>";
    options.overwrite = true;
    EXPECT_EQ(run(options, *tokenizer).documents, 80);
    EXPECT_EQ(documents_in(options.output).ids, expected);
  }
}

TEST(Tokenize, json_lines_give_the_field_of_each_line) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const fs::path input =
      folder.write("a.jsonl", "{\"body\": \"one\", \"n\": 1}\n\n{\"body\": \"tw\\u00f6\"}\r\n{\"body\": \"\"}");
  TokenizeOptions options = options_for(folder, {input});
  options.corpus.field = "body";
  EXPECT_EQ(run(options, *tokenizer).documents, 2);
  std::vector<int32_t> expected;
  test::encode_document(*tokenizer, "one", expected), test::encode_document(*tokenizer, "tw\u00f6", expected);
  EXPECT_EQ(documents_in(options.output).ids, expected);
}

TEST(Tokenize, conversations_have_the_masks_of_their_template) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const fs::path input = folder.write(
      "chat.jsonl",
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Yo"}]}]})"
      "\n"
      R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]})");
  TokenizeOptions options = options_for(folder, {input});
  options.corpus.chat = chat_source(ChatFormat::chatml, *tokenizer);
  EXPECT_EQ(corpus_format(input, options.corpus), CorpusFormat::chat);
  EXPECT_THAT(describe_formats(std::vector{input}, options.corpus, *tokenizer),
              ElementsAre(HasSubstr("chat.jsonl: conversations of messages, written as chatml")));
  const TokenizeProgress progress = run(options, *tokenizer);
  const std::vector<ChatMessage> talk{{"user", "Hi"}, {"assistant", "Yo"}};
  const ChatTemplate::Tokens once = ChatTemplate(ChatFormat::chatml, *tokenizer).conversation(talk);
  Documents twice;
  for (int i = 0; i < 2; ++i) {
    twice.ids.insert(twice.ids.end(), once.ids.begin(), once.ids.end());
    twice.targets.insert(twice.targets.end(), once.targets.begin(), once.targets.end());
  }
  const Documents documents = documents_in(options.output);
  EXPECT_EQ(documents.ids, twice.ids);
  EXPECT_EQ(documents.targets, twice.targets);
  EXPECT_EQ(progress.targets, 2 * static_cast<int64_t>(std::string("Yo<|im_end|>").size()));
}

TEST(Tokenize, a_file_says_by_its_name_and_first_line_what_it_holds) {
  const TempFolder folder;
  const CorpusOptions options;
  const auto found = [&](const char* name, const char* content) {
    return corpus_format(folder.write(name, content), options);
  };
  EXPECT_EQ(found("a.txt", "Text."), CorpusFormat::text);
  EXPECT_EQ(found("a.jsonl", R"({"text": "x"})"), CorpusFormat::jsonl);
  EXPECT_EQ(found("b.ndjson", "\n \n{\"conversations\": []}\n"), CorpusFormat::chat);
  EXPECT_EQ(found("c.jsonl", R"({"instruction": "x", "output": "y"})"), CorpusFormat::chat);
  EXPECT_EQ(found("d.jsonl", "no JSON"), CorpusFormat::jsonl);
  EXPECT_EQ(found("e.jsonl", ""), CorpusFormat::jsonl);
  EXPECT_EQ(corpus_format(folder / "c.jsonl", {.format = CorpusFormat::jsonl}), CorpusFormat::jsonl);
}

TEST(Tokenize, a_bad_line_is_named_and_once_mended_the_run_goes_on) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += nlohmann::json{{"text", prose(1, i)}}.dump() + "\n";
  const std::string before = lines;
  for (const auto& [bad, message] : std::map<std::string, std::string>{
           {"{\"text\": 3}", "a.jsonl:401: the field \"text\" holds the number 3, expected a string"},
           {"{\"txt\": \"x\"}", "a.jsonl:401: has no field \"text\""},
           {"{\"text\": \"x\"", "a.jsonl:401: column 13: is no JSON"},
           {"[]", "a.jsonl:401: expected an object"},
           {"{\"text\": \"\xff\"}", "a.jsonl:401: column"}}) {
    TokenizeOptions options = options_for(folder, {folder.write("a.jsonl", before + bad + "\n{}\n" + before)});
    options.threads = 3;
    options.overwrite = true;
    EXPECT_THAT(message_of<ConfigError>([&] { run(options, *tokenizer); }), HasSubstr(message));
    folder.write("a.jsonl", before + before);
    options.overwrite = false;
    EXPECT_GT(run(options, *tokenizer).kept_bytes, 0);
  }
}

TEST(Tokenize, a_failed_run_is_not_in_the_way_of_one_with_other_options) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  TokenizeOptions options = options_for(folder, {folder.write("a.jsonl", "{\"content\": \"one\"}\n")});
  EXPECT_THAT(message_of<ConfigError>([&] { run(options, *tokenizer); }), HasSubstr("has no field \"text\""));
  options.corpus.field = "content";
  EXPECT_EQ(run(options, *tokenizer).documents, 1);
}

TEST(Tokenize, what_a_run_left_that_failed_after_its_first_file_is_replaced) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  std::string before;
  for (int i = 0; i < 400; ++i) before += fmt::format("{{\"text\": \"line {}\", \"other\": \"x\"}}\n", i);
  const fs::path kept = folder.write("kept", "not a token file");
  const auto fail_behind_a_file = [&] {
    TokenizeOptions options = options_for(folder, {folder.write("a.jsonl", before + "nonsense\n")});
    EXPECT_THAT(message_of<ConfigError>([&] { run(options, *tokenizer); }), HasSubstr("a.jsonl:401"));
    EXPECT_FALSE(read_token_index(options.output)->files.empty());
    return options;
  };
  const auto whole_anew = [&](TokenizeOptions options) {
    const TokenizeProgress progress = run(options, *tokenizer);
    EXPECT_GT(progress.removed_files, 0);
    EXPECT_EQ(progress.kept_bytes, 0);
    const auto bytes = bytes_of(options.output);
    options.overwrite = true;
    run(options, *tokenizer);
    EXPECT_EQ(bytes_of(options.output), bytes);
    fs::remove_all(options.output);
  };
  TokenizeOptions options = fail_behind_a_file();
  folder.write("a.jsonl", before);
  options.corpus.field = "other";
  whole_anew(options);
  options = fail_behind_a_file();
  options.inputs = {folder.write("b.jsonl", before)};
  whole_anew(options);
  options = fail_behind_a_file();
  folder.write("a.jsonl", before.substr(before.find('\n') + 1));
  whole_anew(options);

  options = fail_behind_a_file();
  TokenFolderIndex index = *read_token_index(options.output);
  index.settings = "others";
  index.files.push_back({"../kept"});
  write_token_index(options.output, index);
  folder.write("a.jsonl", before);
  run(options, *tokenizer);
  EXPECT_TRUE(fs::exists(kept)) << "a file outside of the folder was removed";
}

TEST(Tokenize, bad_conversations_and_binary_files_are_named) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const auto refusal = [&](const std::string& line) {
    TokenizeOptions options = options_for(folder, {folder.write("c.jsonl", line)});
    options.corpus.format = CorpusFormat::chat;
    options.corpus.chat = chat_source(ChatFormat::chatml, *tokenizer);
    options.overwrite = true;
    return message_of<ConfigError>([&] { run(options, *tokenizer); });
  };
  EXPECT_THAT(refusal("{}"),
              HasSubstr("c.jsonl:1: is no conversation: it has neither \"messages\" nor \"conversations\""));
  EXPECT_THAT(refusal(R"({"messages": 3})"), HasSubstr("expected a list of messages, found the number 3"));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user"}]})"), HasSubstr("message 1 has no \"content\""));
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": null}]})"), HasSubstr("is null, expected a string"));
  EXPECT_THAT(refusal(R"({"messages": []})"), HasSubstr("without messages"));
  TokenizeOptions options = options_for(folder, {folder.write("b.txt", std::string("ab\0c", 4))});
  options.overwrite = true;
  EXPECT_THAT(message_of<IoError>([&] { run(options, *tokenizer); }), HasSubstr("b.txt: byte 0 at offset 2"));
  options.inputs = {folder.write("empty.txt", "")};
  EXPECT_THAT(message_of<ConfigError>([&] { run(options, *tokenizer); }), HasSubstr("the input has no text"));
}

}  // namespace
}  // namespace nought::tokenize_test
