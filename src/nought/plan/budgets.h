// MemoryBudgets: what a rank may hold in each kind of memory.
#pragma once

#include "nought/config/run_plan.h"
#include "nought/train/observer.h"

namespace nought {

/// Bytes; 0: no limit. What lies in files has none.
struct MemoryBudgets {
  int64_t device = 0, host = 0;  // see Memory::set_limit()

  bool none() const { return device == 0 && host == 0; }
  bool hold(const RankMemory& memory) const {
    return (device == 0 || memory.peak_total <= device) && (host == 0 || memory.ram_peak <= host);
  }
};

inline MemoryBudgets budgets_of(const RunPlan& plan) { return {plan.device_memory, plan.host_memory}; }

}  // namespace nought
