#include "nought/cli/launch_filter.h"

#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/cli/stop_signals.h"

namespace nought::launch_filter_test {
namespace {

NOUGHT_FILE_SIZE(small);

const std::string kRuler = std::string(74, '-') + "\n";

std::string filtered(MpirunFilter& filter, const std::string& text, size_t piece) {
  std::string out;
  for (size_t i = 0; i < text.size(); i += piece) out += filter.feed(text.substr(i, piece));
  return out + filter.finish();
}

TEST(MpirunFilter, banners_vanish_and_lines_of_ranks_stay_however_the_bytes_are_cut) {
  const std::string text = "loading\n" + kRuler + "Primary job  terminated normally, but\nbla\n" + kRuler +
                           "nought: error: the file is missing\n--- not a ruler\n\n" + kRuler +
                           "mpirun noticed that process rank 1\n\n  exited.\n" + kRuler + "done";
  for (size_t piece : {1, 2, 7, 1000}) {
    MpirunFilter filter;
    EXPECT_EQ(filtered(filter, text, piece), "loading\nnought: error: the file is missing\n--- not a ruler\n\ndone");
    EXPECT_TRUE(filter.saw_error());
  }
}

TEST(MpirunFilter, the_reason_is_the_first_banner_that_says_one) {
  MpirunFilter filter;
  filtered(filter,
           kRuler + "Primary job  terminated\n" + kRuler + kRuler + "There are not enough slots\n  available.\n\n" +
               "Either request fewer\n" + kRuler,
           5);
  EXPECT_EQ(filter.reason(), "There are not enough slots available.");
  EXPECT_FALSE(filter.saw_error());
}

TEST(MpirunFilter, log_lines_of_daemons_vanish_and_other_brackets_stay) {
  MpirunFilter filter;
  const std::string log =
      "[vm:03850] [[25588,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file x.c\n";
  EXPECT_EQ(filtered(filter, "nought: error: full\n" + log + "[rank 1] speaks\n" + log, 3),
            "nought: error: full\n[rank 1] speaks\n");
}

TEST(MpirunFilter, a_signal_that_mpirun_passes_on_is_no_news) {
  for (size_t piece : {1, 5, 1000}) {
    MpirunFilter filter;
    EXPECT_EQ(filtered(filter, "mpirun: what?\nmpirun: Forwarding signal 10 to job\nmerging\nmp", piece),
              "mpirun: what?\nmerging\nmp");
    EXPECT_EQ(filter.reason(), "");
  }
}

TEST(MpirunFilter, a_word_of_the_ranks_about_a_signal_is_passed_on_and_remembered) {
  MpirunFilter filter;
  EXPECT_EQ(filtered(filter, "nought: note\n", 3), "nought: note\n");
  EXPECT_FALSE(filter.saw_stop());
  EXPECT_EQ(filtered(filter, kStopWord, 3), kStopWord);
  EXPECT_TRUE(filter.saw_stop());
  EXPECT_FALSE(filter.saw_error());
}

TEST(MpirunFilter, behind_an_error_the_signal_is_mpiruns_and_its_word_is_dropped) {
  for (size_t piece : {1, 7, 1000}) {
    MpirunFilter filter;
    EXPECT_EQ(filtered(filter, "nought: error: gone\n" + std::string(kStopWord) + "nought: stop\n", piece),
              "nought: error: gone\nnought: stop\n");
    EXPECT_FALSE(filter.saw_stop());
  }
}

TEST(MpirunFilter, a_forgotten_process_number_is_not_told) {
  MpirunFilter filter;
  filtered(filter, kRuler + "mpirun noticed that process rank 1 with PID 0 on node vm exited\non signal 9.\n" + kRuler,
           9);
  EXPECT_EQ(filter.reason(), "mpirun noticed that process rank 1 on node vm exited on signal 9.");
}

TEST(MpirunFilter, a_host_whose_daemon_is_lost_is_named) {
  MpirunFilter filter;
  const std::string ruler(74, '-');
  filter.feed(ruler +
              "\nORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node h1\n"
              "  Remote daemon: [[1,0],1] on node h2\n\nThis is usually due to a failure.\n" +
              ruler + "\n");
  EXPECT_EQ(filter.reason(), "host h2 is lost: it went down, or the network to it did");
  EXPECT_FALSE(filter.blames_hosts());
  filter.feed(ruler + "\nORTE was unable to reliably start one or more daemons.\n" + ruler + "\n");
  EXPECT_TRUE(filter.blames_hosts());
}

TEST(MpirunFilter, half_a_line_is_passed_on_at_once) {
  MpirunFilter filter;
  EXPECT_EQ(filter.feed("step 3"), "step 3");
  EXPECT_EQ(filter.feed(" of 9\rstep 4\n-"), " of 9\rstep 4\n");
  EXPECT_EQ(filter.feed("5"), "-5");
}

TEST(MpirunFilter, an_error_inside_of_a_banner_is_passed_on) {
  MpirunFilter filter;
  EXPECT_EQ(filtered(filter, kRuler + "MPI_ABORT was\nnought: error: full\ninvoked\n" + kRuler, 3),
            "nought: error: full\n");
  EXPECT_TRUE(filter.saw_error());
}

TEST(MpirunFilter, a_banner_without_an_end_is_not_lost) {
  MpirunFilter filter;
  EXPECT_EQ(filtered(filter, kRuler + "There is\nmore", 4), "There is\nmore");
}

}  // namespace
}  // namespace nought::launch_filter_test
