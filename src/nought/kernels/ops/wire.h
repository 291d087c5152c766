// What ranks send to each other in few bits: parts of a tensor as records of codes and scales.
//
// A record holds one part by itself: the codes of its elements, and behind them an f32 scale for each kWireBlock of
// them, the last ones alone if they are fewer. So a collective moves records as bytes, and every part can be decoded
// where it comes to.
#pragma once

#include "nought/base/math.h"
#include "nought/kernels/operation.h"

namespace nought {

/// Elements of a part that share a scale.
inline constexpr int64_t kWireBlock = 512;

/// Bits of an element in a record. 4 and 8: codes with scales. 16 and 32: its value in bf16 and f32, without scales.
constexpr bool is_wire_width(int bits) { return bits == 4 || bits == 8 || bits == 16 || bits == 32; }
constexpr bool has_wire_scales(int bits) { return bits <= 8; }
/// The bytes of the codes of so many elements, and of their record: a multiple of 4, as numel * bits is one of 32.
constexpr int64_t wire_code_bytes(int64_t numel, int bits) { return numel * bits / 8; }
constexpr int64_t wire_record_bytes(int64_t numel, int bits) {
  return wire_code_bytes(numel, bits) + (has_wire_scales(bits) ? 4 * ceil_div(numel, kWireBlock) : 0);
}

/// Each of `parts` equal parts of x as a record (arXiv 2306.10209, section 3). Of b bits: in each block scale =
/// the largest magnitude / 2^(b-1), and a code is x / scale, rounded to the nearest and ties to even, from -2^(b-1) to
/// 2^(b-1) - 1. So |x - code * scale| <= scale / 2, but for what is above the largest code: there <= scale. A block
/// whose largest magnitude is below 2^-120 is all 0; one with a value that is not finite becomes NaN. Of two codes of 4
/// bits in a byte, the lower is of the block's first half.
///
/// The parts lie in x by host, and on each by rank; with `hosts` > 1 records lie by rank and then by host: what goes to
/// one rank of a host, and on from there to those at its place on other hosts, is a stretch.
///
/// With `error`, x + error is encoded, and error becomes beta * error + (1 - beta) * what the codes lost of that (LoCo,
/// arXiv 2407.04480); a block that is not finite leaves its error as it is. x: [n] float, parts of numel * bits % 32 ==
/// 0; records: [parts * wire_record_bytes(n / parts)] u8; error: as x.
struct EncodeWire {
  Tensor x, records, error = {};
  int bits = 8;
  int64_t parts = 1, hosts = 1;
  double beta = 0;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("records", records, kWrites);
    v("error", error, kUpdates.if_defined());
    v("bits", bits);
    v("parts", parts);
    v("hosts", hosts);
    v("beta", beta);
  }
};

/// Each of `parts` equal parts of y = the sum of what `terms` records hold of it, in their order; in f32, rounded once.
/// Records lie by term, and of each by part. y: [n] float; records: [terms * parts * wire_record_bytes(n / parts)] u8.
struct DecodeWire {
  Tensor records, y;
  int bits = 8;
  int64_t parts = 1, terms = 1;

  template <class V>
  void visit(V& v) const {
    v("records", records, kReads);
    v("y", y, kWrites);
    v("bits", bits);
    v("parts", parts);
    v("terms", terms);
  }
};

}  // namespace nought
