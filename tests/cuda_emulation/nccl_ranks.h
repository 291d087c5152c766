// The ranks of a group of the emulated NCCL, and what runs on their streams.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "nought/cuda/backend/nccl.h"

namespace nought::emulation {

enum class Kind { broadcast, all_gather, all_reduce, reduce_scatter, send, receive };
inline constexpr const char* kCallNames[] = {"Broadcast", "AllGather", "AllReduce", "ReduceScatter", "Send", "Recv"};

template <class F>
decltype(auto) visit_nccl_type(int type, const F& f) {
  using namespace cuda::nccl;
  switch (type) {
    case kI8:
      return f(int8_t{});
    case kI32:
      return f(int32_t{});
    case kI64:
      return f(int64_t{});
    case kF16:
      return f(f16_t{});
    case kF32:
      return f(float{});
    case kF64:
      return f(double{});
    case kBf16:
      return f(bf16_t{});
    default:
      return f(uint8_t{});
  }
}

struct Op {
  Kind kind = Kind::send;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t count = 0;
  int type = cuda::nccl::kU8;
  int other = -1;  // a root or a peer

  size_t bytes() const {
    return count * visit_nccl_type(type, [](auto value) { return sizeof(value); });
  }
  bool message() const { return kind == Kind::send || kind == Kind::receive; }
  bool fits(const Op& next) const {
    return kind == next.kind && count == next.count && type == next.type && other == next.other;
  }
  std::string str() const {
    return fmt::format("{} of {} of type {}", kCallNames[static_cast<int>(kind)], count, type);
  }
};

struct End;

/// What one call or one group of calls has put on the stream.
struct Launch {
  std::vector<Op> ops;
  int64_t sequence = -1;  // of a collective
  Event done;
};

struct Mail {
  const std::byte* from = nullptr;
  size_t bytes = 0;
  bool read = false;
};

/// A collective in which ranks meet.
struct Meeting {
  std::vector<const Op*> ops;  // by rank; null: it has not come
  int came = 0;
  bool done = false;
};

/// The ranks of a group.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<End>> ends;  // by rank; null: not there yet, or gone
  int joined = 0;
  int fault = cuda::nccl::kSuccess;
  std::string text;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Mail>>> mail;  // by sender and receiver

  void fail(std::string why) {
    if (fault == cuda::nccl::kSuccess) fault = cuda::nccl::kInvalidUsage, text = std::move(why);
    changed.notify_all();
  }
};

struct End {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  cudaStream_t stream = nullptr;
  bool settled = false, linked = false, aborted = false, finalized = false;
  int answers_in_progress = 0;
  int64_t collectives = 0;
  std::deque<std::shared_ptr<Launch>> unfinished;
  std::function<std::vector<int>()> needs;  // while it waits: the ranks for which it does
};

/// In a task of the stream: does what was launched, when the other ranks are there.
void run_launch(const std::shared_ptr<End>& end, const std::shared_ptr<Launch>& launch);

}  // namespace nought::emulation
