// The extents of a tensor: up to six dimensions, held by value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "nought/base/error.h"

namespace nought {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  // a scalar: rank 0, one element
  Shape(std::initializer_list<int64_t> extents) {
    for (int64_t extent : extents) push_back(extent);
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }

  int64_t numel() const {
    int64_t count = 1;
    for (int64_t extent : *this) count *= extent;
    return count;
  }
  void push_back(int64_t extent) {
    require<ShapeError>(rank_ < kMaxRank, "a tensor has at most {} dimensions", kMaxRank);
    require<ShapeError>(extent >= 0, "negative extent {} in a shape", extent);
    extents_[static_cast<size_t>(rank_++)] = extent;
  }
  std::string str() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
    return text + "]";
  }
  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace nought
