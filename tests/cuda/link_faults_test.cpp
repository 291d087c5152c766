// What goes wrong on links: nobody is left waiting, and everybody is told why.
#include <atomic>
#include <chrono>
#include <future>

#include "cuda/linked_ranks.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::link_faults_test {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// A collective on a tensor of the device, waited for by the host.
void add_up(Communicator& world, const Context& context, int64_t n = 1000) {
  const Tensor x = context.zeros({n}, DType::f32);
  world.wait(world.all_reduce(x), *context.stream);
  context.to_host<float>(x);
}

TEST(LinkFaults, a_failing_rank_ends_the_waiting_of_the_others) {
  NOUGHT_NEEDS_DEVICES(4);
  std::atomic<int> peers_told = 0;
  const auto body = [&](Communicator& world, const Context& context) {
    add_up(world, context);
    world.barrier().wait();  // all have their sums: what is in flight when a rank fails may end or not
    if (world.rank() == 2) fail<ConfigError>("the data ended");
    try {
      add_up(world, context);
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("all_reduce of 3.91 KiB f32 in group of 4 cannot finish on rank"),
                                      HasSubstr("rank 2 failed: the data ended")));
      EXPECT_THROW(add_up(world, context), PeerError) << "later calls fail at once";
      ++peers_told;
      throw;
    }
  };
  EXPECT_THROW(test::run_linked(4, body), ConfigError) << "the cause is rethrown, and not its consequences";
  EXPECT_EQ(peers_told, 3);
}

TEST(LinkFaults, a_group_that_dies_with_calls_in_flight_does_not_wait) {
  NOUGHT_NEEDS_DEVICES(2);
  const auto body = [](Communicator& world, const Context& context) {
    const auto pair = world.split(0, world.rank());
    const Tensor x = context.zeros({10}, DType::f32);
    if (world.rank() == 0) {
      pair->all_reduce(x);  // rank 1 never comes
      fail<IoError>("the disk is full");
    }
    world.barrier().wait();
  };
  EXPECT_THROW(test::run_linked(2, body), IoError);
}

TEST(LinkFaults, a_call_that_others_do_not_join_ends_at_its_deadline) {
  NOUGHT_NEEDS_DEVICES(2);
  std::promise<void> timed_out;
  const auto body = [&, heard = timed_out.get_future().share()](Communicator& world, const Context& context) {
    add_up(world, context);
    if (world.rank() == 1) return (void)heard.wait_for(std::chrono::seconds(60));
    world.set_timeout(std::chrono::milliseconds(50));
    const std::string message = message_of<CollectiveTimeout>([&] { add_up(world, context); });
    timed_out.set_value();
    EXPECT_THAT(message, HasSubstr("all_reduce of 3.91 KiB f32 in group of 2 timed out after 0.05s on rank 0"));
  };
  test::run_linked(2, body);
}

TEST(LinkFaults, calls_that_differ_are_told_on_every_rank) {
  NOUGHT_NEEDS_DEVICES(2);
  std::atomic<int> told = 0;
  const auto body = [&](Communicator& world, const Context& context) {
    add_up(world, context);
    world.set_timeout(std::chrono::seconds(20));  // a GPU may hang where the emulated one tells
    const Tensor x = context.zeros({world.rank() == 0 ? 8 : 12}, DType::f32);
    const std::string message = message_of<CommError>([&] {
      world.wait(world.broadcast(x, 0), *context.stream);
      context.to_host<float>(x);
    });
    // The other rank may have heard of it from the first one.
    EXPECT_THAT(message, AnyOf(HasSubstr("broadcast of"), HasSubstr("rank")));
    EXPECT_NE(message, "");
    ++told;
  };
  test::run_linked(2, body);
  EXPECT_EQ(told, 2);
}

TEST(LinkFaults, calls_are_compared_before_they_are_enqueued_if_that_is_asked_for) {
  NOUGHT_NEEDS_DEVICES(2);
  const auto body = [&](Communicator& world, const Context& context) {
    world.check_calls(true);
    add_up(world, context);
    const Tensor x = context.zeros({world.rank() == 0 ? 8 : 12}, DType::f32);
    EXPECT_THAT(message_of<CommError>([&] { world.broadcast(x, 0); }),
                AllOf(HasSubstr("differs: rank 0 issues broadcast"), HasSubstr("rank 1 issues broadcast")));
  };
  test::run_linked(2, body);
}

TEST(LinkFaults, tensors_on_two_sides_are_refused_by_name) {
  NOUGHT_NEEDS_DEVICES(2);
  const auto body = [&](Communicator& world, const Context& context) {
    const Tensor here = Tensor::zeros(*context.memory, {8}, DType::f32, Category::activations, Pool::host);
    const Tensor there = context.zeros({8}, DType::f32);
    EXPECT_THAT(message_of<CommError>([&] { world.all_to_all(there, here); }),
                HasSubstr("one tensor lies on the device and f32[8] on the host"));
    world.barrier().wait();
  };
  test::run_linked(2, body);
}

TEST(LinkFaults, what_keeps_devices_from_being_linked_is_said) {
  const auto words_with = [](const std::vector<int>& devices, const LinkOptions& options) {
    std::vector<Context> contexts;
    for (const int device : devices)
      contexts.push_back(device < 0 ? Context::cpu() : cuda::make_context({.device = device}));
    std::string words;
    run_ranks(contexts, [&](Communicator& world, const Context& context) {
      link_devices(world, context, options);
      if (world.rank() == 1) words = words_of_links(world);
    });
    return words;
  };
  NOUGHT_NEEDS_DEVICES(2);
  const test::DevicesForRanks two(2);
  const LinkOptions automatic;
  EXPECT_THAT(words_with({0, 1}, automatic), HasSubstr(" between 2 devices, sums in the order of ranks"));
  EXPECT_THAT(words_with({0, 1}, test::linked_with_library_sums()), HasSubstr("sums in an order of its own"));
  EXPECT_THAT(words_with({0, 1, 0}, automatic), HasSubstr("through the host: ranks 0 and 2 share cuda:0 of "));
  EXPECT_EQ(words_with({0, 1}, test::not_linked()), "through the host, as asked for");
  EXPECT_THAT(words_with({0, -1}, automatic), HasSubstr("cpu has no links"));
  EXPECT_EQ(words_with({-1, -1}, automatic), "");
  EXPECT_THAT(message_of<DeviceError>([&] {
                words_with({0, 0}, test::linked_always());
              }),
              AllOf(HasSubstr("cannot be linked: ranks 0 and 1 share cuda:0"), HasSubstr("leave out --collectives")));
}

TEST(LinkFaults, names_of_ways_are_read) {
  EXPECT_EQ(link_options("auto").use, LinkOptions::Use::automatic);
  EXPECT_EQ(link_options("host").use, LinkOptions::Use::never);
  EXPECT_FALSE(link_options("nccl").library_sums);
  EXPECT_TRUE(link_options("nccl-sums").library_sums);
  EXPECT_EQ(message_of<ConfigError>([] { link_options("ring"); }),
            "--collectives ring: expected auto, nccl, nccl-sums or host");
}

}  // namespace
}  // namespace nought::link_faults_test
