#include "nought/train/observer.h"

namespace nought {

RankMemory peaks_of(const Memory& of) {
  const MemoryLedger& ledger = of.ledger();
  RankMemory memory;
  for (size_t c = 0; c < kNumCategories; ++c) {
    memory.peak[c] = ledger.peak(static_cast<Category>(c));
    memory.at_peak[c] = ledger.at_peak(static_cast<Category>(c));
    memory.host[c] = ledger.peak(static_cast<Category>(c), Pool::host);
    memory.file[c] = ledger.peak(static_cast<Category>(c), Pool::file);
  }
  memory.peak_total = ledger.peak_total();
  memory.ram_peak = of.peak_in_ram();
  memory.host_peak = ledger.peak_total(Pool::host);
  memory.file_peak = ledger.peak_total(Pool::file);
  memory.fragmentation = of.fragmentation();
  return memory;
}

}  // namespace nought
