#include "nought/cli/line_reader.h"

#include <stdexcept>
#include <utility>

#include "support/size.h"
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

namespace nought::line_reader_test {
namespace {

NOUGHT_FILE_SIZE(small);

using Line = std::optional<std::string>;

/// A terminal with somebody who types.
class Terminal {
 public:
  Terminal() {
    if (openpty(&user_, &program_, nullptr, nullptr, nullptr) != 0) throw std::runtime_error("no pseudo-terminal");
    in_ = fdopen(program_, "r+");
  }
  ~Terminal() {
    std::fclose(in_);
    hang_up();
  }
  void type(const std::string& keys) const {
    ASSERT_EQ(write(user_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void hang_up() {
    if (user_ >= 0) close(std::exchange(user_, -1));
  }
  std::FILE* file() const { return in_; }

 private:
  int user_ = -1, program_ = -1;
  std::FILE* in_ = nullptr;
};

TEST(LineReader, without_a_terminal_lines_are_read_as_they_are) {
  std::FILE* file = std::tmpfile();
  std::fputs("one\n\ntw\x02o\r\nlast", file);
  std::rewind(file);
  LineReader reader(file, stdout, false, "> ");
  EXPECT_EQ(reader.next(), Line("one"));
  EXPECT_EQ(reader.next(), Line(""));
  EXPECT_EQ(reader.next(), Line("tw\x02o"));
  EXPECT_EQ(reader.next(), Line("last"));
  EXPECT_EQ(reader.next(), std::nullopt);
  std::fclose(file);
}

TEST(LineReader, on_a_terminal_a_line_can_be_edited_and_earlier_ones_come_back) {
  Terminal terminal;
  LineReader reader(terminal.file(), terminal.file(), true, "> ");
  const std::string left = "\x02", end = "\x05", up = "\x1b[A";
  terminal.type("helo" + left + "l" + end + "!\n");
  EXPECT_EQ(reader.next(), Line("hello!"));
  terminal.type("caf\u00e9\n");
  EXPECT_EQ(reader.next(), Line("caf\u00e9"));
  terminal.type(up + up + "?\n");
  EXPECT_EQ(reader.next(), Line("hello!?"));
  terminal.hang_up();
  EXPECT_EQ(reader.next(), std::nullopt);
}

}  // namespace
}  // namespace nought::line_reader_test
