// StateStore: where the tiles of masters and optimizer states are between updates: in memory, or in a file of this rank
// from which they are read and to which they are written while others are updated. And what an update has on the host
// of the tiles under way beside them: gradients that come down from the device or from a file, parameters that go up.
//
// It knows tiles, and neither parameters nor optimizers.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nought/offload/offload_pool.h"
#include "nought/zero/offload_options.h"
#include "nought/zero/state_tiles.h"

namespace nought {

class StateStore {
 public:
  /// owner: the name of this rank in messages about its file. gradients: those that are in files of this rank, or null.
  StateStore(const Context& context, const OffloadOptions& options, const std::string& owner,
             const OffloadPool* gradients = nullptr);

  /// Makes room for a tile, and returns its number. The rows are zero, but those in a file must be written before they
  /// are read. stays: it is on the device, wherever the others are. twice: it has a second version of its rows, but of
  /// what was before an update, to which Use::aside writes.
  size_t add(const std::vector<StateRow>& rows, bool stays = false, bool twice = false);
  /// All tiles are added.
  void open() { pool_.open(); }
  /// True if updates of a device are made by the host.
  bool by_host() const { return options_.tier.pool != Pool::device && !context_.memory->device().is_host(); }

  /// Rows by bits: 1 << row.
  using RowSet = uint64_t;
  static constexpr RowSet kAll = ~RowSet{0};
  struct Use {
    size_t tile = 0;
    RowSet reads = kAll, writes = kAll;  // of the file
    bool aside = false;                  // what it writes is the tile's second version; its rows in memory are, too
    bool moves(size_t row) const { return ((reads | writes) >> row & 1) != 0; }
  };
  /// Copies the rows of a tile that are in memory to their second version.
  void copy_aside(const Context& by, size_t tile) const;
  /// From now on the tile is its second version, and the first one is written to next.
  void take_aside(size_t tile) { std::swap(tiles_[tile], aside_[tile]); }
  /// Begins a walk over tiles of at most so many elements: what the compute stream was given before comes first.
  void begin(int64_t most);
  /// For each use in turn, i from 0 on: begin(i), then work(i, the tile's rows). begin(i + 1) may come before work(i).
  /// Place i % places() is free when begin(i) is called, and is used by i until work(i + places()) begins; what
  /// begin(i) brings there has come when work(i) is called. Returns the seconds in which it waited.
  double run(std::span<const Use> uses, const std::function<void(size_t)>& begin,
             const std::function<void(size_t, const std::vector<Tensor>&)>& work);
  /// The compute stream goes on when all that was sent up is there.
  void end();
  /// How many uses are under way at once.
  size_t places() const { return static_cast<size_t>(options_.tiles()); }

  /// What the host has of a tile beside its masters and states; parameters in the dtype of the device.
  enum class Room : uint8_t { gradients, parameters, directions };
  /// Elements of the place's room on the host.
  Tensor room(size_t place, Room room, Interval elements, DType dtype);
  /// Starts bringing a tensor of the device to one of the host, for the tile at a place.
  void down(const Tensor& from, const Tensor& to, size_t place) {
    places_[place].coming.push_back(copies().down(from, to));
  }
  /// Starts reading the gradients of a tile's pieces into the place's room; `first` is the element of the segment that
  /// is the first in the file's slot.
  void read_gradients(OffloadPool::Slot slot, std::span<const TrainedPiece> pieces, int64_t first, DType dtype,
                      size_t place);
  /// Starts sending a tensor of the host, which stays as it is while the place is in use.
  void up(const Tensor& from, const Tensor& to, size_t place) { places_[place].sent = copies().up(from, to); }
  /// Between the device and the host.
  DeviceCopies& copies() { return pool_.copies(); }

  /// Take the room that run() needs for such uses, and a room of each place, and keep them until release().
  void hold(std::span<const Use> uses) { make_states(uses), held_ = true; }
  void hold(Room room, DType dtype) {
    for (size_t place = 0; place < places_.size(); ++place) this->room(place, room, {}, dtype);
  }

  void release() { held_ = false, end(); }

  /// Elements of one row of a tile: a view, or what was read from the file.
  Tensor read(size_t tile, size_t row, Interval elements) const { return pool_.values(tiles_[tile][row], elements); }
  /// Reads elements of a row in the file to a tensor of the host, from any thread.
  void read(size_t tile, size_t row, Interval elements, const Tensor& into) const {
    pool_.read(tiles_[tile][row], elements, into);
  }
  /// Where a row of a tile is.
  Pool pool(size_t tile, size_t row) const { return pool_.pool(tiles_[tile][row]); }
  DType dtype(size_t tile, size_t row) const { return pool_.dtype(tiles_[tile][row]); }
  /// A line for the user on the file and on what reads and writes it; "" without one.
  std::string note() const { return in_file() ? "optimizer states are in files in " + pool_.drive() : ""; }
  /// What went from and to all files of this rank's folder so far.
  SwapTraffic traffic() const { return pool_.space() ? pool_.space()->traffic() : SwapTraffic{}; }

 private:
  using Slots = std::vector<OffloadPool::Slot>;  // by row
  /// One tile under way.
  struct Place {
    Tensor states;  // its rows, if they come from the file
    std::array<Tensor, 3> rooms;
    std::vector<Event> coming;
    Event sent, written;
  };
  void make_states(std::span<const Use> uses);
  /// A tile's rows at a place: where the place has them, or where they stay. The place has no room for those that are
  /// neither read nor written.
  std::vector<Tensor> rows_in(const Place& place, const Use& use) const;
  const Slots& written_by(const Use& use) const { return use.aside ? aside_[use.tile] : tiles_[use.tile]; }
  std::vector<OffloadPool::Part> parts(const Slots& slots, RowSet chosen, const std::vector<Tensor>& rows) const;
  bool in_file() const { return options_.tier.pool == Pool::file; }

  Context context_;
  OffloadOptions options_;
  const OffloadPool* gradients_;
  OffloadPool pool_;
  std::vector<Slots> tiles_, aside_;
  std::vector<Place> places_;
  int64_t most_ = 0;
  bool held_ = false;
};

}  // namespace nought
