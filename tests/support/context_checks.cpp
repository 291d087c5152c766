#include "support/context_checks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "support/local_store.h"

namespace nought::test {
namespace {

template <class Function>
ContextResults results(const Context& context, const ContextCase& of, const std::vector<int32_t>& tokens,
                       const Function& function) {
  Unit unit("block");
  AttentionOptions options = of.options();
  std::optional<LocalStore> store;
  if (of.sinks) {
    options.sinks = unit.add("sinks", {of.heads.num_heads}, Init::zeros(), ParameterRole::sink);
    store.emplace(context, unit, of.dtype);
  }
  Tape tape(context);
  const Var qkv = tape.input(random_rows(context, tokens, of.heads.width(), of.dtype, of.seed));
  const Var out = function(tape, qkv, options);
  const Tensor d_out = random_rows(context, tokens, of.heads.out_width(), of.dtype, of.seed + 1);
  ContextResults results{context.to_host<double>(out.value), {}, {}};
  tape.backward(out, d_out);
  results.d_qkv = context.to_host<double>(tape.gradient(qkv));
  if (store) results.d_sinks = context.to_host<double>(store->gradient_of(unit, unit.parameters()[0]));
  return results;
}

/// How far sums in another order may be apart, relative to the largest value.
double tolerance_of(DType dtype) { return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-5 : 2e-2; }

void require_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                  const std::string& what) {
  require(found.size() == expected.size(), "{}: {} values, expected {}", what, found.size(), expected.size());
  double largest = 1;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i)
    require(std::abs(found[i] - expected[i]) <= tolerance * largest, "{}[{}] is {}, expected {}", what, i, found[i],
            expected[i]);
}

std::vector<double> rows_of(const std::vector<double>& all, const std::vector<int32_t>& tokens, int64_t width) {
  std::vector<double> rows;
  for (const int32_t token : tokens) {
    const auto begin = all.begin() + token * width;
    rows.insert(rows.end(), begin, begin + width);
  }
  return rows;
}

}  // namespace

std::vector<int32_t> all_tokens(const ContextCase& of) {
  std::vector<int32_t> all(static_cast<size_t>(of.rows * of.length));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  return all;
}

Tensor random_rows(const Context& context, const std::vector<int32_t>& tokens, int64_t width, DType dtype,
                   uint64_t seed) {
  const Tensor rows = context.empty({static_cast<int64_t>(tokens.size()), width}, dtype);
  visit_float(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> values;
    for (const int32_t token : tokens)
      for (int64_t i = 0; i < width; ++i)
        values.push_back(T(normal_at(seed, static_cast<uint64_t>(token * width + i))));
    context.upload<T>(values, rows);
  });
  return rows;
}

AttentionOptions ContextCase::options() const {
  return {.batch = rows,
          .length = length,
          .scale = 1 / std::sqrt(static_cast<double>(heads.head_dim)),
          .causal = causal,
          .window = window,
          .softcap = softcap,
          .spans = documents};
}

std::string ContextCase::str() const {
  return fmt::format(
      "{} rows of {} in {} documents, {} heads of {} and {} of {}{}, window {}, softcap {}{}{}, {}, seed {}", rows,
      length, documents.size(), heads.num_heads, heads.head_dim, heads.num_kv_heads, heads.value_dim(),
      heads.interleaved ? " interleaved" : "", window, softcap, sinks ? ", sinks" : "", causal ? "" : ", not causal",
      name_of(dtype), seed);
}

std::vector<AttentionSpan> random_documents(int64_t rows, int64_t length, int64_t most, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<AttentionSpan> documents;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int64_t> borders{0, length};
    for (auto more = static_cast<int64_t>(random() % static_cast<uint64_t>(most)); more > 0; --more)
      borders.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(length + 1)));
    std::sort(borders.begin(), borders.end());
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      const int64_t begin = row * length + borders[i], size = borders[i + 1] - borders[i];
      if (size > 0) documents.push_back({begin, size, begin, size});
    }
  }
  return documents;
}

ContextCase random_case(uint64_t seed, DType dtype) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t end) { return static_cast<int64_t>(random() % end); };
  ContextCase made{.dtype = dtype, .seed = seed};
  made.rows = 1 + below(3);
  made.length = std::vector<int64_t>{1, 3, 16, 37, 37, 40, 64}[static_cast<size_t>(below(7))];
  if (below(4) > 0) made.documents = random_documents(made.rows, made.length, 1 + below(6), seed);
  switch (below(4)) {
    case 0:  // grouped queries
      made.heads = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 8};
      break;
    case 1:
      made.heads = {.num_heads = 6, .num_kv_heads = 1, .head_dim = 4};
      break;
    case 2:  // latent heads
      made.heads = {.num_heads = 3, .num_kv_heads = 3, .head_dim = 12, .v_head_dim = 8};
      break;
    default:
      made.heads = {.num_heads = 3, .num_kv_heads = 3, .head_dim = 8, .interleaved = true};
  }
  made.causal = below(5) > 0;
  made.window = below(3) == 0 ? 1 + below(20) : 0;
  made.softcap = below(4) == 0 ? 5 : 0;
  made.sinks = below(3) == 0;
  return made;
}

ContextResults attend_whole(const Context& context, const ContextCase& of) {
  return results(context, of, all_tokens(of), [&](Tape& tape, const Var& qkv, const AttentionOptions& options) {
    return attention(tape, qkv, of.heads, options);
  });
}

ContextResults attend_part(const Context& context, const ContextCase& of, const ContextTokens& tokens) {
  return results(context, of, tokens.indices(tokens.ranks.rank),
                 [&](Tape& tape, const Var& qkv, const AttentionOptions& options) {
                   return context_attention(tape, qkv, of.heads, options, tokens);
                 });
}

ContextTokens context_tokens(Communicator& world, const ContextCase& of, ContextMethod method, int64_t gathered_heads) {
  ContextTokens tokens{.rows = of.rows, .length = of.length};
  tokens.ranks.ranks = world.size();
  tokens.ranks.rank = world.rank();
  tokens.ranks.method = method;
  tokens.ranks.gathered_heads = gathered_heads;
  tokens.ranks.group = &world;
  return tokens;
}

void check_context_attention(Communicator& world, const Context& context, const ContextCase& of, ContextMethod method,
                             int64_t gathered_heads) {
  const ContextTokens tokens = context_tokens(world, of, method, gathered_heads);
  const std::string what = fmt::format("{} ranks, method {}, {} heads at once, {}: ", world.size(),
                                       static_cast<int>(method), gathered_heads, of.str());
  const ContextResults whole = attend_whole(context, of);
  ContextResults part = attend_part(context, of, tokens);
  const ContextResults again = attend_part(context, of, tokens);
  require(part.out == again.out && part.d_qkv == again.d_qkv && part.d_sinks == again.d_sinks,
          "{}a second run has other bits", what);
  if (of.sinks) all_reduce_values(world, context, part.d_sinks);
  const std::vector<int32_t> own = tokens.indices(world.rank());
  const double tolerance = tolerance_of(of.dtype);
  require_near(part.out, rows_of(whole.out, own, of.heads.out_width()), tolerance, what + "out");
  require_near(part.d_qkv, rows_of(whole.d_qkv, own, of.heads.width()), tolerance, what + "d_qkv");
  require_near(part.d_sinks, whole.d_sinks, tolerance, what + "d_sinks");
}

}  // namespace nought::test
