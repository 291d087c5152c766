#include "nought/train/observer.h"

#include <cstring>
#include <type_traits>

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

std::vector<RankMemory> gather_peaks(Communicator& ranks, const Context& context) {
  // Ranks are processes of one program: the struct travels as it is.
  static_assert(std::is_trivially_copyable_v<RankMemory> && sizeof(RankMemory) % sizeof(int64_t) == 0);
  constexpr int64_t kWidth = sizeof(RankMemory) / sizeof(int64_t);
  const RankMemory mine = peaks_of(*context.memory);
  const Tensor sent = context.empty({kWidth}, DType::i64, Category::workspace);
  upload_bytes(std::as_bytes(std::span(&mine, 1)), sent, *context.stream);
  const Tensor all = context.empty({ranks.size() * kWidth}, DType::i64, Category::workspace);
  ranks.gather(sent, all, 0).wait();
  std::vector<RankMemory> memory(ranks.rank() == 0 ? static_cast<size_t>(ranks.size()) : 0);
  if (!memory.empty()) std::memcpy(memory.data(), context.on_host(all).raw(), memory.size() * sizeof(RankMemory));
  return memory;
}

int64_t StalenessReport::most() const {
  int64_t most = 0;
  for (size_t i = 0; i < histogram.size(); ++i)
    if (histogram[i] > 0) most = static_cast<int64_t>(i);
  return most;
}

double StalenessReport::mean() const {
  double steps = 0, sum = 0;
  for (size_t i = 0; i < histogram.size(); ++i)
    steps += static_cast<double>(histogram[i]), sum += static_cast<double>(i) * static_cast<double>(histogram[i]);
  return steps > 0 ? sum / steps : 0;
}

}  // namespace nought
