// OwnedPiece: a stretch of a master, an optimizer state or a frozen parameter that this rank writes to a checkpoint,
// and how and until when it is read. SaveRoom: the memory that pieces are copied to while the training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/zero/local_steps.h"
#include "nought/zero/sharded_model.h"

namespace nought {

struct OwnedPiece {
  /// Until when the values stay as they are.
  enum class Stays : uint8_t {
    until_passes,  // those of the next step change them, or what reading takes
    until_update,  // the next update of masters and states changes them
    always
  };
  const Parameter* parameter;
  std::string state;      // its name in the manifest
  Interval in_parameter;  // elements of the flattened part that this rank holds
  DType dtype;
  Stays stays;
  bool copied = false;   // to a SaveRoom, if there is one: they stay until the update, and lie on the device
  bool on_host = false;  // beside a device, or in a file: what the host computes with reads them
  Tensor held = {};      // the values, if the host reads them where they lie
  bool whole = false;    // all elements are read at once
  /// Writes elements of the piece to `into`, by what `by` computes with; after a step of the rank's own thread.
  std::function<void(const Context& by, Interval elements, const Tensor& into)> read = {};

  int64_t bytes() const { return in_parameter.size() * size_of(dtype); }
};

/// The prefix of the names of states that each worker of local steps has for itself.
std::string worker_prefix(int worker);

/// What the optimizer keeps, and, unless they are an adapter's base, frozen parameters as they are; codes as the values
/// that they stand for. Called on the rank's own thread between steps, for what is as it is now.
std::vector<OwnedPiece> owned_pieces(ShardedModel& model, LocalSteps* local, bool with_frozen);

/// A flat block of a piece, as it goes to a file. It is the unit of a checksum.
struct OwnedBlock {
  Interval in_piece, in_parameter;
  std::string tensor;  // its name in the file
};
/// What a piece goes to files as: 4 MiB of fp32 at a time.
std::vector<OwnedBlock> blocks_of(const OwnedPiece& piece);

/// The indices that this rank has of each dimension; null where nothing cuts the parameter.
Json part_json(const Parameter& parameter, const Mesh& mesh);

/// Memory of the host for all pieces of a rank that are copied.
class SaveRoom {
 public:
  SaveRoom() = default;
  /// Has room for what the model's optimizer keeps on the device, gradients of an update that is put off included.
  explicit SaveRoom(ShardedModel& model);

  bool exists() const { return bytes_.defined(); }
  /// Where each piece is copied to; undefined for one that is not.
  std::vector<Tensor> places_of(const std::vector<OwnedPiece>& pieces) const;
  /// Where a block of fp32 passes that is read from a file; undefined if there is no file.
  const Tensor& block() const { return block_; }

 private:
  Tensor bytes_, block_;
};

}  // namespace nought
