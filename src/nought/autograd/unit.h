// Unit: the granularity of everything that ZeRO does: the parameters that are gathered, reduced and released together.
//
// A Unit is the embedding, one block, or the head. It names its parameters and lays them out, in the order of their
// declaration, in one flat buffer per segment: all that share a dtype, whether they are trained, and the axes of the
// mesh that cut them. The bytes belong to a UnitStore (zero/ implements it); layers see views. Parameters that are kept
// as 8-bit codes lie in a segment of codes, beside which a segment of scales lies.
//
// A tile of a Unit is a Unit whose work is a part of that one's. It is gathered, reduced and released by itself within
// the other's passes, so that a Unit may be larger than what a device has room for (memory-centric tiling, arXiv
// 2104.07857, section 5.1.3).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nought/autograd/placement.h"
#include "nought/base/math.h"
#include "nought/kernels/weight.h"

namespace nought {

struct Context;

class Unit;
class UnitStore;

/// How a parameter starts. Values are a function of (seed, parameter name, index), never of the layout.
struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform, log_uniform };
  Kind kind = Kind::zeros;
  double std = 0;    // standard deviation of normal values
  double bound = 0;  // uniform values lie between -bound and bound; logarithms are those of values up to it
  double least = 0;  // and from here on

  static Init zeros() { return {}; }
  static Init ones() { return {.kind = Kind::ones}; }
  static Init normal(double std) { return {.kind = Kind::normal, .std = std}; }
  static Init uniform(double bound) { return {.kind = Kind::uniform, .bound = bound}; }
  static Init log_uniform(double least, double bound) {
    return {.kind = Kind::log_uniform, .bound = bound, .least = least};
  }
};

/// What a parameter is. Optimizers and reports decide by it, never by its name or its Unit's.
enum class ParameterRole : uint8_t {
  matrix,       // a weight of a product: rows and columns are its last two dimensions
  expert,       // the same for one expert, or for all experts of a layer
  embedding,    // rows that tokens or positions look up
  head,         // the product that makes logits
  norm,         // the weight of a norm
  bias,         // what is added to a product or a norm
  sink,         // scores that attention heads give to nothing
  router,       // the product that scores experts
  choice_bias,  // what is added to experts' scores for the choice alone; it has no gradient
  adapter,      // a factor of the low-rank product that an adapter adds to a frozen one
  filter,       // the taps of a convolution: for each channel, how much neighbouring tokens count
};
/// Matrices of any kind take part in weight decay, other parameters do not.
bool decays(ParameterRole role);
/// False for what has no gradient: it is loaded and saved, and never trained.
bool can_be_trained(ParameterRole role);

/// True for what is read as a Weight (kernels/weight.h), and so may be kept quantized to 8 bits: matrices of products
/// but the router's, and tables.
bool can_be_quantized(ParameterRole role);
struct Parameter;
/// True for the matrix of one linear layer, or of one expert's: what folders of codes hold in codes.
bool is_linear_matrix(const Parameter& parameter);

/// What differs from what is usual for a parameter of its role.
struct ParameterOptions {
  ParameterRole role = ParameterRole::matrix;
  std::optional<bool> decay = {};
  bool trainable = true;
  std::optional<DType> dtype =
      {};  // the values have it; not given: the run's. Only what is not trained may have its own
  /// The global tensor and its cuts, of which `shape` is this rank's part; not given: every rank holds all of it.
  std::optional<Placement> placement = {};
  /// All hold it, and each rank along these axes forms a part of its gradient, as of what it computes of some heads.
  Axes partial_along = {};
};

struct Parameter {
  std::string name;
  Shape shape;  // what this rank holds: all of it, or a part of the global tensor
  Init init;
  ParameterRole role = ParameterRole::matrix;
  bool decay = true;  // takes part in weight decay
  bool trainable = true;
  std::optional<DType> dtype = {};
  bool quantized = false;     // kept as codes, which are not trained; initial values and files have the run's dtype
  WeightCodes codes = {};     // how, if it is
  bool nests_scales = false;  // its scales are kept as codes; else as f32, which many have of one tensor that ranks cut
  Placement placement = {};   // the global tensor, which files know, and where it is cut
  Axes partial_along = {};    // ranks along these axes each form a part of its gradient
  bool copied = false;        // its owner is another rank: this one holds the same values (Cut::copy)
  bool joined = false;        // begins where the parameter before it ends
  size_t order = 0;           // its place in the declarations of its Unit and of the tiles of that
  size_t segment = 0;         // where it lies, in Unit::segments()
  Interval range = {};        // elements in the flat buffer of the segment, as many as it takes there
  Interval nested = {};       // elements in that of the scales of its scales

  /// How many elements of the buffer so many of its elements take: half as many bytes of 4-bit codes, the bytes of
  /// whole blocks, and of all else as many.
  int64_t stored(int64_t elements) const;
};

/// What the buffer of a segment holds.
enum class SegmentContent : uint8_t {
  values,  // It holds its parameters in their dtype.
  codes,   // It holds its parameters as codes: i8, or u8 of two. The scales are in a segment of their own. Or it holds
           // blocks, as bytes, each parameter in a format of its own; there is no segment of scales.
  scales,  // It holds the scales of a segment of codes, in the order of their blocks, and has no parameters: f16 of
           // Q8_0, f32 of 4-bit codes, or u8, where they are codes themselves.
  nested,  // It holds, of each parameter of such a segment of codes, f32: the offset of its scales, then their scales.
};

/// The parameters of a Unit that lie in one flat buffer, because they share everything that a buffer has once.
struct Segment {
  bool trainable = true;
  std::optional<DType> dtype = {};  // the buffer has it; not given: the run's
  SegmentContent content = SegmentContent::values;
  Axes cut_along = {};                  // other ranks along these axes of the mesh hold other parts
  Axes partial_along = {};              // ranks along these axes each form a part of the gradients
  bool copied = false;                  // other ranks own its parameters; see Parameter
  std::vector<size_t> parameters = {};  // in the order of their declaration
  int64_t size = 0;                     // elements, with the room between parameters
  WeightCodes codes = {};               // the parameters are kept so; blocks have their format each
  size_t scales = 0;                    // where the scales of codes lie: the index of that segment
  size_t nested = 0;                    // where the scales of scales lie; 0: there are none
};

/// Where a backward kernel writes a gradient: `into`, overwriting or adding. Undefined if nobody wants it.
struct GradSink {
  Tensor into;
  bool accumulate = false;
  explicit operator bool() const { return into.defined(); }
};

/// One parameter, or several adjacent ones seen as one tensor (q, k and v as one projection). Cheap to copy; the Unit
/// must outlive it. It stores no tensor, so that a saved view pins no memory.
class ParameterView {
 public:
  ParameterView() = default;
  ParameterView(Unit& unit, size_t first, size_t last, Shape shape);

  bool defined() const { return unit_ != nullptr; }
  const Shape& shape() const { return shape_; }
  Unit& unit() const { return *unit_; }
  size_t first() const { return first_; }
  size_t last() const { return last_; }
  /// Elements in the flat buffer of its segment.
  Interval range() const;
  /// True if somebody wants its gradient: an operation asks before it records how to form it.
  bool trained() const;
  bool is_quantized() const;
  /// The values; Error unless the Unit is leased (between its before_ and after_ events), or if they are codes.
  Tensor value() const;
  /// The weight, dense or quantized.
  Weight weight() const;
  /// The formats of the blocks that the parameters are kept in.
  std::vector<Weight::Band> bands() const;
  /// Where `store` wants this view's gradient: the first writer of a reduction overwrites, later ones add. Undefined if
  /// it is not trained; Error for codes. Functions ask for it through the Gradients or the Tape, which know the store.
  GradSink gradient(UnitStore& store) const;

 private:
  Unit* unit_ = nullptr;
  size_t first_ = 0, last_ = 0;  // parameters [first, last]
  Shape shape_;
};

/// Owner of the Units' bytes, and observer of the four events that bracket a Unit's work. A store may be the view that
/// one micro-batch has of another store: then a tape is told (see Tape).
class UnitStore {
 public:
  virtual ~UnitStore() = default;
  virtual void before_forward(Unit& unit) = 0;
  virtual void after_forward(Unit& unit) = 0;
  virtual void before_backward(Unit& unit) = 0;
  /// The Unit's parameters are not read any more. All their gradients are final for this micro-batch, but for those
  /// that were deferred.
  virtual void after_backward(Unit& unit) = 0;
  /// Called after the backward pass of a tile whose gradients are not final: another Unit, which is walked back later,
  /// adds to them.
  virtual void after_shared_backward(Unit& tile) { after_backward(tile); }
  /// The flat buffer of a segment; Error without a lease.
  virtual Tensor values(const Unit& unit, size_t segment) = 0;
  /// The dtype of parameters without one of their own.
  virtual DType dtype() const = 0;
  /// What decodes the scales of weights. Error if the store has none.
  virtual const Context& context() const;
  /// The sink for parameters [first, last] of the Unit, which are trained and joined, as a rank-1 tensor.
  virtual GradSink gradient(const Unit& unit, size_t first, size_t last) = 0;
  /// True if gradients of weights are formed after the walk back rather than in it: then defer() gets what forms one.
  virtual bool defers() const { return false; }
  /// Called between before_backward() and after_backward() of the Unit whose backward `product` is a part of.
  virtual void defer(std::function<void()> product) { product(); }
  /// What is computed until leave_part() is a part of the Unit at work, "attention": for reports. Parts may nest;
  /// `name` lives as long as the program.
  virtual void enter_part(const char* /*name*/) {}
  virtual void leave_part() {}
};

class Unit {
 public:
  explicit Unit(std::string name) : name_(std::move(name)) {}
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  /// Every parameter begins at a multiple of so many elements of its segment, unless it is joined to the one before it:
  /// at 16 bytes or a multiple of them, whatever the dtype of parameters, gradients or states.
  static constexpr int64_t kAlignment = 16;

  /// What is declared from now on belongs to one rank along an axis, and perhaps a second one has it too; other ranks
  /// hold nothing of it. `cut` has the owner; `here` is this rank's place on its axis.
  void give_to(const Cut& cut, int here) { owner_ = cut, here_ = here; }

  /// True if this rank holds nothing of what was declared because the Unit belongs to others.
  bool elsewhere() const { return owner_ && !owner_->holds(here_); }
  /// True if this rank holds what another one owns.
  bool is_copy() const { return owner_ && owner_->copy == here_; }
  /// True if two ranks hold the Unit: each forms a part of its gradients.
  bool has_copy() const { return owner_ && owner_->copy; }

  /// This becomes a tile of another Unit, before either has parameters of a tile: it is held where that one is.
  void become_tile_of(Unit& whole);
  /// The Unit whose work this tile is a part of; null if it is no tile.
  Unit* tile_of() const { return tile_of_; }
  /// In the order in which they are computed forward.
  const std::vector<Unit*>& tiles() const { return tiles_; }
  /// This Unit also computes with the tiles of another, as a head does with those of a tied embedding.
  void borrow_tiles(Unit& other) { borrowed_tiles_ = &other; }
  /// The tiles that it computes with: its own, or borrowed ones.
  const std::vector<Unit*>& tiles_at_work() const {
    return borrowed_tiles_ != nullptr ? borrowed_tiles_->tiles_ : tiles_;
  }

  /// Declares a parameter; its place is after all earlier ones of its segment.
  ParameterView add(std::string name, Shape shape, Init init, ParameterRole role = ParameterRole::matrix) {
    return add(std::move(name), shape, init, ParameterOptions{.role = role});
  }
  ParameterView add(std::string name, Shape shape, Init init, const ParameterOptions& options);
  /// Several parameters declared one after another, as one tensor of the given shape. They are trained together or not
  /// at all.
  ParameterView join(const ParameterView& first, const ParameterView& last, Shape shape);
  /// This Unit also reads (and adds gradients to) parameters of another, as a head does with a tied embedding.
  void borrow(Unit& other) { borrowed_.push_back(&other); }

  /// Chooses what is trained, and lays the parameters out anew. What cannot be trained is not asked about. ConfigError
  /// if joined parameters are told apart.
  void choose_trained(const std::function<bool(const Parameter&)>& is_trained);
  /// Chooses what is kept as codes, and lays the parameters out anew. Those are no longer trained. ConfigError if one
  /// cannot be, by its role or because it has no whole blocks, and if joined parameters are told apart.
  void choose_quantized(const std::function<bool(const Parameter&)>& is_quantized, WeightCodes codes = {});
  /// Does so where parameters are kept each in codes of its own; nothing: it stays dense.
  void choose_codes(const std::function<std::optional<WeightCodes>(const Parameter&)>& codes_of);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Unit*>& borrowed() const { return borrowed_; }
  /// Elements of all parameters, without the room between them.
  int64_t numel() const;
  /// True if one of its parameters, or of its tiles', is trained.
  bool trained() const;

  void attach(UnitStore* store, size_t index) { store_ = store, index_ = index; }
  UnitStore& store() const;
  /// Its place in the order of the forward pass.
  size_t index() const { return index_; }

 private:
  /// The segment that a parameter belongs to; a new one, with one for its scales, if there is none yet.
  size_t segment_for(const Parameter& parameter);
  /// Places a parameter behind those that were placed before it.
  void place(size_t index);
  void lay_out();
  /// Checks that a parameter can be kept as its codes, and that this is so.
  void become_codes(Parameter& parameter, WeightCodes codes) const;
  /// What this rank holds of a tensor of this shape: nothing where the Unit is another rank's.
  Shape held(const Shape& shape) const;

  std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<Segment> segments_;
  std::vector<Unit*> borrowed_;
  Unit* tile_of_ = nullptr;
  std::vector<Unit*> tiles_;
  Unit* borrowed_tiles_ = nullptr;
  size_t declared_ = 0;  // parameters of this Unit and of its tiles
  UnitStore* store_ = nullptr;
  size_t index_ = 0;
  std::optional<Cut> owner_ = {};  // see give_to()
  int here_ = 0;
};

/// A tensor as files know it, and who has it: one parameter, or one in each of several tiles of a Unit.
struct GlobalTensor {
  struct Part {
    const Unit* unit;
    size_t parameter;  // in unit->parameters()
    const Parameter& operator*() const { return unit->parameters()[parameter]; }
  };
  std::vector<Part> parts;  // in the order of the tiles

  bool is_tiled() const { return first().placement.tile.has_value(); }
  /// Its name, role and global shape are those of the tensor.
  const Parameter& first() const { return *parts.front(); }
};
/// The global tensors of a Unit and its tiles, in the order of their declaration. None for a tile: they are the other
/// Unit's.
std::vector<GlobalTensor> global_tensors(const Unit& unit);

}  // namespace nought
