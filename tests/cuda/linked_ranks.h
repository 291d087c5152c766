// Ranks on devices of their own that are linked: emulated ones, or the GPUs of the machine where it has as many.
#pragma once

#include <functional>
#include <vector>

#ifdef NOUGHT_CUDA_EMULATED
#include "cuda_emulation/control.h"
#endif
#include <gtest/gtest.h>

#include "nought/comm/linked.h"
#include "nought/comm/thread.h"
#include "nought/cuda/backend/kernels.h"

namespace nought::test {

inline LinkOptions linked_always() { return {.use = LinkOptions::Use::always}; }
inline LinkOptions linked_with_library_sums() { return {.use = LinkOptions::Use::always, .library_sums = true}; }
inline LinkOptions not_linked() { return {.use = LinkOptions::Use::never}; }

/// Sees to it that there are so many devices, one for each rank.
class DevicesForRanks {
 public:
  explicit DevicesForRanks([[maybe_unused]] int count) {
#ifdef NOUGHT_CUDA_EMULATED
    emulation::set_devices(count);
#endif
    int there = 0;
    enough_ = cudaGetDeviceCount(&there) == cudaSuccess && there >= count;
  }
  ~DevicesForRanks() {
#ifdef NOUGHT_CUDA_EMULATED
    emulation::set_devices(1);
#endif
  }
  DevicesForRanks(const DevicesForRanks&) = delete;
  DevicesForRanks& operator=(const DevicesForRanks&) = delete;
  bool enough() const { return enough_; }

 private:
  bool enough_ = false;
};

/// Runs the body on ranks that were linked so. False where there are too few devices.
inline bool run_linked(int ranks, const std::function<void(Communicator&, const Context&)>& body,
                       const LinkOptions& options = linked_always()) {
  const DevicesForRanks devices(ranks);
  if (!devices.enough()) return false;
  std::vector<Context> contexts;
  for (int rank = 0; rank < ranks; ++rank) contexts.push_back(cuda::make_context({.device = rank, .poison = true}));
  run_ranks(contexts, [&](Communicator& world, const Context& context) {
    link_devices(world, context, options);
    body(world, context);
  });
  return true;
}

#define NOUGHT_NEEDS_DEVICES(count)                                                              \
  if (const ::nought::test::DevicesForRanks devices_for_test(count); !devices_for_test.enough()) \
  GTEST_SKIP() << "this machine has fewer than " << (count) << " GPUs"

}  // namespace nought::test
