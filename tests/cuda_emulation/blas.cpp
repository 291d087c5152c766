// cuBLASLt without a GPU: the functions that blas.h calls, behind the same table, on the emulated streams.
//
// It refuses what the library refuses: layouts that do not fit, combinations of dtypes, workspace that is missing or
// lies badly, an algorithm of another shape. And it is as free as the library is: which order it adds in depends on
// the sizes, dtypes, the alignment that was promised and the workspace that it may use, so that a caller who lets one
// of them vary gets other bits. Where rounded partial sums are allowed, it rounds them.
#include "nought/cuda/backend/blas.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "cuda_emulation/control.h"
#include "cuda_runtime.h"

namespace nought::emulation {
namespace {

using namespace cuda::blas;

struct DescOf {
  int compute = 0, scale = 0;
  int32_t transpose_a = 0, transpose_b = 0, epilogue = kNoEpilogue;
  const void* bias = nullptr;
};
struct LayoutOf {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
  friend bool operator==(const LayoutOf&, const LayoutOf&) = default;
};
struct PreferenceOf {
  uint64_t workspace = 0;
  uint32_t reductions = kInPlace | kComputeType | kOutputType;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

/// What an algorithm is: how it cuts the sum, and the product that it was chosen for.
struct Choice {
  uint64_t chunk = 0;   // elements of the sum that are added before they join the others
  uint64_t splits = 1;  // blocks that share a sum
  uint64_t reduction = 0;
  uint64_t alignment[4] = {};
  uint64_t product = 0;  // a hash of it
};
static_assert(sizeof(Choice) == sizeof(Algorithm));

std::atomic<int> heuristics = 0;  // asked so far

size_t bytes_of(int type) { return type == kF64 ? 8 : type == kF32 ? 4 : 2; }

struct Operands {
  const DescOf& desc;
  const LayoutOf &a, &b, &c, &d;
  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const { return desc.transpose_a == kTransposed ? a.rows : a.columns; }
};

uint64_t hash_of(const Operands& each) {
  uint64_t hash = 1469598103934665603u;
  const LayoutOf* const layouts[] = {&each.a, &each.b, &each.c, &each.d};
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (const LayoutOf* layout : layouts)
    mix(static_cast<uint64_t>(layout->type)), mix(layout->rows), mix(layout->columns);
  mix(static_cast<uint64_t>(each.desc.transpose_a)), mix(static_cast<uint64_t>(each.desc.transpose_b));
  mix(static_cast<uint64_t>(each.desc.epilogue));
  return hash ^ hash >> 29;
}

int status_of(const Operands& each) {
  const DescOf& desc = each.desc;
  for (const LayoutOf* layout : {&each.a, &each.b, &each.c, &each.d})
    if (layout->rows == 0 || layout->columns == 0 || layout->leading < static_cast<int64_t>(layout->rows))
      return kInvalidValue;
  const uint64_t b_depth = desc.transpose_b == kTransposed ? each.b.columns : each.b.rows;
  const uint64_t rows = desc.transpose_a == kTransposed ? each.a.columns : each.a.rows;
  const uint64_t columns = desc.transpose_b == kTransposed ? each.b.rows : each.b.columns;
  if (rows != each.m() || columns != each.n() || b_depth != each.k() || each.c != each.d) return kInvalidValue;
  const int in = each.a.type, out = each.d.type;
  const bool wide = in == kF64;
  const bool pairs = in == each.b.type && (out == in || (!wide && out == kF32));
  const bool computes = desc.compute == (wide ? kCompute64 : kCompute32) && desc.scale == (wide ? kF64 : kF32);
  if (!pairs || !computes || (wide && desc.epilogue != kNoEpilogue)) return kNotSupported;
  return kSuccess;
}

template <class T>
std::vector<T> taken(const void* from, const LayoutOf& layout, bool transposed) {
  std::vector<T> values(layout.rows * layout.columns);
  const auto read = [&]<class E>(const E* x) {
    for (uint64_t j = 0; j < layout.columns; ++j)
      for (uint64_t i = 0; i < layout.rows; ++i)
        values[transposed ? j + i * layout.columns : i + j * layout.rows] =
            static_cast<T>(x[i + j * static_cast<uint64_t>(layout.leading)]);
  };
  switch (layout.type) {
    case kF64:
      read(static_cast<const double*>(from));
      break;
    case kF32:
      read(static_cast<const float*>(from));
      break;
    case kBf16:
      read(static_cast<const bf16_t*>(from));
      break;
    default:
      read(static_cast<const f16_t*>(from));
  }
  return values;
}

float rounded_to(int type, float value) {
  return type == kBf16 ? float{bf16_t(value)} : type == kF16 ? float{f16_t(value)} : value;
}

/// d = alpha op(a) op(b) + beta c + bias, all column-major: d[i, j] = sum over p of a[p, i] b[p, j].
template <class T>
struct Product {
  DescOf desc;
  LayoutOf a_layout, b_layout, d_layout;
  Choice choice;
  T alpha, beta;
  const void *a, *b;
  void *d, *workspace;

  void operator()() const {
    const uint64_t m = d_layout.rows, n = d_layout.columns;
    const std::vector<T> left = taken<T>(a, a_layout, desc.transpose_a != kTransposed);
    const std::vector<T> right = taken<T>(b, b_layout, desc.transpose_b == kTransposed);
    const uint64_t k = left.size() / m, part = (k + choice.splits - 1) / choice.splits;
    std::vector<T> sums(m * n);
    T* const parts = choice.splits > 1 ? static_cast<T*>(workspace) : sums.data();
    for (uint64_t split = 0; split < choice.splits; ++split)
      for (uint64_t j = 0; j < n; ++j)
        for (uint64_t i = 0; i < m; ++i)
          parts[(split * n + j) * m + i] =
              dot(left.data() + i * k, right.data() + j * k, split * part, std::min(k, (split + 1) * part));
    for (uint64_t split = 0; choice.splits > 1 && split < choice.splits; ++split)
      for (uint64_t i = 0; i < m * n; ++i) {
        sums[i] += parts[split * m * n + i];
        if (choice.reduction != kComputeType)
          sums[i] = static_cast<T>(rounded_to(d_layout.type, static_cast<float>(sums[i])));
      }
    write(sums);
  }

  T dot(const T* x, const T* y, uint64_t begin, uint64_t end) const {
    T sum = 0;
    for (uint64_t p = begin; p < end;) {
      T chunk = 0;
      for (const uint64_t stop = std::min(end, p + choice.chunk); p < stop; ++p) chunk += x[p] * y[p];
      sum += chunk;
    }
    return sum;
  }

  void write(const std::vector<T>& sums) const {
    const uint64_t m = d_layout.rows;
    const std::vector<T> before = beta != 0 ? taken<T>(d, d_layout, false) : std::vector<T>(sums.size());
    const LayoutOf column{d_layout.type, m, 1, static_cast<int64_t>(m)};
    const std::vector<T> bias = desc.epilogue == kAddBias ? taken<T>(desc.bias, column, false) : std::vector<T>(m);
    const auto put = [&]<class E>(E* x) {
      for (uint64_t i = 0; i < sums.size(); ++i)
        x[i % m + i / m * static_cast<uint64_t>(d_layout.leading)] =
            static_cast<E>(alpha * sums[i] + beta * before[i] + bias[i % m]);
    };
    if constexpr (std::is_same_v<T, double>) {
      put(static_cast<double*>(d));
    } else if (d_layout.type == kF32) {
      put(static_cast<float*>(d));
    } else if (d_layout.type == kBf16) {
      put(static_cast<bf16_t*>(d));
    } else {
      put(static_cast<f16_t*>(d));
    }
  }
};

template <class T>
int enqueue(const Operands& each, const Choice& choice, const void* alpha, const void* beta, const void* a,
            const void* b, void* d, void* workspace, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  const Product<T> product{
      each.desc, each.a, each.b, each.d,   choice, *static_cast<const T*>(alpha), *static_cast<const T*>(beta),
      a,         b,      d,      workspace};
  return launch(config, [product] { product(); }) == cudaSuccess ? kSuccess : kInvalidValue;
}

// --- the functions of the table ---

template <class Of>
int create_of(void** made) {
  *made = new Of;
  return kSuccess;
}
template <class Of>
int destroy_of(void* made) {
  delete static_cast<Of*>(made);
  return kSuccess;
}
template <class T>
int take(T& into, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return kInvalidValue;
  std::memcpy(&into, value, bytes);
  return kSuccess;
}

int create_desc(void** made, int compute, int scale) {
  *made = new DescOf{.compute = compute, .scale = scale};
  return kSuccess;
}
int set_desc(void* made, int attribute, const void* value, size_t bytes) {
  DescOf& desc = *static_cast<DescOf*>(made);
  switch (attribute) {
    case kTransposeA:
      return take(desc.transpose_a, value, bytes);
    case kTransposeB:
      return take(desc.transpose_b, value, bytes);
    case kEpilogue:
      return take(desc.epilogue, value, bytes);
    case kBiasPointer:
      return take(desc.bias, value, bytes);
    default:
      return kInvalidValue;
  }
}
int create_layout(void** made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *made = new LayoutOf{type, rows, columns, leading};
  return kSuccess;
}
int set_preference(void* made, int attribute, const void* value, size_t bytes) {
  PreferenceOf& preference = *static_cast<PreferenceOf*>(made);
  if (attribute == kMaxWorkspace) return take(preference.workspace, value, bytes);
  if (attribute == kReductions) return take(preference.reductions, value, bytes);
  if (attribute < kAlignmentA || attribute > kAlignmentD) return kInvalidValue;
  return take(preference.alignment[attribute - kAlignmentA], value, bytes);
}

int find_algorithm(void* /*handle*/, void* desc, void* a, void* b, void* c, void* d, void* preference, int asked,
                   Heuristic* results, int* found) {
  ++heuristics;
  const Operands each{*static_cast<DescOf*>(desc), *static_cast<LayoutOf*>(a), *static_cast<LayoutOf*>(b),
                      *static_cast<LayoutOf*>(c), *static_cast<LayoutOf*>(d)};
  const PreferenceOf& by = *static_cast<PreferenceOf*>(preference);
  *found = 0;
  if (const int status = status_of(each); status != kSuccess || asked < 1) return status;
  const uint64_t hash = hash_of(each);
  Choice choice{.product = hash};
  std::copy_n(by.alignment, 4, choice.alignment);
  choice.chunk = uint64_t{4} << ((hash + by.alignment[0] / 16 + by.alignment[3] / 16 + (by.workspace >> 20)) % 4);
  constexpr uint64_t kLong = 256, kMost = 4;
  const size_t part = each.m() * each.n() * std::max<size_t>(bytes_of(each.d.type), 4);
  while (choice.splits < kMost && each.k() / choice.splits > kLong && part * choice.splits * 2 <= by.workspace)
    choice.splits *= 2;
  if (choice.splits > 1)
    choice.reduction = by.reductions & kOutputType ? kOutputType : by.reductions & kInPlace ? kInPlace : kComputeType;
  if (choice.splits > 1 && (by.reductions & choice.reduction) == 0) choice.splits = 1;
  *results = Heuristic{};
  results->workspace = choice.splits > 1 ? part * choice.splits : 0;
  results->algorithm = std::bit_cast<Algorithm>(choice);
  *found = 1;
  return kSuccess;
}

int multiply(void* /*handle*/, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
             void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
             const Algorithm* algorithm, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Operands each{*static_cast<DescOf*>(desc), *static_cast<LayoutOf*>(a_layout), *static_cast<LayoutOf*>(b_layout),
                      *static_cast<LayoutOf*>(c_layout), *static_cast<LayoutOf*>(d_layout)};
  if (const int status = status_of(each); status != kSuccess) return status;
  const auto choice = std::bit_cast<Choice>(*algorithm);
  if (choice.product != hash_of(each) || c != d) return kNotSupported;
  const auto lies = [](const void* address, uint64_t alignment) {
    return address != nullptr && reinterpret_cast<uintptr_t>(address) % alignment == 0;
  };
  if (!lies(a, choice.alignment[0]) || !lies(b, choice.alignment[1]) || !lies(d, choice.alignment[3]))
    return kInvalidValue;
  if (each.desc.epilogue == kAddBias && !lies(each.desc.bias, choice.alignment[3])) return kInvalidValue;
  constexpr uint64_t kWorkspaceAlignment = 256;
  const size_t needed =
      choice.splits > 1 ? each.m() * each.n() * std::max<size_t>(bytes_of(each.d.type), 4) * choice.splits : 0;
  if (workspace_bytes < needed || (needed > 0 && !lies(workspace, kWorkspaceAlignment))) return kInvalidValue;
  return each.a.type == kF64 ? enqueue<double>(each, choice, alpha, beta, a, b, d, workspace, stream)
                             : enqueue<float>(each, choice, alpha, beta, a, b, d, workspace, stream);
}

}  // namespace

int heuristics_asked() { return heuristics; }

}  // namespace nought::emulation

namespace nought::cuda {

const BlasFunctions& blas_functions() {
  using namespace emulation;
  static const BlasFunctions functions{.create = create_of<int>,
                                       .destroy = destroy_of<int>,
                                       .desc_create = create_desc,
                                       .desc_set = set_desc,
                                       .desc_destroy = destroy_of<DescOf>,
                                       .layout_create = create_layout,
                                       .layout_destroy = destroy_of<LayoutOf>,
                                       .preference_create = create_of<PreferenceOf>,
                                       .preference_set = set_preference,
                                       .preference_destroy = destroy_of<PreferenceOf>,
                                       .heuristic = find_algorithm,
                                       .multiply = multiply};
  return functions;
}

}  // namespace nought::cuda
