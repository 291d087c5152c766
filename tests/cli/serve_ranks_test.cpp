// nought serve over ranks, from the outside: what clients and the shell see of signals, and of a rank that is gone.
#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cli/stop_signals.h"

namespace nought::serve_ranks_test {
namespace {

using test::Ended;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;

/// Serves a tiny model over two ranks. A client asks for a stream that does not end by itself; when it has begun, does
/// `then`, in which $server is the launcher and $rank the process of rank 1. `out` is what the client read, `err` what
/// the server said, and the exit code the server's.
Ended disturbed(const std::string& options, const std::string& then) {
  const TempFolder folder;
  folder.write("disturb.sh", fmt::format(R"sh(cd {0}
{1} serve {2} --tokenizer bytes --ranks 2 --port 0 --max-context 100000 --drain-seconds 0.1 {3} 2>said & server=$!
until port=$(sed -n 's|.*at http://127.0.0.1:\([0-9]*\)/v1.*|\1|p' said) && [ -n "$port" ]; do
  kill -0 $server || exit 99
  sleep 0.02
done
for p in /proc/[0-9]*; do
  [[ $p/cwd -ef . ]] || continue
  tr '\0' '\n' <$p/environ | grep -qx OMPI_COMM_WORLD_RANK=1 && rank=${{p#/proc/}}
done 2>/dev/null
exec 3<>/dev/tcp/127.0.0.1/$port
body='{{"prompt": [5, 9], "max_tokens": 90000, "stream": true, "ignore_eos": true}}'
printf 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s' ${{#body}} "$body" >&3
until read -r line <&3 && [[ $line == data:* ]]; do :; done
{4}
timeout 20 cat <&3
exec 3>&-
wait $server
code=$?
cat said >&2
exit $code
)sh",
                                         folder.path().string(), test::known_path("nought"),
                                         test::golden_folder("open/llama"), options, then));
  return test::run_program(fmt::format("bash {}/disturb.sh", folder.path().string()));
}

constexpr const char* kEvent = "data: {\"error\":{\"message\":\"";

TEST(ServeRanks, a_stream_ends_with_an_error_if_a_rank_dies) {
  const Ended ended = disturbed("", "kill -KILL $rank");
  EXPECT_THAT(ended.out, AllOf(HasSubstr(kEvent), HasSubstr("the server ends, because one of its ranks has")));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("nought: error:"), HasSubstr("signal 9")));
  EXPECT_EQ(ended.exit_code, 137) << ended.err;
}

NOUGHT_SIZE(long);
TEST(ServeRanks, a_signal_ends_answers_and_ranks_in_order) {
  const Ended ended = disturbed("--pp 2", "kill -TERM $server");
  EXPECT_THAT(ended.out, AllOf(HasSubstr(kEvent), HasSubstr("the server stops before the answer is whole")));
  EXPECT_THAT(ended.err, HasSubstr(kDrainWord));
  EXPECT_EQ(ended.exit_code, 143) << ended.err;
}

NOUGHT_SIZE(long);
TEST(ServeRanks, a_rank_that_hangs_is_named) {
  const Ended ended = disturbed("--collective-timeout 2", "kill -STOP $rank");
  EXPECT_THAT(ended.out, HasSubstr(kEvent));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("nought: error:"), HasSubstr("rank 1"), HasSubstr("stopped")));
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
}

}  // namespace
}  // namespace nought::serve_ranks_test
