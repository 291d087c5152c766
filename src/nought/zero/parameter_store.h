// ParameterStore: what a rank keeps of segments whose home is not the device: in the memory of the host, or in a file.
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

class ParameterStore {
 public:
  /// owner: the name of this rank in messages about its file. The home is the host or a file; the host only where it is
  /// not the device.
  ParameterStore(const Context& context, const ParameterOffload& options, const std::string& owner);

  /// Makes room for so many elements, and returns its number; nothing if they are to stay on the device, since they
  /// stay in memory, and that is the device. The elements are zero, but those in a file must be written before they are
  /// read. gaps: nobody writes these; they are always zero.
  std::optional<size_t> add(int64_t numel, DType dtype, std::vector<Interval> gaps = {});
  /// All rooms are added.
  void open() { pool_.open(); }

  /// See OffloadPool.
  Tensor device_room(int64_t numel, DType dtype, Category category) const {
    return pool_.device_room(numel, dtype, category);
  }
  Event bring(size_t number, Interval elements, const Tensor& into) { return pool_.bring(number, elements, into); }
  void await(const Event& brought) { pool_.await(brought); }

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
  void land(size_t number) { pool_.land(number); }
  void land_all() { pool_.settle(); }

  /// A line for the user on the file and on what reads and writes it; "" without one.
  std::string note() const;
  /// So far.
  StateTraffic traffic() const { return pool_.traffic(); }
  StateTimes times() const { return pool_.times(); }

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
  OffloadPool pool_;
  std::vector<Room> rooms_;  // by slot of the pool
};

}  // namespace nought
