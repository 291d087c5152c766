// ParameterStore: what a rank keeps of segments whose home is not the device: in the memory of the host, or in a file.
// It is brought to the device for each lease, and what an update changes is written back behind the update.
//
// It knows stretches of elements, and neither Units nor ranks. Its calls come from one thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nought/aio/swap_file.h"
#include "nought/kernels/kernels.h"
#include "nought/zero/offload_options.h"
#include "nought/offload/state_traffic.h"

namespace nought {

class ParameterStore {
 public:
  /// owner: the name of this rank in messages about its file. The home is the host or a file; the host only where it is
  /// not the device.
  ParameterStore(const Context& context, const ParameterHome& options, const std::string& owner);

  /// Makes room for so many elements, and returns its number; nothing if they are to stay on the device, since they
  /// stay in memory, and that is the device. The elements are zero, but those in a file must be written before they are
  /// read. gaps: nobody writes these; they are always zero.
  std::optional<size_t> add(int64_t numel, DType dtype, std::vector<Interval> gaps = {});
  /// All rooms are added.
  void open();

  /// Room on the device that a file can be read into without another copy.
  Tensor device_room(int64_t numel, DType dtype, Category category) const;
  /// Elements on their way to the device.
  struct Arrival {
    Event event;
    Tensor staging = {};  // what they pass on the host
  };
  Arrival bring(size_t number, Interval elements, const Tensor& into);
  /// The compute stream goes on when they are there; a host whose kernels run at once waits.
  void await(const Arrival& arrival);

  /// Begins to write all elements, in a tensor that lies in `where`: Pool::device, or Pool::host where the host has no
  /// access to the device. reads: it starts from the present values, else its contents are undefined. Calls nest: the
  /// first counts.
  void begin_update(size_t number, Pool where, bool reads);
  /// That tensor, for work of the compute stream or, on the host, of the calling thread; undefined outside of an
  /// update.
  Tensor updating(size_t number);
  /// Starts writing it back. bring() waits for it.
  void end_update(size_t number);
  /// Waits until the room's values are written, and frees what that took.
  void land(size_t number);
  void land_all();

  /// A line for the user on the file and on what reads and writes it; "" without one.
  std::string note() const;
  /// So far.
  StateTraffic traffic() const;
  StateTimes times() const;

 private:
  struct Room {
    DType dtype;
    int64_t numel = 0;
    std::vector<Interval> gaps = {};
    Tensor host = {};                  // its home, unless that is the file
    int64_t offset = 0;                // there
    Event written = {}, brought = {};  // the last copies to the host's tensor and from it
    int updates = 0;                   // that have begun and not ended
    Tensor values = {}, staging = {};  // of an update, and until it is written
    Event read = {};                   // the present values
  };
  bool device_is_host() const { return context_.memory->device().is_host(); }
  /// Waits until at most so many of what was read pass the host.
  void make_way(size_t under_way);
  Tensor host_room(const Room& room, int64_t numel) const;
  void copy_down(const Tensor& from, const Tensor& to);
  void clear_gaps(const Room& room) const;
  void wait_on_host(const Event& event);

  /// When an update begins, fewer than so many are still being written back. It bounds memory.
  static constexpr size_t kWrites = 2;
  /// The host runs ahead of a device: so many stretches at most that were read wait there for their copy.
  static constexpr size_t kArrivals = 2;

  Context context_, host_;  // host_: for what lies in the host's memory
  ParameterHome options_;
  int64_t in_memory_ = 0;  // elements that may still stay there
  std::unique_ptr<SwapSpace> space_;
  std::unique_ptr<SwapFile> file_;
  std::shared_ptr<Stream> up_, down_;  // where the host has no access to the device
  std::vector<Room> rooms_;
  std::deque<size_t> writing_;  // numbers, the oldest first
  /// Copies of what was read to a device that the host has no access to, the oldest first.
  std::deque<Arrival> arriving_;
  int64_t file_bytes_ = 0, in_files_ = 0, bytes_down_ = 0, bytes_up_ = 0;
  double waited_ = 0;  // seconds of the calling thread
};

}  // namespace nought
