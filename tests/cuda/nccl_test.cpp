// Groups of NCCL beneath the transport: the table of its functions, what it refuses, and what is refused to it.
#include "nought/cuda/backend/nccl.h"

#include <thread>

#include "cuda/linked_ranks.h"
#include "support/known_paths.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cuda/backend/device.h"
#include "nought/tensor/device_group.h"

namespace nought::cuda::nccl_test {
namespace {

using std::chrono::milliseconds;
using test::message_of;
using ::testing::HasSubstr;

TEST(Nccl, a_library_that_lacks_a_function_or_is_not_there_is_named) {
  EXPECT_EQ(message_of<IoError>([] { load_nccl({.folders = {test::known_path("fake_cuda")}, .in_system = false}); }),
            test::known_path("fake_cuda") + "/nccl/lib/libnccl.so.2 has no ncclGetUniqueId");
  EXPECT_EQ(message_of<IoError>([] { load_nccl({.folders = {"/nonexistent"}, .in_system = false}); }),
            "no libnccl.so.2 in /nonexistent, no other folder");
}

TEST(Nccl, the_library_of_this_machine_has_every_function) {
  NcclFunctions functions{};
  try {
    functions = load_nccl(LibrarySearch::of_environment());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_THAT(nccl_version(functions), HasSubstr("NCCL 2."));
  EXPECT_THAT(functions.error_text(nccl::kInvalidUsage), HasSubstr("invalid usage"));
  EXPECT_EQ(functions.group_start(), nccl::kSuccess);
  EXPECT_EQ(functions.group_end(), nccl::kSuccess);
}

/// Two ranks on two threads, each with a group, a device and a stream.
class NcclGroups : public ::testing::Test {
 protected:
  struct Rank {
    int number = 0;
    Context context;
    std::shared_ptr<Stream> stream = {};
    std::unique_ptr<NcclGroup> group = {};

    Tensor filled(int64_t n, double value) const {
      const Tensor x = context.empty({n}, DType::f32);
      context.run(Fill{.x = x, .value = value});
      return x;
    }
    Event submit(const std::function<void()>& task) const {
      stream->wait(context.stream->record());
      return stream->submit(task);
    }
    /// What the group finds wrong while the work is waited for, which an abort ends.
    [[noreturn]] void fail_with_fault(const Event& work) const {
      std::thread waiter([&] { work.wait(); });
      std::string fault;
      for (int i = 0; fault.empty() && i < 10'000; ++i) {
        std::this_thread::sleep_for(milliseconds(1));
        fault = group->fault();
      }
      group->abort();
      waiter.join();
      fail<CommError>("{}", fault);
    }
  };

  void on_ranks(const std::function<void(Rank&)>& body, const std::vector<int>& devices = {0, 1}) {
    const test::DevicesForRanks two(2);
    const std::vector<std::byte> id = NcclGroup::make_id(nccl_functions());
    std::vector<std::thread> threads;
    for (int number = 0; number < 2; ++number)
      threads.emplace_back([&, number] {
        const int device = devices[static_cast<size_t>(number)];
        Rank rank{.number = number, .context = make_context({.device = device})};
        rank.stream = rank.context.memory->device().make_stream("links");
        try {
          rank.group = std::make_unique<NcclGroup>(nccl_functions(), device, id, number, 2, milliseconds(60'000));
          body(rank);
        } catch (const std::exception& error) {
          failures_[number] = error.what();
        }
        if (rank.group && !failures_[number].empty()) rank.group->abort();
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::string failures_[2];
};

TEST_F(NcclGroups, ranks_on_one_device_are_refused) {
  on_ranks([](Rank&) {}, {0, 0});
  EXPECT_THAT(failures_[0], HasSubstr("NCCL: meeting in group of 2 on rank 0: invalid usage (5): Duplicate GPU"));
  EXPECT_THAT(failures_[1], HasSubstr("Duplicate GPU"));
}

TEST_F(NcclGroups, calls_after_an_abort_are_refused_and_what_waited_ends) {
  on_ranks([](Rank& rank) {
    const Tensor x = rank.filled(64, rank.number);
    rank.submit([&] { rank.group->sum_for_all(*rank.stream, x.in_flight().raw(), 64, DType::f32); }).wait();
    if (rank.number == 1) return;
    const Event lost = rank.submit([&] { rank.group->sum_for_all(*rank.stream, x.in_flight().raw(), 64, DType::f32); });
    std::thread aborter([&] { rank.group->abort(); });
    lost.wait();
    aborter.join();
    EXPECT_EQ(rank.group->fault(), "");
    rank.submit([&] { rank.group->broadcast(*rank.stream, x.in_flight().raw(), 4, 0); });
  });
  EXPECT_THAT(failures_[0], HasSubstr("NCCL: broadcast in group of 2 on rank 0: the group was aborted"));
  EXPECT_EQ(failures_[1], "");
}

#ifdef NOUGHT_CUDA_EMULATED
TEST_F(NcclGroups, memory_of_the_host_is_refused) {
  on_ranks([](Rank& rank) {
    std::vector<float> here(8);
    rank.group->broadcast(*rank.stream, reinterpret_cast<std::byte*>(here.data()), 32, 0);
  });
  EXPECT_THAT(failures_[0], HasSubstr("invalid argument (4): what is sent does not lie on a device"));
}

TEST_F(NcclGroups, a_second_stream_is_refused) {
  on_ranks([](Rank& rank) {
    const Tensor x = rank.filled(4, 1);
    rank.submit([&] { rank.group->broadcast(*rank.stream, x.in_flight().raw(), 16, 0); }).wait();
    const auto other = rank.context.memory->device().make_stream("other");
    other->submit([&] { rank.group->broadcast(*other, x.in_flight().raw(), 16, 0); });
  });
  EXPECT_THAT(failures_[0], HasSubstr("a second stream for one group"));
}

TEST_F(NcclGroups, tensors_that_overlap_are_refused) {
  on_ranks([](Rank& rank) {
    const Tensor x = rank.filled(8, 1);
    std::byte* const at = x.in_flight().raw();
    rank.submit([&] { rank.group->all_gather(*rank.stream, at + 4, at, 16); });
  });
  EXPECT_THAT(failures_[0], HasSubstr("what is sent and what is received overlap"));
}

TEST_F(NcclGroups, ranks_that_send_to_each_other_before_they_receive_are_found) {
  on_ranks([](Rank& rank) {
    const Tensor x = rank.filled(8, 1), y = rank.filled(8, 2);
    const int other = 1 - rank.number;
    rank.submit([&] { rank.group->exchange(*rank.stream, {{other, x.in_flight().raw(), 32}}, {}); });
    const Event received = rank.submit([&] {
      rank.group->exchange(*rank.stream, {}, {{other, y.in_flight().raw(), 32}});
    });
    rank.fail_with_fault(received);
  });
  EXPECT_THAT(failures_[0], HasSubstr("ranks wait for each other"));
  EXPECT_THAT(failures_[1], HasSubstr("ranks wait for each other"));
}

TEST_F(NcclGroups, collectives_and_messages_that_do_not_fit_are_found) {
  for (const bool messages : {false, true}) {
    on_ranks([&](Rank& rank) {
      const Tensor x = rank.filled(8, 1);
      std::byte* const at = x.in_flight().raw();
      const size_t bytes = rank.number == 0 ? 32 : 16;
      const Event done = rank.submit([&] {
        if (!messages) return rank.group->broadcast(*rank.stream, at, bytes, 0);
        const std::vector<DevicePart> part{{1 - rank.number, at, bytes}};
        rank.number == 0 ? rank.group->exchange(*rank.stream, part, {}) : rank.group->exchange(*rank.stream, {}, part);
      });
      rank.fail_with_fault(done);
    });
    for (const std::string& failure : failures_)
      EXPECT_THAT(failure, HasSubstr(messages ? "sends 32 bytes, rank 1 receives 16" : "calls Broadcast of"));
  }
}
#endif

TEST_F(NcclGroups, all_ends_are_gone_at_last) {
  on_ranks([](Rank& rank) {
    const Tensor x = rank.filled(16, 1 + rank.number);
    rank.submit([&] { rank.group->sum_for_all(*rank.stream, x.in_flight().raw(), 16, DType::f32); }).wait();
    EXPECT_EQ(rank.context.to_host<float>(x), std::vector<float>(16, 3));
  });
  EXPECT_EQ(failures_[0] + failures_[1], "");
#ifdef NOUGHT_CUDA_EMULATED
  EXPECT_EQ(emulation::nccl_ends(), 0);
#endif
}

}  // namespace
}  // namespace nought::cuda::nccl_test
