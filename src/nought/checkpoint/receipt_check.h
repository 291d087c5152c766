// What a receipt is compared with: the checkpoints and the export that lie beside it, and the lines of a replay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "nought/checkpoint/receipt.h"

namespace nought {

/// What beside a receipt holds the hash of one of its lines.
struct ReceiptLinks {
  std::map<int64_t, const ReceiptLine*> checkpoints;  // by step
  bool exported = false;
};
/// Whether the receipt has all lines in their order, and what lies beside it belongs to it; the weights of checkpoints
/// are read and hashed. IoError, which names the first that is not so.
ReceiptLinks check_links(const Receipt& receipt, const std::filesystem::path& folder);

/// The line of a start that the steps of a line follow.
const ReceiptLine& start_before(const Receipt& receipt, const ReceiptLine& line);

/// How the start of a replay differs from the run's: "learning_rate is 0.1, the receipt says 0.01", or "". same_ranks:
/// what says how ranks share the work is compared, too.
std::string describe_other_start(const Json& then, const Json& now, bool same_ranks);

/// How a step of a replay differs, or "". margin: how far loss and norm may be apart, relative to what the receipt
/// says; 0: they have the same bits, and so have the weights.
std::string describe_other_step(const Json& then, const Json& now, double margin);

}  // namespace nought
