// What the operations of the wire must fulfil.
#include "nought/kernels/check.h"

namespace nought {

namespace {

struct WireRecords {
  std::string_view operation, name;
  const Tensor& values;
  const Tensor& records;
  int64_t parts, count;  // of the values, and of records
  int bits;
};

void check_records(const WireRecords& of) {
  const int64_t numel = of.values.numel();
  require<ShapeError>(is_float(of.values.dtype()), "{}: {} is {}, expected a float dtype", of.operation, of.name,
                      of.values);
  require<ShapeError>(is_wire_width(of.bits), "{}: bits is {}, expected 4, 8, 16 or 32", of.operation, of.bits);
  require<ShapeError>(of.parts > 0 && numel % of.parts == 0, "{}: {} is {}, which is not {} equal parts", of.operation,
                      of.name, of.values, of.parts);
  const int64_t part = numel / of.parts;
  require<ShapeError>(part * of.bits % 32 == 0,
                      "{}: a part of {} has {} elements, which in {} bits each fill no words of 4 bytes", of.operation,
                      of.name, part, of.bits);
  const int64_t bytes = of.count * wire_record_bytes(part, of.bits);
  require<ShapeError>(of.records.dtype() == DType::u8 && of.records.numel() == bytes,
                      "{}: records is {}, expected {} elements of u8", of.operation, of.records, bytes);
}

}  // namespace

void check_shapes(const EncodeWire& op) {
  check_records({"EncodeWire", "x", op.x, op.records, op.parts, op.parts, op.bits});
  require<ShapeError>(op.hosts > 0 && op.parts % op.hosts == 0, "EncodeWire: {} parts do not divide over {} hosts",
                      op.parts, op.hosts);
  require<ShapeError>(!op.error || (op.error.dtype() == op.x.dtype() && op.error.numel() == op.x.numel()),
                      "EncodeWire: error is {}, expected what x is, {}", op.error, op.x);
}

void check_shapes(const DecodeWire& op) {
  require<ShapeError>(op.terms > 0, "DecodeWire: terms is {}, expected at least 1", op.terms);
  check_records({"DecodeWire", "y", op.y, op.records, op.parts, op.terms * op.parts, op.bits});
}

}  // namespace nought
