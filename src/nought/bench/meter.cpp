#include "nought/bench/meter.h"

#include <utility>

#include "nought/bench/report.h"

namespace nought {

namespace {

template <class Op>
std::string full_name(std::string name, const Op& /*op*/) {
  return name;
}

/// M x N x K, and which factors are read transposed.
std::string full_name(std::string name, const MatMul& op) {
  const int64_t inner = op.transpose_a ? op.a.rows() : op.a.dim(-1), columns = op.c.dim(-1);
  return fmt::format("{} {} x {} x {}{}{}", std::move(name), op.c.numel() / columns, columns, inner,
                     op.transpose_a ? ", a'" : "", op.transpose_b ? ", b'" : "");
}

}  // namespace

#define NOUGHT_RUN(Op)                                                   \
  void Meter::run(const Op& op, Stream& stream) {                        \
    const double seconds = seconds_of([&] { inner_->run(op, stream); }); \
    Metered& book = books_[full_name(#Op, op)];                          \
    book.runs += 1, book.seconds += seconds, book.work += work_of(op);   \
  }
NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

std::map<std::string, Metered> Meter::take() { return std::exchange(books_, {}); }

}  // namespace nought
