#include "nought/autograd/unit.h"

#include "support/local_store.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought {
namespace {

using test::message_of;
using testing::HasSubstr;

TEST(Unit, parameters_lie_one_behind_the_other) {
  Unit unit("block");
  const ParameterView a = unit.add("a", {2, 3}, Init::normal(1)), b = unit.add("b", {4}, Init::ones(), false);
  EXPECT_EQ(unit.numel(), 10);
  EXPECT_EQ(a.range(), (Interval{0, 6}));
  EXPECT_EQ(b.range(), (Interval{6, 10}));
  EXPECT_TRUE(unit.parameters()[0].decay);
  EXPECT_FALSE(unit.parameters()[1].decay);
  EXPECT_EQ(Unit("empty").numel(), 0);
}

TEST(Unit, neighbours_are_one_tensor_where_they_are_joined) {
  const Context context = Context::reference();
  Unit unit("block");
  const ParameterView q = unit.add("q", {4, 3}, Init::zeros()), k = unit.add("k", {2, 3}, Init::zeros());
  const ParameterView both = unit.join(q, k, {6, 3});
  EXPECT_THROW(unit.join(q, k, {5, 3}), ShapeError);
  test::LocalStore store(context, unit, DType::f32);
  EXPECT_EQ(both.value().shape(), (Shape{6, 3}));
  EXPECT_EQ(both.value().slice(0, 4).to_vector<float>(), q.value().to_vector<float>());
  EXPECT_EQ(both.value().slice(4, 6).to_vector<float>(), k.value().to_vector<float>());
  const GradSink sink = both.gradient();
  EXPECT_EQ(sink.into.shape(), (Shape{6, 3}));
  EXPECT_FALSE(sink.accumulate);
  EXPECT_TRUE(both.gradient().accumulate) << "the second writer adds";
}

TEST(Unit, without_storage_there_are_no_values_and_with_it_no_new_parameters) {
  Unit unit("block.3");
  const ParameterView a = unit.add("a", {2}, Init::zeros());
  EXPECT_THAT(message_of<Error>([&] { a.value(); }), HasSubstr("block.3"));
  const Context context = Context::reference();
  test::LocalStore store(context, unit, DType::f32);
  EXPECT_THAT(message_of<Error>([&] { unit.add("late", {2}, Init::zeros()); }), HasSubstr("late"));
}

TEST(Unit, a_view_has_the_shape_of_its_elements) {
  Unit unit("block");
  unit.add("a", {2, 3}, Init::zeros());
  EXPECT_THROW(ParameterView(unit, 0, 0, {7}), ShapeError);
  EXPECT_NO_THROW(ParameterView(unit, 0, 0, {3, 2}));
  EXPECT_FALSE(ParameterView().defined());
}

}  // namespace
}  // namespace nought
