// OffloadPool: tensors that live elsewhere than where they are computed with: on the host beside a device, or in a file
// of this rank. Parameters, gradients, optimizer states and saved inputs lie in such pools.
//
// Design goals: one way for all bytes that live elsewhere. What is in memory follows from the order of the calls
// (UnderWay). What is added, and in which order, is what the device would add, by the same operations.
// Non-goals: what the tensors are, and when they are needed: each user has a loop of its own.
//
// Its calls come from one thread; read() and write() of parts, and values(), may come from another one if they are for
// other slots. It has 49 members because host and file are tiers of one pool: two pools would copy each other's calls.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nought/aio/swap_file.h"
#include "nought/offload/device_copies.h"
#include "nought/offload/state_traffic.h"
#include "nought/offload/tier.h"
#include "nought/offload/under_way.h"

namespace nought {

class OffloadPool {
 public:
  struct Options {
    OffloadTier tier = {};
    std::string what = "states";                 // it has, in messages and names of streams
    Category category = Category::optimizer;     // of the slots, and of what transfers pass
    std::string owner = "this rank";             // in messages about its file
    std::shared_ptr<SwapSpace> space = nullptr;  // given if this rank has other files in the folder
  };
  OffloadPool(const Context& context, const Options& options);

  using Slot = size_t;
  /// Makes room for so many elements. They are zero, but those in a file must be written before they are read.
  Slot add(int64_t numel, DType dtype, Pool pool);
  Slot add(int64_t numel, DType dtype) { return add(numel, dtype, tier_.pool); }
  /// All slots are added.
  void open();

  /// Room on the device, or where the host computes, that a file is read into and written from without another copy.
  Tensor device_room(int64_t numel, DType dtype, Category category) const;
  Tensor host_room(int64_t numel, DType dtype, Category category) const;
  Tensor host_room(int64_t numel, DType dtype) const { return host_room(numel, dtype, category_); }

  /// Begins to bring elements to a tensor: of the device, which gets them behind what the compute stream was given
  /// before; or, from a file, of the host.
  Event bring(Slot slot, Interval elements, const Tensor& into);
  /// The compute stream goes on when what was brought is there; a host whose kernels run at once waits.
  void await(const Event& brought);
  /// The calling thread waits.
  void wait(const Event& event) { writing_.wait(event); }
  /// Begins to write the slot's first elements: from the device, behind what the compute stream was given before, or,
  /// to a file, from the host. `from` stays as it is, and in memory, until complete() or settle().
  Event write(Slot slot, const Tensor& from, Event after = {});
  /// Begins to add what the compute stream leaves in `from`, or to make that the slot's values, in their dtype. Waits
  /// first if others are on their way. `then` is called with the values, on a thread of the host.
  using Then = std::function<void(const Context& host, const Tensor& values)>;
  Event add_to(Slot slot, const Tensor& from, bool add, Then then = {});

  /// Waits until at most so many writes are under way, or those of one slot are done.
  void settle(size_t most = 0) { writing_.settle(most); }
  void complete(Slot slot) { writing_.settle_of(slot); }
  /// Waits until nothing that was brought is on its way to the device.
  void settle_brought() { arriving_.settle(); }

  /// The slot itself, to be read and written; waits for what uses it. Undefined if it is in a file.
  Tensor held(Slot slot);
  /// Its elements where the host computes: a view, or what is read from the file.
  Tensor values(Slot slot, Interval elements) const;
  Tensor values(Slot slot) const { return values(slot, {0, rooms_[slot].numel}); }
  /// Reads elements of a slot in a file to a tensor of the host, from any thread.
  void read(Slot slot, Interval elements, const Tensor& into) const {
    file_->read(offset_of(rooms_[slot], elements.begin), into).wait();
  }
  /// The elements of a slot in a file from `first` on, and a tensor of the host that the caller keeps.
  struct Part {
    Slot slot;
    int64_t first;
    Tensor tensor;
  };
  Event read(std::span<const Part> parts) const { return file_->read(swapped(parts)); }
  Event write(std::span<const Part> parts, Event after = {}) { return file_->write(swapped(parts), std::move(after)); }

  const OffloadTier& tier() const { return tier_; }
  bool in_file(Slot slot) const { return !rooms_[slot].values; }
  Pool pool(Slot slot) const { return in_file(slot) ? Pool::file : rooms_[slot].values.buffer()->pool(); }
  DType dtype(Slot slot) const { return rooms_[slot].dtype; }
  int64_t bytes(Slot slot) const { return rooms_[slot].numel * size_of(rooms_[slot].dtype); }
  /// What computes with values on the host, beside the compute stream.
  const Context& host() const { return host_; }
  /// Null without files.
  const std::shared_ptr<SwapSpace>& space() const { return space_; }
  /// "FOLDER, by io_uring", and why not by it.
  std::string drive() const;
  DeviceCopies& copies() { return copies_; }
  /// What bring(), write() of a slot, add_to() and copies() have moved so far.
  StateTraffic traffic() const;
  /// Seconds in which files were on their way, and in which the calling thread waited.
  StateTimes times() const;

 private:
  struct Room {
    DType dtype;
    int64_t numel = 0, offset = 0;  // bytes in the file
    Tensor values = {};             // unless it is in the file
    Event written = {}, brought = {};
  };
  int64_t offset_of(const Room& room, int64_t element) const { return room.offset + element * size_of(room.dtype); }
  std::vector<SwapPart> swapped(std::span<const Part> parts) const;
  Stream& adder();

  Context context_, host_;  // host_: for what lies in the host's memory
  OffloadTier tier_;
  std::string what_;
  Category category_;
  std::shared_ptr<SwapSpace> space_;
  std::unique_ptr<SwapFile> file_;
  std::vector<Room> rooms_;
  DeviceCopies copies_;
  UnderWay writing_, arriving_;  // arriving_: from a file to a device
  int64_t file_bytes_ = 0, read_ = 0, written_ = 0;
  double awaited_ = 0;
  std::unique_ptr<Stream> adder_;  // null until it adds; the last member: its thread uses the others
};

}  // namespace nought
