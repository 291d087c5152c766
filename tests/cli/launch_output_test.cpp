#include "nought/cli/launch_output.h"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace nought::launch_output_test {
namespace {

class OutputRelayTest : public testing::Test {
 protected:
  OutputRelayTest() { EXPECT_EQ(pipe(from_.data()) | pipe(to_.data()), 0); }
  ~OutputRelayTest() override {
    for (const int fd : {from_[0], from_[1], to_[0], to_[1]}) close(fd);
  }
  void say(const std::string& text) { ASSERT_EQ(write(from_[1], text.data(), text.size()), std::ssize(text)); }
  /// Serves the relay until nothing is left to do. Returns how often.
  static int serve(OutputRelay& relay) {
    for (int rounds = 0;; ++rounds) {
      pollfd event = relay.event();
      if (poll(&event, 1, 0) == 0) return rounds;
      relay.serve(event);
      if (relay.ended()) return rounds;
    }
  }
  std::string heard() {
    std::array<char, 8192> bytes;
    const ssize_t count = read(to_[0], bytes.data(), bytes.size());
    return {bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))};
  }

  std::array<int, 2> from_{}, to_{};
};

TEST_F(OutputRelayTest, what_is_said_is_passed_on_until_the_end) {
  OutputRelay relay(from_[0], to_[1]);
  say("step 1\nst");
  serve(relay);
  EXPECT_EQ(heard(), "step 1\nst");
  EXPECT_FALSE(relay.ended());
  say("ep 2");
  close(from_[1]), from_[1] = -1;
  serve(relay);
  EXPECT_EQ(heard(), "ep 2");
  EXPECT_TRUE(relay.ended());
  EXPECT_EQ(relay.failure(), 0);
}

TEST_F(OutputRelayTest, a_reader_who_does_not_read_is_not_waited_for) {
  ASSERT_EQ(fcntl(to_[1], F_SETFL, O_NONBLOCK), 0);
  const std::string block(4096, 'x');
  while (write(to_[1], block.data(), block.size()) > 0) {
  }
  ASSERT_EQ(fcntl(to_[1], F_SETFL, 0), 0);  // as the stdout of a shell is
  OutputRelay relay(from_[0], to_[1]);
  say("waits");
  serve(relay);
  EXPECT_TRUE(relay.waits());
  EXPECT_EQ(heard(), block + block);
  serve(relay);
  EXPECT_FALSE(relay.waits());
}

TEST_F(OutputRelayTest, a_write_that_fails_is_told_and_the_rest_is_dropped) {
  const int full = open("/dev/full", O_WRONLY);
  OutputRelay relay(from_[0], full);
  say("lost");
  serve(relay);
  EXPECT_EQ(relay.failure(), ENOSPC);
  say("lost too");
  serve(relay);
  EXPECT_FALSE(relay.waits());
  close(full);

  std::signal(SIGPIPE, SIG_IGN);
  close(to_[0]), to_[0] = -1;
  OutputRelay closed(from_[0], to_[1]);
  say("x");
  serve(closed);
  EXPECT_EQ(closed.failure(), EPIPE);
  std::signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace nought::launch_output_test
