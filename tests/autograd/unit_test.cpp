#include "nought/autograd/unit.h"

#include "support/local_store.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::unit_test {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Unit, parameters_lie_one_behind_the_other_each_at_a_multiple_of_16_bytes) {
  Unit unit("block");
  const ParameterView a = unit.add("a", {2, 3}, Init::normal(1)), b = unit.add("b", {4}, Init::ones()),
                      c = unit.add("c", {2, 8}, Init::ones()), d = unit.add("d", {1}, Init::ones());
  EXPECT_EQ(unit.numel(), 27) << "the room between them does not count";
  EXPECT_EQ(a.range(), (Interval{0, 6}));
  EXPECT_EQ(b.range(), (Interval{16, 20}));
  EXPECT_EQ(c.range(), (Interval{32, 48}));
  EXPECT_EQ(d.range(), (Interval{48, 49})) << "nothing is lost where nothing must be";
  ASSERT_EQ(unit.segments().size(), 1u);
  EXPECT_EQ(unit.segments()[0].size, 49);
  EXPECT_EQ(Unit("empty").numel(), 0);
  EXPECT_TRUE(Unit("empty").segments().empty());
}

TEST(Unit, a_role_says_what_decays_unless_the_declaration_does) {
  using Role = ParameterRole;
  Unit unit("block");
  for (const Role role : {Role::matrix, Role::expert, Role::embedding, Role::head, Role::router}) {
    unit.add("weight", {2, 2}, Init::zeros(), role);
    EXPECT_TRUE(unit.parameters().back().decay && unit.parameters().back().trainable);
  }
  for (const Role role : {Role::norm, Role::bias, Role::sink, Role::choice_bias}) {
    unit.add("weight", {2, 2}, Init::zeros(), role);
    EXPECT_FALSE(unit.parameters().back().decay);
    EXPECT_EQ(unit.parameters().back().trainable, role != Role::choice_bias);
  }
  unit.add("weight", {2}, Init::zeros(), {.role = Role::norm, .decay = true});
  EXPECT_TRUE(unit.parameters().back().decay);
}

TEST(Unit, what_is_trained_and_what_is_not_lie_in_segments_of_their_own) {
  Unit unit("block");
  for (const char* name : {"a", "b", "c", "d"}) unit.add(name, {5}, Init::zeros());
  const auto choose = [&](const std::string& trained) {
    unit.choose_trained([&](const Parameter& parameter) { return trained.find(parameter.name) != std::string::npos; });
  };
  choose("bd");
  ASSERT_EQ(unit.segments().size(), 2u);
  EXPECT_FALSE(unit.segments()[0].trainable);
  EXPECT_THAT(unit.segments()[0].parameters, ElementsAre(0, 2));
  EXPECT_TRUE(unit.segments()[1].trainable);
  EXPECT_THAT(unit.segments()[1].parameters, ElementsAre(1, 3));
  EXPECT_EQ(unit.parameters()[3].range, (Interval{16, 21}));
  EXPECT_EQ(unit.parameters()[3].segment, 1u);
  EXPECT_TRUE(unit.trained());
  choose("");
  EXPECT_EQ(unit.segments().size(), 1u);
  EXPECT_FALSE(unit.trained());
  choose("abcd");
  EXPECT_EQ(unit.segments().size(), 1u) << "as if nothing had been frozen";
  EXPECT_EQ(unit.parameters()[3].range, (Interval{48, 53}));
}

TEST(Unit, what_is_not_trained_may_have_a_dtype_and_then_a_segment_of_its_own) {
  Unit unit("block");
  unit.add("a", {5}, Init::zeros());
  unit.add("codes", {5}, Init::zeros(), {.trainable = false, .dtype = DType::bf16});
  unit.add("frozen", {5}, Init::zeros(), {.trainable = false});
  ASSERT_EQ(unit.segments().size(), 3u);
  EXPECT_EQ(unit.segments()[1].dtype, DType::bf16);
  EXPECT_EQ(unit.segments()[2].dtype, std::nullopt);
  EXPECT_THAT(message_of<Error>([&] { unit.add("late", {2}, Init::zeros(), {.dtype = DType::bf16}); }),
              HasSubstr("late"));
}

TEST(Unit, frozen_parameters_have_no_gradient) {
  const Context context = Context::reference();
  Unit unit("block");
  const ParameterView a = unit.add("a", {2}, Init::zeros()), b = unit.add("b", {2}, Init::zeros());
  unit.choose_trained([](const Parameter& parameter) { return parameter.name == "b"; });
  test::LocalStore store(context, unit, DType::f32);
  EXPECT_FALSE(a.trained());
  EXPECT_FALSE(a.gradient(store));
  EXPECT_TRUE(b.trained());
  EXPECT_TRUE(b.gradient(store));
  EXPECT_FALSE(ParameterView().trained());
  EXPECT_THROW(unit.choose_trained([](const Parameter&) { return true; }), Error) << "it is in use";
}

TEST(Unit, joined_parameters_touch_and_are_trained_together) {
  Unit unit("block");
  const ParameterView q = unit.add("q", {4, 3}, Init::zeros()), k = unit.add("k", {2, 3}, Init::zeros()),
                      o = unit.add("o", {2}, Init::zeros());
  EXPECT_EQ(k.range(), (Interval{16, 22}));
  unit.join(q, k, {6, 3});
  EXPECT_EQ(k.range(), (Interval{12, 18}));
  EXPECT_EQ(o.range(), (Interval{32, 34}));
  EXPECT_THAT(message_of<ConfigError>([&] { unit.choose_trained([](const Parameter& p) { return p.name != "q"; }); }),
              AllOf(HasSubstr("q and k"), HasSubstr("train both or freeze both")));
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
  const GradSink sink = both.gradient(store);
  EXPECT_EQ(sink.into.shape(), (Shape{6, 3}));
  EXPECT_FALSE(sink.accumulate);
  EXPECT_TRUE(both.gradient(store).accumulate) << "the second writer adds";
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
}  // namespace nought::unit_test
