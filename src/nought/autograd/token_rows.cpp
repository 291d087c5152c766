#include "nought/autograd/token_rows.h"

#include <algorithm>
#include <numeric>

namespace nought {

namespace {

void copy_columns(const Context& context, const Heads& from, const Heads& to, int64_t rows, int64_t count) {
  context.run(CopyHeads{.from = from, .to = to, .tokens = rows, .num_heads = 1, .head_dim = count});
}

/// Trained rows less those of the table, 0 for tokens of other ranks.
Tensor changes_of(const Context& context, const Weight& table, const TokenRows& of) {
  const Tensor& rows = of.rows.value();
  const Tensor changes = context.empty(rows.shape(), rows.dtype(), Category::workspace);
  context.zero(changes);
  for (const TokenRows::Run& run : of.runs) {
    std::vector<int32_t> ids(static_cast<size_t>(run.count));
    std::iota(ids.begin(), ids.end(), static_cast<int32_t>(run.column));
    const Tensor part = changes.slice(run.row, run.row + run.count);
    context.run(Embedding{.table = table, .ids = context.upload<int32_t>({run.count}, ids), .out = part});
    context.run(Scale{.x = part, .factor = -1});
    context.run(AddTo{.x = rows.slice(run.row, run.row + run.count), .into = part});
  }
  return changes;
}

}  // namespace

std::vector<TokenRows::Run> runs_of(const std::vector<int32_t>& tokens, Interval held) {
  std::vector<TokenRows::Run> runs;
  for (size_t row = 0; row < tokens.size(); ++row) {
    const int64_t token = tokens[row], column = token - held.begin, at = static_cast<int64_t>(row);
    if (token < held.begin || token >= held.end) continue;
    if (!runs.empty() && runs.back().row + runs.back().count == at &&
        runs.back().column + runs.back().count == column) {
      ++runs.back().count;
    } else {
      runs.push_back({at, column, 1});
    }
  }
  return runs;
}

void put_token_logits(const Context& context, const Tensor& x, const TokenRows& of, const Tensor& logits) {
  if (of.runs.empty()) return;
  const Tensor& rows = of.rows.value();
  const Tensor all = context.empty({x.rows(), rows.dim(0)}, logits.dtype(), Category::workspace);
  context.run(MatMul{.a = x, .b = rows, .c = all, .transpose_b = true});
  for (const TokenRows::Run& run : of.runs)
    copy_columns(context, {all, run.row, all.dim(1)}, {logits, run.column, logits.dim(-1)}, x.rows(), run.count);
}

void token_logits_backward(const Context& context, const Tensor& x, const Tensor& d_logits, const Weight& table,
                           const TokenRows& of, const GradSink& d_rows, const Tensor& dx) {
  const Tensor d = context.empty({x.rows(), of.rows.shape()[0]}, d_logits.dtype(), Category::workspace);
  context.zero(d);
  for (const TokenRows::Run& run : of.runs)
    copy_columns(context, {d_logits, run.column, d_logits.dim(-1)}, {d, run.row, d.dim(1)}, x.rows(), run.count);
  if (d_rows)
    context.run(MatMul{.a = d, .b = x, .c = d_rows.into, .transpose_a = true, .accumulate = d_rows.accumulate});
  if (dx && !of.runs.empty())
    context.run(MatMul{.a = d, .b = changes_of(context, table, of), .c = dx, .accumulate = true});
}

}  // namespace nought
