#include "nought/io/byte_source.h"

#include "support/temp_folder.h"
#include <zlib.h>
#include <zstd.h>

#include "nought/base/error.h"

namespace nought::byte_source_test {

using testing::HasSubstr;

std::string zipped(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 200, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

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
       {text, zipped(text), zstandard(text), zipped(text.substr(0, 999)) + zipped(text.substr(999)),
        zstandard(text.substr(0, 999)) + zstandard(text.substr(999))})
    for (const size_t step : {size_t{1000}, size_t{1} << 20}) EXPECT_EQ(all_of(folder.write("a", bytes), step), text);
  EXPECT_EQ(all_of(folder.write("a", ""), 10), "");
  EXPECT_EQ(all_of(folder.write("a", zipped("")), 10), "");
}

TEST(ByteSource, truncated_and_damaged_files_are_refused_with_the_offset) {
  const test::TempFolder folder;
  const std::string text = sample();
  for (const std::string& whole : {zipped(text), zstandard(text)}) {
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
  EXPECT_TRUE(is_compressed(zipped("a")) && is_compressed(zstandard("a")));
  EXPECT_FALSE(is_compressed(std::string("{\"text\"")) || is_compressed(std::string()));
}

}  // namespace nought::byte_source_test
