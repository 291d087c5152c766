// The program of the tests of CUDA: on a GPU, and on the emulated one.
//
//   test_cuda_device                                all tests, as every program of GoogleTest runs them
//   test_cuda_device --list_sizes                   the size of each test (support/size.h)
//   test_cuda_device --record FILE [--seconds N]    for N seconds, 420 if not said; FILE keeps what is done
//
// With a record it says the versions of what is there, runs tests until the time is over, and leaves with exit code 75
// while there are more: run the same again. The last part lists every test and, behind them, timings. Exit code 77,
// and the reason, where there is no GPU.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cuda/record.h"
#include "cuda/timings.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"
#include "nought/cuda/facts.h"

namespace nought::test {
namespace {

enum ExitCode { kPassed = 0, kFailed = 1, kWrongUse = 2, kMore = 75, kNoDevice = 77 };
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Writes each test into the record, and ends the process when its time is over or its device is lost.
class Recorder final : public ::testing::EmptyTestEventListener {
 public:
  Recorder(Record& record, double seconds) : record_(record), seconds_(seconds) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    record_.begin(fmt::format("{}.{}", test.test_suite_name(), test.name()));
    test_begin_ = Clock::now();
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    const ::testing::TestResult& result = *test.result();
    record_.end(result.Failed() ? "failed" : result.Skipped() ? "skipped" : "passed", seconds_since(test_begin_));
    ++done_;
    // An error that stays is one of the device: what runs after it fails, too, until there is a new process.
    cudaGetLastError();
    const bool is_lost = result.Failed() && cudaGetLastError() != cudaSuccess;
    if (is_lost) leave("the device is lost");
    if (seconds_since(begin_) >= seconds_ && done_ < ::testing::UnitTest::GetInstance()->test_to_run_count())
      leave("the time is over");
  }

 private:
  [[noreturn]] void leave(const char* why) const {
    std::printf("%s: %d of %d tests are done; run this again to go on\n", why, done_,
                ::testing::UnitTest::GetInstance()->test_to_run_count());
    std::fflush(nullptr);
    std::_Exit(kMore);  // whatever the device still holds goes with the process
  }

  Record& record_;
  const double seconds_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point test_begin_;
  int done_ = 0;
};

void print_versions() {
  const cuda::CudaFacts facts = cuda::find_cuda(cuda::LibrarySearch::of_environment());
  const auto print = [](const cuda::LibraryFacts& library) {
    std::printf("%-12s %s\n", library.name.c_str(),
                library.missing.empty() ? library.version.c_str() : library.missing.c_str());
  };
  print(facts.driver);
  for (const cuda::DeviceFacts& device : facts.devices)
    std::printf("%-12s %s, %.1f GiB, compute capability %d.%d\n", "device", device.name.c_str(),
                static_cast<double>(device.memory_bytes) / (1 << 30), device.major, device.minor);
  for (const cuda::LibraryFacts& library : facts.libraries) print(library);
}

int print_tests(const Record& record) {
  int failed = 0;
  for (const Record::Test& test : record.tests()) {
    std::printf("%-12s %8.3f s  %s\n", test.outcome.c_str(), test.seconds, test.name.c_str());
    failed += test.passed() ? 0 : 1;
  }
  std::printf("%zu tests, %d failed\n", record.tests().size(), failed);
  return failed;
}

int run_with_record(const std::string& path, double seconds) {
  print_versions();
  Record record(path);
  GTEST_FLAG_SET(filter, record.without_done(GTEST_FLAG_GET(filter)));
  ::testing::UnitTest::GetInstance()->listeners().Append(new Recorder(record, seconds));  // which owns it
  const bool all_passed = RUN_ALL_TESTS() == 0;
  const int failed = print_tests(record);  // those of earlier parts, too
#ifdef NOUGHT_CUDA_EMULATED
  constexpr int64_t kTokens = 16;
#else
  constexpr int64_t kTokens = 4096;
#endif
  std::printf("\n%s", timings_of(cuda::make_context(), kTokens).c_str());
  return all_passed && failed == 0 ? kPassed : kFailed;
}

int run_tests(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--list_sizes") {
    std::fputs(list_sizes().c_str(), stdout);
    return kPassed;
  }
  std::string record;
  double seconds = 420;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const bool is_number =
        option == "--seconds" && std::from_chars(value.data(), value.data() + value.size(), seconds).ec == std::errc();
    if (option == "--record" && !value.empty()) record = std::filesystem::absolute(value);
    if ((option != "--record" && !is_number) || value.empty()) {
      std::fprintf(stderr, "%s: expected --record FILE or --seconds N\n", argv[i]);
      return kWrongUse;
    }
    ++i;
  }
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  if (const std::string reason = cuda::why_no_device(); !reason.empty()) {
    std::printf("not run: %s\n", reason.c_str());
    return kNoDevice;
  }
#ifndef NOUGHT_CUDA_EMULATED
  // Golden files lie beside the program, so that its folder can be copied.
  std::filesystem::current_path(std::filesystem::read_symlink("/proc/self/exe").parent_path());
#endif
  return record.empty() ? RUN_ALL_TESTS() : run_with_record(record, seconds);
}

}  // namespace
}  // namespace nought::test

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  try {
    return nought::test::run_tests(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return nought::test::kFailed;
  }
}
