#include "nought/aio/runner.h"

namespace nought {

namespace {

class BlockingRunner final : public PieceRunner {
 public:
  BlockingRunner(std::byte* room, const SwapFault& fault) : room_(room), fault_(fault) {}

  void run(PieceQueue& pieces, bool write) override {
    try {
      while (const SwapPiece* piece = pieces.take()) SwapTransfer(*piece, write, room_, fault_).run();
    } catch (...) {
      pieces.give_up();
      throw;
    }
  }

 private:
  std::byte* room_;
  const SwapFault& fault_;
};

}  // namespace

std::unique_ptr<PieceRunner> make_blocking_runner(std::byte* room, const SwapFault& fault) {
  return std::make_unique<BlockingRunner>(room, fault);
}

}  // namespace nought
