// InputFiles: the inputs of recomputed Units in files of the rank (ZeRO-Infinity, arXiv 2104.07857, keeps activation
// checkpoints on NVMe). They are written behind the forward pass, and read ahead of the backward pass, which asks for
// them in the reverse order.
//
// Design goals: what is in memory follows from the order of the calls, and never from the drive: two inputs on their
// way to a file, or the one that is asked for and the one before it. Non-goals: what an input is and who else has a
// part of it, which SavedInputs knows. Its calls come from one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nought/autograd/recompute_options.h"
#include "nought/offload/offload_pool.h"

namespace nought {

class InputFiles {
 public:
  /// owner: the name of this rank in messages about its files.
  InputFiles(const Context& context, const RecomputeOptions& options, const std::string& owner)
      : options_{.tier = options.tier,
                 .what = "saved inputs",
                 .category = Category::activations,
                 .owner = owner,
                 .space = std::make_shared<SwapSpace>(context.memory, options.tier.folder, owner, options.tier.aio)} {}

  struct Input;
  /// A file with a stretch for each input of a forward pass. Another pass gets it when this one, and all that it kept,
  /// are gone.
  struct Room {
    OffloadPool pool;                               // of one slot
    int64_t stride = 0;                             // bytes from one stretch to the next
    std::vector<std::weak_ptr<Input>> inputs = {};  // in the order of the pass
  };
  struct Input {
    std::shared_ptr<Room> room;
    size_t number = 0;  // in the room
    int64_t numel = 0;
    DType dtype = DType::f32;
    Tensor arriving = {};  // once its read has begun
    Event read = {};
  };

  /// For a pass that keeps `count` inputs of at most so many bytes. IoError if the drive has no room for a new file.
  std::shared_ptr<Room> room_for(const Context& context, int64_t count, int64_t bytes);
  /// Begins to write a tensor of the device behind what the compute stream has been given. Nobody may change it.
  std::shared_ptr<Input> keep(const Context& context, const std::shared_ptr<Room>& room, const Tensor& x);
  /// Its elements on the device, [numel]. Begins to read the input that was kept before it, if somebody still wants it.
  Tensor take(const Context& context, Input& input);

  /// So far.
  SwapTraffic traffic() const { return options_.space->traffic(); }

 private:
  static void begin_read(Input& input);

  OffloadPool::Options options_;
  std::vector<std::shared_ptr<Room>> rooms_;  // as many as there were passes whose inputs were kept at one time
  UnderWay writes_;
  UnderWay copied_;  // to a device that the host has no access to
};

}  // namespace nought
