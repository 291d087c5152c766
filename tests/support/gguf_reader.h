// A reader of GGUF 3 for tests, written from ggml's docs/gguf.md alone: it shares nothing with what writes the files.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace nought::test {

class GgufFile {
 public:
  struct Tensor {
    std::vector<uint64_t> dims;  // innermost first
    uint32_t type = 0;
    uint64_t offset = 0;  // from the start of the data
  };
  /// Numbers of any kind, or text; arrays have several.
  struct Value {
    uint32_t type = 0, element = 0;
    std::vector<double> numbers;
    std::vector<std::string> texts;
  };

  explicit GgufFile(std::string bytes) : bytes_(std::move(bytes)) {
    check(bytes_.substr(0, 4) == "GGUF", "magic");
    at_ = 4;
    check(take<uint32_t>() == 3, "version");
    const auto tensor_count = take<uint64_t>(), value_count = take<uint64_t>();
    for (uint64_t i = 0; i < value_count; ++i) {
      const std::string key = text();
      check(values.emplace(key, value()).second, "a key twice");
    }
    for (uint64_t i = 0; i < tensor_count; ++i) {
      const std::string name = text();
      Tensor tensor;
      tensor.dims.resize(take<uint32_t>());
      check(tensor.dims.size() <= 4, "more than four dimensions");
      for (uint64_t& dim : tensor.dims) dim = take<uint64_t>();
      tensor.type = take<uint32_t>();
      tensor.offset = take<uint64_t>();
      check(tensor.offset % 32 == 0, "alignment");
      check(tensors.emplace(name, tensor).second, "a tensor twice");
    }
    data_ = (at_ + 31) / 32 * 32;
    for (const auto& [name, tensor] : tensors)
      check(data_ + tensor.offset + bytes_of(tensor) <= bytes_.size(), "the end");
  }

  double number(const std::string& key) const { return values.at(key).numbers.at(0); }
  const std::string& string(const std::string& key) const { return values.at(key).texts.at(0); }

  /// The values in the order of the file, dequantised; of q8_0 with the step of each value's block.
  std::vector<double> read(const std::string& name, std::vector<double>* steps = nullptr) const {
    const Tensor& tensor = tensors.at(name);
    const char* from = bytes_.data() + data_ + tensor.offset;
    std::vector<double> all(numel(tensor));
    if (steps) steps->assign(all.size(), 0);
    for (size_t i = 0; i < all.size(); ++i) {
      if (tensor.type == 0) all[i] = load<float>(from + 4 * i);
      if (tensor.type == 1) all[i] = half(load<uint16_t>(from + 2 * i));
      if (tensor.type == 30) {
        const uint32_t bits = uint32_t{load<uint16_t>(from + 2 * i)} << 16;
        all[i] = load<float>(reinterpret_cast<const char*>(&bits));
      }
      if (tensor.type == 8) {
        const char* block = from + 34 * (i / 32);
        const double step = half(load<uint16_t>(block));
        all[i] = step * load<int8_t>(block + 2 + i % 32);
        if (steps) (*steps)[i] = step;
      }
    }
    return all;
  }

  std::map<std::string, Value> values;
  std::map<std::string, Tensor> tensors;

 private:
  static void check(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(what);
  }
  template <class T>
  static T load(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  static double half(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -size : size;
  }
  static uint64_t numel(const Tensor& tensor) {
    uint64_t count = 1;
    for (const uint64_t dim : tensor.dims) count *= dim;
    return count;
  }
  static uint64_t bytes_of(const Tensor& tensor) {
    switch (tensor.type) {
      case 0:
        return 4 * numel(tensor);
      case 1:
      case 30:
        return 2 * numel(tensor);
      case 8:
        check(tensor.dims.at(0) % 32 == 0, "a row of q8_0");
        return numel(tensor) / 32 * 34;
    }
    throw std::runtime_error("an unknown type");
  }
  template <class T>
  T take() {
    check(at_ + sizeof(T) <= bytes_.size(), "the end");
    at_ += sizeof(T);
    return load<T>(bytes_.data() + at_ - sizeof(T));
  }
  std::string text() {
    const auto length = take<uint64_t>();
    check(length <= bytes_.size() - at_, "the end");
    at_ += length;
    return bytes_.substr(at_ - length, length);
  }
  void element(uint32_t type, Value& value) {
    switch (type) {
      case 4:
        return value.numbers.push_back(take<uint32_t>());
      case 5:
        return value.numbers.push_back(take<int32_t>());
      case 6:
        return value.numbers.push_back(take<float>());
      case 7:
        return value.numbers.push_back(take<uint8_t>());
      case 8:
        return value.texts.push_back(text());
    }
    throw std::runtime_error("an unknown type of value");
  }
  Value value() {
    Value value;
    value.type = value.element = take<uint32_t>();
    if (value.type != 9) return element(value.type, value), value;
    value.element = take<uint32_t>();
    for (auto left = take<uint64_t>(); left > 0; --left) element(value.element, value);
    return value;
  }

  std::string bytes_;
  size_t at_ = 0, data_ = 0;
};

}  // namespace nought::test
