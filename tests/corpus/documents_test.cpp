#include "nought/corpus/documents.h"

#include "support/compressed.h"
#include "support/temp_folder.h"

namespace nought::documents_test {

using test::gzipped;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> texts_of(const std::filesystem::path& file, const DocumentOptions& options = {}) {
  DocumentReader reader({file}, options);
  std::vector<std::string> texts;
  while (const auto batch = reader.next())
    for_each_document(*batch, [&](const Document& document) { texts.push_back(document.text); });
  return texts;
}

TEST(Documents, are_read_from_lines_and_from_text) {
  const test::TempFolder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\":\"a\\n\"}\n\n{\"id\":1,\"text\":\"b\"}");
  EXPECT_THAT(texts_of(lines), ElementsAre("a\n", "b"));
  const auto text = folder.write("a.txt", "one<>two<>");
  EXPECT_THAT(texts_of(text), ElementsAre("one<>two<>"));
  for (size_t batch = 1; batch < 12; ++batch)
    EXPECT_THAT(texts_of(text, {.separator = "<>", .batch_bytes = batch}), ElementsAre("one", "two")) << batch;
}

TEST(Documents, are_the_same_in_batches_of_any_size_and_from_any_place) {
  const test::TempFolder folder;
  std::string all;
  for (int i = 0; i < 200; ++i) all += "{\"text\":\"" + std::string(static_cast<size_t>(i * 7 % 50), 'x') + "\"}\n";
  const auto file = folder.write("a.jsonl", all), compressed = folder.write("b.jsonl.gz", gzipped(all));
  const std::vector<std::string> texts = texts_of(file);
  ASSERT_EQ(texts.size(), 200u);
  EXPECT_EQ(texts_of(compressed, {.batch_bytes = 100}), texts);

  DocumentReader reader({file, compressed}, {.batch_bytes = 100});
  std::vector<DocumentBatch> batches;
  while (auto batch = reader.next()) batches.push_back(std::move(*batch));
  for (size_t i = 1; i < batches.size(); i += 9) {
    DocumentReader later({file, compressed}, {.batch_bytes = 100}, batches[i - 1].end);
    const auto batch = later.next();
    ASSERT_TRUE(batch.has_value());
    EXPECT_EQ(batch->bytes, batches[i].bytes) << i;
  }
}

TEST(Documents, keep_what_their_record_has) {
  const test::TempFolder folder;
  DocumentReader reader({folder.write("a.jsonl", R"({"url":"u","text":"a","id":7})")}, {});
  for_each_document(*reader.next(), [](const Document& document) {
    EXPECT_EQ(document.line_with("b", "text"), "{\"url\":\"u\",\"text\":\"b\",\"id\":7}\n");
    EXPECT_EQ(document.string_of("url"), "u");
    EXPECT_EQ(document.string_of("id"), "");
  });
}

TEST(Documents, bad_input_is_named_with_its_place) {
  const test::TempFolder folder;
  const auto message = [&](const std::string& name, const std::string& bytes, const DocumentOptions& options = {}) {
    return test::message_of<Error>([&] { texts_of(folder.write(name, bytes), options); });
  };
  EXPECT_THAT(message("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\xff\"}\n"),
              HasSubstr("a.jsonl:2: column 10: is no UTF-8"));
  EXPECT_THAT(message("a.jsonl", "{\"text\":\"a\"}\n{\"text\n"), HasSubstr("a.jsonl:2: column 7: is no JSON"));
  EXPECT_THAT(message("a.jsonl", "{\"body\":\"a\"}\n"), HasSubstr("a.jsonl:1: has no field \"text\""));
  EXPECT_THAT(message("a.txt", std::string(1000, 'a') + "\xff"),
              HasSubstr("a.txt: the byte at offset 1000 is no UTF-8"));
  EXPECT_THAT(message("a.jsonl", "{\"text\":\"" + std::string(200'000, 'a') + "\"}",
                      {.batch_bytes = 10, .max_document_bytes = 1000}),
              HasSubstr("line 1 that begins at offset 0 has more than 1000 B"));
  const std::string whole = gzipped("{\"text\":\"a\"}\n");
  EXPECT_THAT(message("a.gz", whole.substr(0, whole.size() - 6)),
              HasSubstr("truncated at its byte " + std::to_string(whole.size() - 6)));
  EXPECT_THAT(message("a.pdf", "%PDF-1.4 abc"), HasSubstr("a.pdf: expected text, this is a PDF document"));
}

TEST(Documents, an_input_in_the_output_folder_is_refused) {
  const test::TempFolder folder;
  folder.write("out/a.jsonl", "{\"text\":\"a\"}\n");
  EXPECT_THAT(test::message_of<Error>([&] { input_files({(folder / "out/a.jsonl").string()}, {folder / "out"}); }),
              HasSubstr("lies in the output folder"));
  EXPECT_EQ(input_files({(folder / "out/a.jsonl").string()}, {folder / "ou"}).size(), 1u);
}

}  // namespace nought::documents_test
