// What visit() says of an operation is complete, and it is true.
#include "nought/kernels/operation.h"

#include <algorithm>
#include <set>

#include "support/kernel_test.h"
#include "support/operation_samples.h"

#include "nought/kernels/ops.h"

namespace nought::operation_test {
namespace {

using namespace test;

// --- visit() lists every member ---

/// Converts to any member in unevaluated code.
struct Anything {
  template <class T>
  operator T() const;
};

/// The members of an aggregate.
template <class T, class... Known>
constexpr size_t count_members() {
  if constexpr (requires { T{Known{}..., Anything{}}; }) {
    return count_members<T, Known..., Anything>();
  } else {
    return sizeof...(Known);
  }
}

/// Notes the place of each member that visit() names.
struct Places {
  std::vector<std::string> names;
  std::vector<const void*> places;

  template <class T>
  void operator()(std::string_view name, const T& member, const Use& /*use*/) {
    (*this)(name, member);
  }
  void operator()(std::string_view name, const StridedRows& rows, const Use& /*use*/) { (*this)(name, rows.base); }
  template <class T>
  void operator()(std::string_view name, const T& member) {
    names.emplace_back(name), places.push_back(&member);
  }
};

/// What is wrong with the list of a struct; empty if it names each member once.
template <class T>
std::string fault_of_list() {
  const T object{};
  Places listed;
  object.visit(listed);
  const auto* begin = reinterpret_cast<const std::byte*>(&object);
  for (size_t i = 0; i < listed.names.size(); ++i) {
    const auto* place = static_cast<const std::byte*>(listed.places[i]);
    if (place < begin || place >= begin + sizeof(T)) return listed.names[i] + " is no member";
  }
  const size_t members = count_members<T>();
  if (std::set<const void*>(listed.places.begin(), listed.places.end()).size() != listed.places.size())
    return "a member is named twice";
  if (std::set<std::string>(listed.names.begin(), listed.names.end()).size() != listed.names.size())
    return "a name is there twice";
  return listed.names.size() == members ? "" : fmt::format("{} of {} members are named", listed.names.size(), members);
}

struct Forgetful {
  Tensor x, y;
  double eps = 1;
  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("eps", eps);
  }
};
struct Doubled {
  Tensor x, y;
  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("y", x, kWrites);
  }
};
struct Silent {
  Tensor x;
};

TEST(Operation, every_operation_names_each_of_its_members_once) {
#define NOUGHT_EXPECT(Op) EXPECT_EQ(fault_of_list<Op>(), "") << #Op;
  NOUGHT_OPERATIONS(NOUGHT_EXPECT)
#undef NOUGHT_EXPECT
  EXPECT_EQ(fault_of_list<AttentionShape>(), "");
  EXPECT_EQ(fault_of_list<RouterRule>(), "");
}

TEST(Operation, a_list_that_is_not_complete_is_found) {
  EXPECT_EQ(fault_of_list<Forgetful>(), "2 of 3 members are named");
  EXPECT_EQ(fault_of_list<Doubled>(), "a member is named twice");
}

/// Whether visit() may name a T without saying how it is used.
template <class T>
concept PassesAsParameter = requires(detail::Operands<detail::Nothing> v, const T& value) {
  v("name", value);
};

TEST(Operation, the_compiler_refuses_an_operation_without_a_list_and_a_tensor_without_a_role) {
  static_assert(Visitable<MatMul> && !Visitable<Silent>);
  static_assert(PassesAsParameter<double> && PassesAsParameter<RouterRule> && PassesAsParameter<AttentionShape>);
  static_assert(!PassesAsParameter<Tensor> && !PassesAsParameter<Heads> && !PassesAsParameter<std::vector<Tensor>>);
}

// --- what it says of each tensor ---

class OperandTest : public KernelTest {};

TEST_F(OperandTest, bytes_count_once_for_reading_and_once_for_writing) {
  const Tensor x = empty({4, 6}, DType::bf16);
  const auto bytes = [&](const Use& use) { return Operand{"x", x, use}.bytes_moved(); };
  EXPECT_EQ(bytes(kReads), 48);
  EXPECT_EQ(bytes(kWrites), 48);
  EXPECT_EQ(bytes(kWrites.adding(false)), 48);
  EXPECT_EQ(bytes(kWrites.adding(true)), 96);
  EXPECT_EQ(bytes(kUpdates), 96);
  EXPECT_EQ(bytes(kScratch), 96);
  EXPECT_EQ(bytes(kReads.of_rows(3)), 36);
  EXPECT_EQ(bytes(kReads.of_rows(0)), 0);
  EXPECT_EQ((Operand{"x", Tensor{}, kReads.if_defined()}.bytes_moved()), 0);
}

TEST_F(OperandTest, rows_of_a_wider_tensor_count_what_they_cover) {
  const Heads heads{.base = empty({3, 20}, DType::f32), .offset = 6, .token_stride = 20, .head_stride = 5};
  EXPECT_EQ((Operand{"x", heads.base, kReads, heads.rows(3, 2, 4)}.bytes_moved()), 4 * 3 * 2 * 4);
  EXPECT_EQ((Operand{"x", heads.base, kUpdates, heads.rows(3, 2, 4, /*used=*/2)}.bytes_moved()), 2 * 4 * 3 * 2 * 2);
  EXPECT_EQ(heads.rows(3, 2, 4).row(1).raw(), heads.base.flat(26, 27).raw());
  EXPECT_EQ(heads.rows(3, 2, 4).row(1).numel(), 9);
}

TEST_F(OperandTest, a_result_may_have_another_name_than_the_operand) {
  const Tensor x = empty({1}, DType::f32);
  EXPECT_EQ((Operand{"x", x, kUpdates}.result_name()), "x");
  EXPECT_EQ((Operand{"x", x, kUpdates.becoming("its square")}.result_name()), "its square");
}

// --- roles are true ---

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const Tensor& x) { return {x.raw(), x.raw() + x.bytes()}; }

/// What the operation covers of an operand.
Bytes covered_bytes(const Operand& operand) {
  if (!operand.rows) return bytes_of(operand.tensor);
  Bytes all;
  for (int64_t r = 0; r < operand.rows->count; ++r)
    for (const std::byte byte : bytes_of(operand.rows->row(r))) all.push_back(byte);
  return all;
}

std::vector<Operand> operands_of(const AnyOperation& op) {
  std::vector<Operand> operands;
  for_each_operand(op, [&](const Operand& operand) {
    if (operand.tensor) operands.push_back(operand);  // scales are there beside codes alone
  });
  return operands;
}

/// What each operand's tensor holds.
std::vector<Bytes> contents_of(const std::vector<Operand>& operands) {
  std::vector<Bytes> contents;
  for (const Operand& operand : operands) contents.push_back(bytes_of(operand.tensor));
  return contents;
}

void restore(const std::vector<Operand>& operands, const std::vector<Bytes>& contents) {
  for (size_t i = 0; i < operands.size(); ++i)
    std::copy(contents[i].begin(), contents[i].end(), operands[i].tensor.raw());
}

/// Puts other finite values where the operation writes.
void change(const Operand& operand) {
  const auto change_all = [](const Tensor& x) {
    visit_dtype(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::span<T> values = x.span<T>();
      std::rotate(values.begin(), values.begin() + 1, values.end());
      const auto first = static_cast<float>(values[0]);
      values[0] = static_cast<T>(first < 100 ? first + 3 : first - 3);  // codes of 8 bits stay in their range
    });
  };
  if (!operand.rows) return change_all(operand.tensor);
  for (int64_t r = 0; r < operand.rows->count; ++r) change_all(operand.rows->row(r));
}

void expect_true_roles(const AnyOperation& op) {
  SCOPED_TRACE(operation_name(op));
  const std::vector<Operand> operands = operands_of(op);
  const std::vector<Bytes> before = contents_of(operands);
  run(op);
  std::vector<Bytes> results;
  bool writes = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    results.push_back(covered_bytes(operands[i]));
    writes = writes || operands[i].use.writes();
    if (!operands[i].use.writes()) {
      EXPECT_EQ(bytes_of(operands[i].tensor), before[i]) << operands[i].name << " is only read";
    }
  }
  EXPECT_TRUE(writes) << "an operation without a result";
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].use.writes()) continue;
    restore(operands, before);
    change(operands[i]);
    run(op);
    if (operands[i].use.reads()) {
      EXPECT_NE(covered_bytes(operands[i]), results[i]) << operands[i].name << " is updated, so what it held counts";
    } else {
      EXPECT_EQ(covered_bytes(operands[i]), results[i]) << operands[i].name << " is overwritten, what it held is gone";
    }
  }
}

class Roles : public KernelTest {};

TEST_F(Roles, what_is_read_stays_and_what_is_overwritten_does_not_count) {
  for_each_sample(*memory_, expect_true_roles);
}

TEST_F(Roles, with_accumulate_results_are_added_to) {
  for_each_sample(*memory_, [](const AnyOperation& op) { expect_true_roles(*op.adding()); });
}

TEST_F(Roles, nothing_is_written_beside_the_rows_of_a_wider_tensor) {
  for_each_sample(*memory_, [](const AnyOperation& op) {
    SCOPED_TRACE(operation_name(op));
    const std::vector<Operand> operands = operands_of(op);
    std::vector<Bytes> expected = contents_of(operands);
    run(op);
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      if (!operand.rows) continue;
      for (int64_t r = 0; r < operand.rows->count; ++r) {
        const Tensor row = operand.rows->row(r);
        std::copy_n(row.raw(), row.bytes(), expected[i].begin() + (row.raw() - operand.tensor.raw()));
      }
      EXPECT_EQ(bytes_of(operand.tensor), expected[i]) << operand.name;
    }
  });
}

}  // namespace
}  // namespace nought::operation_test
