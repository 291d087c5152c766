// Transport: how a backend moves bytes. Its functions are called when the arguments are checked and it is the call's
// turn on the stream.
//
// Design goals: a backend implements the movement only. Checks, order, deadlines and counters of traffic are in
// StreamCommunicator, once for all backends.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/math.h"
#include "nought/comm/communicator.h"
#include "nought/comm/flight_recorder.h"

namespace nought {

/// One call of a collective: what its error messages say, and until when it may wait.
struct Call {
  std::string_view name;
  int64_t bytes = 0;
  DType dtype = DType::u8;
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point deadline{};
  const FlightRecorder* recorder = nullptr;  // outlives the call
  FlightTicket ticket = {};
  Stream* stream = nullptr;              // whose turn it is
  std::vector<Tensor>* rooms = nullptr;  // on a device stream: keeps what the call works in until it is done

  /// "all_gather of 12.0 MiB f32 in group of 4"
  std::string str() const;
  /// CollectiveTimeout that tells what the other ranks do.
  [[noreturn]] void fail_timeout() const;
  /// The message of a failure, and which calls of two ranks differ, if that is known.
  std::string with_mismatch(const std::string& message) const;
};

/// The interval of `rank` when n elements are cut into `size` nearly equal parts. The last parts may be shorter or
/// empty.
constexpr Interval part_of(int64_t n, int rank, int size) {
  const int64_t part = ceil_div(n, size);
  return intersect({rank * part, (rank + 1) * part}, {0, n});
}

/// The view of the rank's part of a tensor.
inline Tensor part_of(const Tensor& tensor, int rank, int size) {
  const Interval part = part_of(tensor.numel(), rank, size);
  return part.empty() ? tensor.flat(0, 0) : tensor.flat(part.begin, part.end);
}

/// The view of the rows for a rank, or of those from it. counts: of `rows`, by rank.
inline Tensor rows_of(const Tensor& rows, const std::vector<int64_t>& counts, int rank) {
  const auto own = counts.begin() + rank;
  const int64_t begin = std::accumulate(counts.begin(), own, int64_t{0});
  return rows.slice(begin, begin + *own);
}

/// Copies at once: a transport is called when it is its turn on the stream.
inline void copy_now(const Tensor& from, const Tensor& to) {
  Stream here;
  copy(from, to, here);
}

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view backend() const = 0;

  /// Blocks until this rank is done. The tensors have the addresses of kernels (Tensor::in_flight()): a transport reads
  /// and writes them, and those of other ranks. All calls come from the communication stream. A send_recv comes to a
  /// device stream alone.
  virtual void run(const Call& call, const Collective& collective) = 0;
  /// Begins a send in place without waiting. What it returns waits until the tensor may be written again.
  using Posted = std::function<void(const Call&)>;
  virtual Posted post(const Call& call, const Collective& send) {
    run(call, send);
    return [](const Call&) {};
  }
  virtual std::unique_ptr<Transport> split(const Call& call, int color, int key) = 0;
  /// The communication stream of one more group of this rank. Groups have a stream each, so that waiting in one blocks
  /// no other. Where nothing ever waits, it runs inline.
  virtual std::shared_ptr<Stream> make_stream() const { return std::make_shared<Stream>(); }

  /// A stream of the device, on which calls are enqueued instead of run if enqueues() is true of them: their functions
  /// return at once then, and they are done when the stream gets there. They are called by the rank's own thread. Null:
  /// all calls run on the communication stream.
  virtual std::shared_ptr<Stream> device_stream() const { return nullptr; }
  /// With a payload that is there on all ranks, the same on all of them.
  virtual bool enqueues(const Collective& /*collective*/) const { return false; }
  /// A call is on its way on a device stream: if it does not end by its deadline, or cannot, waits for the device fail.
  virtual void watch(const Call& /*call*/, const Event& /*done*/) {}
  /// Why the call cannot end, because another rank failed; null if that is not known.
  virtual std::exception_ptr peer_failure(const Call& /*call*/) { return nullptr; }

  /// Makes calls in flight and later ones fail soon instead of waiting. The owner calls it from its own thread while an
  /// exception unwinds.
  virtual void cancel() = 0;
};

}  // namespace nought
