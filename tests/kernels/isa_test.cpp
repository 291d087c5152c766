// The cap of instruction sets holds for own kernels and Highway's alike.
#include "nought/kernels/isa.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "nought/kernels/cpu/amx.h"
#include "nought/kernels/cpu/cpu.h"

namespace nought::isa_test {
namespace {

constexpr Isa kAll[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx_emulated, Isa::amx};

/// Skips all tests of a process whose cap lowers nothing: other processes run them.
class CapThatLowers : public ::testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv("NOUGHT_ISA") != nullptr && isa() == fastest_isa())
      GTEST_SKIP() << "NOUGHT_ISA does not lower what this machine has: this pass says nothing new";
  }
};
[[maybe_unused]] const auto* const cap_that_lowers = ::testing::AddGlobalTestEnvironment(new CapThatLowers);

TEST(Isa, names_are_read_back) {
  for (const Isa each : kAll) EXPECT_EQ(isa_named(name_of(each)), each);
  EXPECT_EQ(isa_named("avx1024"), std::nullopt);
  EXPECT_EQ(isa_named(""), std::nullopt);
}

TEST(Isa, what_is_used_is_what_the_cpu_has_under_the_cap) {
  const char* text = std::getenv("NOUGHT_ISA");
  const std::optional<Isa> wish = text == nullptr ? std::nullopt : isa_named(text);
  EXPECT_NE(cpu_isa(), Isa::amx_emulated);
  EXPECT_LE(fastest_isa(), cpu_isa());
  const bool names_bf16 = wish == Isa::avx512_bf16 || wish == Isa::amx_emulated;
  EXPECT_EQ(isa(),
            names_bf16 && cpu_isa() >= Isa::avx512_bf16 ? *wish : std::min(wish.value_or(Isa::amx), fastest_isa()));
  EXPECT_EQ(has_bf16_units(), isa() >= Isa::avx512_bf16);
  EXPECT_EQ(cpu::tile_unit() == cpu::TileUnit::none, isa() < Isa::amx_emulated);
}

TEST(Isa, highway_obeys_the_cap) {
  const int64_t targets = hwy::SupportedTargets();
  EXPECT_EQ((targets & HWY_AVX3) != 0, isa() >= Isa::avx512);
  EXPECT_EQ((targets & HWY_AVX2) != 0, isa() >= Isa::avx2);
}

TEST(Isa, the_cpu_says_what_it_has) {
  const std::vector<std::string> features = cpu_features();
  const auto has = [&](const char* feature) {
    return std::find(features.begin(), features.end(), feature) != features.end();
  };
  EXPECT_EQ(has("avx2") && has("fma"), cpu_isa() >= Isa::avx2);
  EXPECT_EQ(has("avx512f") && has("avx512bw"), cpu_isa() >= Isa::avx512);
  EXPECT_EQ(has("avx512_bf16"), cpu_isa() >= Isa::avx512_bf16);
  EXPECT_EQ(has("amx_bf16"), cpu_isa() == Isa::amx);
}

TEST(Isa, products_say_who_multiplies_bf16) {
  EXPECT_EQ(cpu::bf16_products(), isa() == Isa::amx            ? "AMX tiles"
                                  : isa() == Isa::amx_emulated ? "emulated AMX tiles"
                                  : has_bf16_units()           ? "AVX512-BF16 dot products"
                                                               : "fp32 multiply-adds");
}

}  // namespace
}  // namespace nought::isa_test
