#include "nought/autograd/recompute.h"

#include "nought/comm/flight_recorder.h"

namespace nought {

std::string RecomputeOptions::str() const {
  std::string tiles = mlp_tiles == 1   ? ""
                      : mlp_tiles == 0 ? "MLP in tiles of tokens"
                                       : fmt::format("MLP in {} tiles of tokens", mlp_tiles);
  if (unit_tiles > 1) tiles += fmt::format("{}Units in {} tiles", tiles.empty() ? "" : ", ", unit_tiles);
  if (mode == Recompute::none) return tiles;
  std::string text = fmt::format("{} recompute", name_of(mode));
  if (checkpoints > 0) text += fmt::format(", {} checkpoint{}", checkpoints, checkpoints == 1 ? "" : "s");
  if (interval > 1) text += fmt::format(" of {} blocks at once", interval);
  if (tier.pool == Pool::host) text += ", inputs on the host";
  if (tier.pool == Pool::file) text += ", inputs in files";
  if (contiguous) text += ", contiguous";
  if (fp8) text += ", inputs in MXFP8";
  if (partitioned) text += ", inputs shared out over tensor ranks";
  return tiles.empty() ? text : text + ", " + tiles;
}

namespace {

/// What a rank keeps of a tensor: its elements, or the codes and then the scales of them.
struct Kind {
  DType dtype;
  int64_t part;  // elements of the tensor; the last rank may have fewer
  bool fp8;

  DType kept_dtype() const { return fp8 ? DType::u8 : dtype; }
  int64_t kept() const { return fp8 ? part + ceil_div(part, kMxBlock) : part; }

  /// What this rank keeps of x; one of a group keeps its part, which may be empty.
  void keep_local(const Context& context, const Tensor& x, const Communicator* ranks, const Tensor& into) const {
    const int64_t begin = ranks == nullptr ? 0 : ranks->rank() * part;
    const Interval own = intersect({begin, begin + part}, {0, x.numel()});
    if (!own.empty()) keep(context, x.flat(own.begin, own.end), into);
  }
  void keep(const Context& context, const Tensor& x, const Tensor& into) const {
    if (!fp8) return context.copy(x, into.flat(0, x.numel()));
    const int64_t scales = ceil_div(x.numel(), kMxBlock);
    context.run(EncodeMxfp8{.x = x, .codes = into.flat(0, x.numel()), .scales = into.flat(part, part + scales)});
  }
};

Kind kind_of(const Tensor& x, const RecomputeOptions& options, const Communicator* ranks) {
  return {x.dtype(), ranks == nullptr ? x.numel() : ceil_div(x.numel(), ranks->size()), options.fp8};
}

/// What all ranks keep, one behind the other.
Tensor gathered(const Context& context, const Tensor& kept, Communicator& ranks) {
  const Tensor all = context.empty({kept.numel() * ranks.size()}, kept.dtype());
  const FlightSubject subject(ranks, "saved inputs");
  ranks.wait(ranks.all_gather(kept, all), *context.stream);
  return all;
}

/// The tensor whose parts lie one behind the other as they are kept.
Tensor restored(const Context& context, const Tensor& all, const Kind& kind, const Shape& shape) {
  if (!kind.fp8) return all.flat(0, shape.numel()).reshape(shape);
  const Tensor x = context.empty(shape, kind.dtype);
  for (int64_t begin = 0, at = 0; begin < x.numel(); begin += kind.part, at += kind.kept()) {
    const Tensor into = x.flat(begin, std::min(x.numel(), begin + kind.part)),
                 scales = all.flat(at + kind.part, at + kind.kept());
    context.run(DecodeMxfp8{.codes = all.flat(at, at + into.numel()),
                            .scales = scales.flat(0, ceil_div(into.numel(), kMxBlock)),
                            .x = into});
  }
  return x;
}

}  // namespace

SavedInputs::Pass SavedInputs::begin(const Context& context, int64_t count, const Tensor& x) {
  const Kind kind = kind_of(x, options_, ranks_);
  if (options_.tier.pool == Pool::file) {
    if (!files_) files_ = std::make_shared<InputFiles>(context, options_, owner_);
    Pass pass(*this);
    pass.in_file_ = files_->room_for(context, count, kind.kept() * size_of(kind.kept_dtype()));
    return pass;
  }
  Pass pass(*this);
  if (options_.contiguous) pass.room_ = free_room(context, count * kind.kept(), kind.kept_dtype());
  return pass;
}

Tensor SavedInputs::free_room(const Context& context, int64_t elements, DType dtype) {
  const auto fits = [&](const Tensor& room) {
    return room.unique() && room.dtype() == dtype && room.numel() >= elements;
  };
  if (const auto found = std::find_if(rooms_.begin(), rooms_.end(), fits); found != rooms_.end()) return *found;
  const auto unused = std::find_if(rooms_.begin(), rooms_.end(), [](const Tensor& room) { return room.unique(); });
  if (unused != rooms_.end()) rooms_.erase(unused);  // before the larger one is asked for
  return rooms_.emplace_back(
      Tensor::empty(*context.memory, {elements}, dtype, Category::activations, options_.tier.pool));
}

Tensor SavedInputs::Pass::room_for(const Context& context, int64_t elements, DType dtype) {
  if (!options_.contiguous)
    return Tensor::empty(*context.memory, {elements}, dtype, Category::activations, options_.tier.pool);
  require((used_ + 1) * elements <= room_.numel(), "more inputs are kept than begin() was told");
  ++used_;
  return room_.flat((used_ - 1) * elements, used_ * elements);
}

SavedInputs::Kept SavedInputs::Pass::keep_in_file(const Context& context, const Tensor& x) {
  const Kind kind = kind_of(x, options_, ranks_);
  Tensor kept = x.flat(0, x.numel());
  if (options_.fp8 || ranks_ != nullptr) {
    kept = in_file_->pool.device_room(kind.kept(), kind.kept_dtype(), Category::activations);
    kind.keep_local(context, x, ranks_, kept);
  }
  return [files = files_, input = files_->keep(context, in_file_, kept), kind, shape = x.shape(),
          ranks = ranks_](const Context& on) {
    const Tensor back = files->take(on, *input);
    return restored(on, ranks == nullptr ? back : gathered(on, back, *ranks), kind, shape);
  };
}

SavedInputs::Kept SavedInputs::Pass::keep(const Context& context, const Tensor& x) {
  if (files_) return keep_in_file(context, x);
  const bool on_device = options_.tier.pool == Pool::device;
  if (!options_.contiguous && !options_.fp8 && on_device && ranks_ == nullptr) return [x](const Context&) { return x; };
  const Kind kind = kind_of(x, options_, ranks_);
  const Tensor kept = room_for(context, kind.kept(), kind.kept_dtype());
  const bool encodes_elsewhere = !on_device && options_.fp8;  // kernels have no access to the host
  const Tensor here = encodes_elsewhere ? context.empty(kept.shape(), kept.dtype(), Category::workspace) : kept;
  kind.keep_local(context, x, ranks_, here);
  if (encodes_elsewhere) context.copy(here, kept);
  return [kept, on_device, kind, shape = x.shape(), ranks = ranks_, returning = returning_](const Context& on) {
    Tensor back = kept;
    if (!on_device) {
      returning->settle(UnderWay::kMost - 1);
      back = on.empty(kept.shape(), kept.dtype());
      on.copy(kept, back);
      if (!on.stream->runs_inline()) returning->add(on.stream->record(), {kept});
    }
    return restored(on, ranks == nullptr ? back : gathered(on, back, *ranks), kind, shape);
  };
}

}  // namespace nought
