// SharedWindows: memory that the ranks of one host share, and the chunks that they hand each other through it.
//
// Design goals: a chunk is copied once into the writer's window, and read there by as many ranks as need it; nothing
// here waits: what cannot go on says so, and the caller decides how to pass the time and when to give up. Every rank
// reads the chunks of a writer in the order in which they were sent to it.
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
  /// What goes to one or several ranks of the host.
  struct OutgoingChunk {
    Tensor data;
    std::vector<int> readers;
  };

  /// The ranks of `host` call it together. Undefined memory when they cannot share any (other containers, say).
  static std::shared_ptr<SharedWindows> create(MPI_Comm host, const Context& context);

  int size() const { return size_; }
  int64_t slot_bytes() const { return slot_bytes_; }

  /// Copies the chunks, which fit a slot together, into this rank's window, for their readers. False, and nothing done,
  /// while the slot whose turn it is has not been read by all.
  bool try_send(std::span<const OutgoingChunk> chunks);
  /// The next chunk that `writer` sent to this rank, a view of its window, to be given back by release(); undefined
  /// while it has not come. CommError if it is not as long as expected.
  Tensor try_receive(int writer, DType dtype, int64_t numel);
  void release(int writer);

 private:
  struct Chunk {
    int64_t offset, bytes;  // in the writer's window
  };
  struct Mailbox;
  struct Reading {
    int reader = 0;
    uint64_t number = 0;  // the chunk is read when the reader has taken this many
  };

  SharedWindows(std::shared_ptr<Buffer> memory, int rank, int size);
  Mailbox& mailbox(int writer, int reader) const;
  int64_t window_of(int rank) const { return rank * shared_window_bytes(size_); }
  bool is_read(const Reading& reading) const;

  Tensor memory_;  // all windows, by rank: mailboxes by reader, then slots
  int rank_, size_;
  int64_t slot_bytes_;
  int slot_ = 0;  // the next to fill
  StoreChoice stores_;
  std::array<std::vector<Reading>, kSharedWindowSlots>
      readings_;  // by slot: who has to have read it before it is filled again
};

}  // namespace nought
