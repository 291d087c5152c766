#include "nought/io/byte_source.h"

#include "support/compressed.h"
#include "support/temp_folder.h"

#include "nought/base/error.h"
#include "nought/io/text_file.h"

namespace nought::byte_source_test {

using test::gzipped;
using test::zstandard;
using testing::HasSubstr;

std::string all_of(const std::filesystem::path& file, size_t step) {
  const auto source = open_bytes(file);
  std::string all, part(step, '\0');
  while (const size_t count = source->read(part)) all += part.substr(0, count);
  EXPECT_EQ(source->file_bytes(), static_cast<int64_t>(std::filesystem::file_size(file)));
  return all;
}

std::string sample() {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += std::to_string(i * i) + (i % 9 ? " " : "\n");
  return text;
}

TEST(ByteSource, plain_and_compressed_files_have_the_same_bytes) {
  const test::TempFolder folder;
  const std::string text = sample();
  for (const std::string& bytes :
       {text, gzipped(text), zstandard(text), gzipped(text.substr(0, 999)) + gzipped(text.substr(999)),
        zstandard(text.substr(0, 999)) + zstandard(text.substr(999))})
    for (const size_t step : {size_t{1000}, size_t{1} << 20}) EXPECT_EQ(all_of(folder.write("a", bytes), step), text);
  EXPECT_EQ(all_of(folder.write("a", ""), 10), "");
  EXPECT_EQ(all_of(folder.write("a", gzipped("")), 10), "");
}

TEST(ByteSource, truncated_and_damaged_files_are_refused_with_the_offset) {
  const test::TempFolder folder;
  const std::string text = sample();
  for (const std::string& whole : {gzipped(text), zstandard(text)}) {
    for (size_t size = 5; size < whole.size(); size += whole.size() / 7) {
      const auto file = folder.write("a", whole.substr(0, size));
      const std::string message = test::message_of<IoError>([&] { all_of(file, 5000); });
      EXPECT_THAT(message, HasSubstr("truncated at its byte " + std::to_string(size)));
    }
    std::string damaged = whole;
    for (size_t i = 0; i < 40; ++i) damaged[whole.size() / 2 + i] ^= 0x55;
    const auto file = folder.write("a", damaged);
    EXPECT_THAT(test::message_of<IoError>([&] { all_of(file, 5000); }), HasSubstr("data at byte"));
  }
  EXPECT_THAT(test::message_of<IoError>([&] { open_bytes(folder / "none"); }),
              HasSubstr("none: cannot open: No such file"));
}

TEST(ByteSource, compressed_files_are_known_by_their_beginning) {
  EXPECT_TRUE(is_decoded(gzipped("a")) && is_decoded(zstandard("a")) && is_decoded(std::string("PAR1")));
  EXPECT_FALSE(is_decoded(std::string("{\"text\"")) || is_decoded(std::string()));
}

TEST(TextFile, compressed_text_is_mapped_as_if_it_were_not) {
  const test::TempFolder folder;
  const std::string text = sample();
  for (const std::string& bytes : {text, gzipped(text), zstandard(text)}) {
    const auto file = folder.write("a", bytes);
    EXPECT_EQ(map_text(file)->text(), text);
    EXPECT_EQ(text_size(file), static_cast<int64_t>(text.size()));
    EXPECT_EQ(TextBeginning(file).text(), text);
    const TextBeginning beginning(file, 1000);
    EXPECT_TRUE(text.starts_with(beginning.text()) && beginning.text().size() >= 1000);
  }
  EXPECT_EQ(decoded_name("x/a.jsonl.gz"), "x/a.jsonl");
  EXPECT_EQ(decoded_name("x/a.parquet"), "x/a.jsonl");
  EXPECT_EQ(decoded_name("a.txt"), "a.txt");
}

}  // namespace nought::byte_source_test
