// ParameterStore: what a rank keeps of segments that are offloaded: in the memory of the host, or in a file.
// It is brought to the device for each lease, and what an update changes is written back behind the update.
//
// It knows stretches of elements, and neither Units nor ranks. Its calls come from one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/offload/offload_pool.h"
#include "nought/zero/offload_options.h"

namespace nought {

class ParameterStore : public OffloadPool {
 public:
  /// owner: the name of this rank in messages about its file. The offload tier is the host or a file; the host only
  /// where it is not the device.
  ParameterStore(const Context& context, const ParameterOffload& options, const std::string& owner);

  /// Makes room for so many elements; nothing if they are to stay on the device, since they
  /// stay in memory, and that is the device. The elements are zero, but those in a file must be written before they are
  /// read. gaps: nobody writes these; they are always zero.
  std::optional<Slot> add(int64_t numel, DType dtype, std::vector<Interval> gaps = {});
  /// Begins to write all elements, in a tensor that lies in `where`: Pool::device, or Pool::host where the host has no
  /// access to the device. reads: it starts from the present values, else its contents are undefined. Calls nest: the
  /// first counts.
  void begin_update(Slot slot, Pool where, bool reads);
  /// The tensor that is updated, for work of the compute stream or, on the host, of the calling thread; undefined
  /// outside of an update.
  Tensor updating(Slot slot);
  /// Starts writing it back. bring() waits for it.
  void end_update(Slot slot);

  /// A line for the user on the file and on what reads and writes it; "" without one.
  std::string note() const;

 private:
  struct Room {
    int64_t numel = 0;
    DType dtype = DType::f32;
    std::vector<Interval> gaps = {};
    int updates = 0;     // that have begun and not ended
    Tensor values = {};  // of an update
    Event read = {};     // the present values
  };

  Context context_;
  ParameterOffload options_;
  int64_t in_memory_, in_files_ = 0;  // elements that may still stay there; that are there
  std::vector<Room> rooms_;           // by slot
};

}  // namespace nought
