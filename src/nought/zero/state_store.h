// StateStore: where the tiles of masters and optimizer states are between updates: in memory, or in a file of this rank
// from which they are read and to which they are written while others are updated.
//
// It knows rows of values, and neither parameters nor optimizers.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/offload/offload_pool.h"
#include "nought/zero/offload_options.h"
#include "nought/zero/state_tiles.h"

namespace nought {

class StateStore {
 public:
  /// owner: the name of this rank in messages about its file. space: given if this rank has other files in the folder.
  StateStore(const Context& context, const OffloadOptions& options, const std::string& owner,
             std::shared_ptr<SwapSpace> space = nullptr);

  /// Makes room for a tile, and returns its number. The rows are zero, but those in a file must be written before they
  /// are read. stays: it is on the device, whatever the home of the others.
  size_t add(const std::vector<StateRow>& rows, bool stays = false);
  /// All tiles are added.
  void open() { pool_.open(); }

  /// Rows by bits: 1 << row.
  using RowSet = uint64_t;
  static constexpr RowSet kAll = ~RowSet{0};
  struct Use {
    size_t tile = 0;
    RowSet reads = kAll, writes = kAll;  // of the file
  };
  /// For each use in turn, i from 0 on: begin(i), then work(i, the tile's rows). begin(i + 1) may come before work(i).
  /// Place i % places() is free when begin(i) is called, and is used by i until work(i + places()) begins. Returns the
  /// seconds in which it waited for the file.
  double run(std::span<const Use> uses, const std::function<void(size_t)>& begin,
             const std::function<void(size_t, const std::vector<Tensor>&)>& work);
  /// Takes the room that run() needs for such uses, and keeps it until release().
  void hold(std::span<const Use> uses) { held_ = make_places(uses); }
  void release() { held_.clear(); }
  /// How many uses are under way at once.
  size_t places() const { return static_cast<size_t>(options_.tiles()); }

  /// Elements of one row of a tile: a view, or what was read from the file.
  Tensor read(size_t tile, size_t row, Interval elements) const { return pool_.values(tiles_[tile][row], elements); }
  /// A line for the user on the file and on what reads and writes it; "" without one.
  std::string note() const { return in_file() ? "optimizer states are in files in " + pool_.drive() : ""; }
  /// What went from and to all files of this rank's folder so far.
  SwapTraffic traffic() const { return pool_.space() ? pool_.space()->traffic() : SwapTraffic{}; }
  /// For what crosses between the device and the host in an update.
  DeviceCopies& copies() { return pool_.copies(); }

 private:
  using Slots = std::vector<OffloadPool::Slot>;  // by row
  /// Room for one tile that comes from the file.
  struct Place {
    Tensor room;
    Event read, written;
  };
  std::vector<Place> make_places(std::span<const Use> uses) const;
  /// A tile's rows at a place: the place's room, or where they stay.
  std::vector<Tensor> rows_in(const Place& place, const Slots& slots) const;
  std::vector<OffloadPool::Part> parts(const Slots& slots, RowSet chosen, const std::vector<Tensor>& rows) const;
  bool in_file() const { return options_.tier.pool == Pool::file; }

  Context context_;
  OffloadOptions options_;
  OffloadPool pool_;
  std::vector<Slots> tiles_;
  std::vector<Place> held_;
};

}  // namespace nought
