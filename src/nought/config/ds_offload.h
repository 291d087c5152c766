// The sections of DeepSpeed's ds_config.json on what is kept outside of the device, and on files.
#pragma once

#include <cstdint>
#include <string>

#include "nought/base/visit.h"

namespace nought {

struct DsOffloadOptimizer {
  Auto<std::string> device;
  Setting<std::string> nvme_path;
  Setting<int64_t> buffer_count{int64_t{4}};
  Setting<bool> pipeline_read{false};
  Setting<bool> pipeline_write{false};
  Setting<bool> pin_memory{true};
  Setting<double> ratio{1.0};

  template <class V>
  void visit(V& v) {
    v("device", device,
      "where masters and optimizer states are between updates. none: on the device; cpu: in the host's memory, which "
      "is the device's here; nvme: in a file of each rank, at any stage (DeepSpeed: at stage 3); auto <- none");
    v("nvme_path", nvme_path, "the folder of these files, on a drive of this host; made if its parent is there");
    v("buffer_count", buffer_count,
      "nvme: tiles in memory are a fourth of it: 4, or 8 with pipeline_read or pipeline_write, or 12 with both");
    v("pipeline_read", pipeline_read, "nvme: read the next tile while one is updated");
    v("pipeline_write", pipeline_write, "nvme: write the last tile while one is updated");
    v("pin_memory", pin_memory, "without effect: no device reads pages of the host");
    v("ratio", ratio,
      "nvme: the share of the tiles whose states are in files; the first int((1 - ratio) tiles) stay on the device");
  }
};

struct DsOffloadParam {
  Auto<std::string> device;
  Setting<std::string> nvme_path;
  Setting<int64_t> buffer_count{int64_t{5}};
  Setting<int64_t> buffer_size{int64_t{100'000'000}};
  Setting<int64_t> max_in_cpu{int64_t{1'000'000'000}};
  Setting<bool> pin_memory{true};

  template <class V>
  void visit(V& v) {
    v("device", device,
      "where parameters are between the passes that read them, at stage 3, on any number of ranks. none: on the "
      "device; "
      "cpu: in the host's memory, which is the device's here; nvme: in a file of each rank; auto <- none");
    v("nvme_path", nvme_path, "the folder of these files, on a drive of this host; made if its parent is there");
    v("buffer_count", buffer_count,
      "nvme: Units (the embedding, each block, the head) that are read ahead fill so many");
    v("buffer_size", buffer_size, "nvme: elements of a buffer; a Unit of which a rank reads more fills several");
    v("max_in_cpu", max_in_cpu,
      "nvme: so many elements of each rank stay in memory, the first Units that fit; 0: none. The default holds models "
      "of less than a billion parameters per rank whole");
    v("pin_memory", pin_memory, "without effect: no device reads pages of the host");
  }
};

struct DsAio {
  Auto<int64_t> block_size;
  Auto<int64_t> queue_depth;
  Auto<int64_t> intra_op_parallelism, thread_count, num_threads;
  Auto<bool> single_submit;
  Auto<bool> overlap_events;

  template <class V>
  void visit(V& v) {
    v("block_size", block_size,
      "of what is offloaded to files: bytes of one read or write, rounded up to a multiple of 65536; auto and default: "
      "1048576");
    v("queue_depth", queue_depth, "reads or writes on their way at once, for each thread; auto and default: 8");
    v("intra_op_parallelism", intra_op_parallelism,
      "threads that submit reads, and as many writes; auto and default: 1");
    v("thread_count", thread_count, "the same; DeepSpeed's documentation has it, its program does not know it");
    v("num_threads", num_threads, "the same, as ds_nvme_tune prints it");
    v("single_submit", single_submit,
      "one system call for each read or write, not for all that are ready; auto and default: false");
    v("overlap_events", overlap_events,
      "the next read or write starts as one is done; false: when queue_depth are; auto and default: true");
  }
};

}  // namespace nought
