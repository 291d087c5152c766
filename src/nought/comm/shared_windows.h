// SharedWindows: memory that the ranks of one host share. Each rank has a window of it, into which it writes chunks for
// the others.
//
// Design goals: a chunk is copied once into the writer's window, and every rank that needs it reads it there. Every
// rank reads the chunks of a writer in the order in which they were sent to it. No function waits: a function that
// cannot go on says so, and the caller decides how to wait and when to give up.
// Non-goals: recovery. After a failure the ranks no longer agree on what lies in the windows.
#pragma once

#include <array>
#include <span>
#include <vector>

#include <mpi.h>

#include "nought/comm/buffer_sizes.h"
#include "nought/comm/streaming.h"
#include "nought/comm/transport.h"

namespace nought {

class SharedWindows {
 public:
  /// Data for one or several ranks of the host, which `readers` names by their local ranks.
  struct OutgoingChunk {
    Tensor data;
    std::vector<int> readers;
  };

  /// The ranks of `host` call it together. null on all of them if they cannot share memory (in different containers,
  /// say) or if there is only one.
  static std::shared_ptr<SharedWindows> create(MPI_Comm host, const Context& context);

  int size() const { return size_; }
  int64_t slot_bytes() const { return slot_bytes_; }

  /// Copies chunks, which fit one slot together, into this rank's window for their readers. Returns false, and does
  /// nothing, while the next slot still holds a chunk that was not read by all its readers.
  bool try_send(std::span<const OutgoingChunk> chunks);
  /// The next chunk that `writer` sent to this rank, as a view of its window; undefined while there is none. CommError
  /// if it has another length. The caller gives it back by release().
  Tensor try_receive(int writer, DType dtype, int64_t numel);
  /// Gives the chunk back that try_receive() returned, so that the writer may fill its slot again.
  void release(int writer);

 private:
  struct Chunk {
    int64_t offset, bytes;  // in the writer's window
  };
  struct Mailbox;
  struct Reading {
    int reader = 0;
    uint64_t number = 0;  // the chunk has been read when the reader has taken this many chunks
  };

  SharedWindows(std::shared_ptr<Buffer> memory, int rank, int size);
  Mailbox& mailbox(int writer, int reader) const;
  int64_t window_of(int rank) const { return rank * shared_window_bytes(size_); }
  bool is_read(const Reading& reading) const;

  Tensor memory_;  // all windows, by rank; a window has a mailbox for each reader, then slots
  int rank_, size_;
  int64_t slot_bytes_;
  int slot_ = 0;  // the slot to fill next
  StoreChoice stores_;
  /// By slot: the reads that must have happened before it is filled again.
  std::array<std::vector<Reading>, kSharedWindowSlots> readings_;
};

}  // namespace nought
