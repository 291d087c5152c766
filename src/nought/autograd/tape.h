// Tape: the linear record of one forward pass, which eats itself on the way back.
//
// Design goals: gradients are final when a node has run, and the node and what it saved are gone; autograd knows
// nothing of ZeRO (Units announce themselves by effect nodes), nothing of layers; what leads to no gradient that
// somebody wants is neither recorded nor walked back. Non-goals: higher derivatives, branching graphs with several
// roots, saving gathered parameters (nodes save ParameterViews).
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "nought/autograd/recompute.h"
#include "nought/autograd/unit.h"
#include "nought/autograd/weight_view.h"
#include "nought/kernels/kernels.h"

namespace nought {

class Tape;

/// Gives a value when it is asked for.
using Later = std::function<Tensor(const Context&)>;

/// A value on a tape. Without a slot it is a constant: nobody asks for its gradient.
struct Var {
  static constexpr int kConstant = -1;
  Tensor value;
  int slot = kConstant;
  /// Computes the value once more: as much as needs the Unit's lease at once, the rest when the result is asked.
  std::function<Later(const Context&)> again = {};
  bool requires_grad() const { return slot != kConstant; }
};

/// An input of an operation, as Tape::record() sees it: somebody wants its gradient, or nobody does.
class Wanted {
 public:
  Wanted(const Var& x) : wanted_(x.requires_grad()) {}      // NOLINT(google-explicit-constructor)
  Wanted(const ParameterView& x) : wanted_(x.trained()) {}  // NOLINT(google-explicit-constructor)
  Wanted(const WeightView& x) : wanted_(x.trained()) {}     // NOLINT(google-explicit-constructor)
  explicit Wanted(bool wanted) : wanted_(wanted) {}
  explicit operator bool() const { return wanted_; }

 private:
  bool wanted_;
};

/// What a node keeps of an input for its backward: the value, or how to compute it again.
class Saved {
 public:
  /// value_is_read: false for a node that asks for the input's gradient alone, such as a product with a frozen weight.
  explicit Saved(const Var& x, bool value_is_read = true)
      : slot(x.slot),
        shape(x.value.shape()),
        dtype(x.value.dtype()),
        value_(x.again || !value_is_read ? Tensor{} : x.value) {
    if (value_is_read) again_ = x.again;
  }
  /// To be called while the Unit is leased. What it gives needs no lease.
  Later prepared(const Context& context) const {
    if (again_) return again_(context);
    return [value = value_](const Context&) { return value; };
  }

  int slot;
  Shape shape;
  DType dtype;

 private:
  Tensor value_;
  std::function<Later(const Context&)> again_;
};

/// The gradients that flow during a backward walk; nodes give to their inputs through it.
class Gradients {
 public:
  explicit Gradients(const Context& context, UnitStore* store = nullptr) : context_(context), store_(store) {}
  const Context& context() const { return context_; }

  /// Adds a finished gradient. The tensor may be kept, and overwritten later if it is not shared.
  void give(const Var& input, Tensor gradient);
  /// A place for a kernel to write input's gradient to, or an undefined one if the input is a constant.
  GradSink sink(const Var& input) { return sink(input.slot, input.value.shape(), input.value.dtype()); }
  GradSink sink(const Saved& input) { return sink(input.slot, input.shape, input.dtype); }
  /// Where the gradient of a weight goes, or an undefined one if it is not trained (or not defined).
  GradSink sink(const WeightView& weight) const {
    return weight.trained() ? weight.gradient(store_of(weight.unit())) : GradSink{};
  }

  /// Calls product(context, sink), which forms the gradient of a weight that nothing in the walk back reads: at once,
  /// or after the walk if the store defers such products. What it captures must hold until then. The bits are the
  /// same, as long as each parameter has either deferred products or others.
  template <class Product>
  void later(const WeightView& weight, Product product) {
    if (!weight.trained()) return;
    UnitStore& store = store_of(weight.unit());
    if (store.defers()) {
      store.defer([context = context_, &store, weight, product = std::move(product)] {
        if (const GradSink into = weight.gradient(store)) product(context, into);
      });
    } else if (const GradSink into = weight.gradient(store)) {
      product(context_, into);
    }
  }

 private:
  GradSink sink(int slot, const Shape& shape, DType dtype);
  UnitStore& store_of(const Unit& unit) const { return store_ ? *store_ : unit.store(); }

  friend class Tape;
  Context context_;
  UnitStore* store_;
  std::vector<Tensor> slots_;
};

/// Rows of a batch that have chosen one of several adapters (ModelAdapter::choices).
struct AdapterRows {
  size_t adapter = 0;
  Interval rows = {};
};

class Tape {
 public:
  /// With recording off, operations compute values and save nothing: for evaluation and generation. The Units' events
  /// and gradients go to `store`, which outlives the tape; null: to each Unit's own.
  explicit Tape(const Context& context, bool recording = true, UnitStore* store = nullptr)
      : context_(context), recording_(recording), gradients_(context, store) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const Context& context() const { return context_; }
  bool recording() const { return recording_; }

  /// A value whose gradient is wanted; read it with gradient() after backward().
  Var input(Tensor value);
  static Var constant(Tensor value) { return {std::move(value), Var::kConstant}; }
  /// Where the gradient of a parameter goes that is formed in the forward pass.
  GradSink sink(const WeightView& weight) const { return gradients_.sink(weight); }

  /// Given the gradient of its output, gives gradients to its inputs and parameters. Captures what it needs.
  using Backward = std::function<void(Gradients&, Tensor d_out)>;
  /// The result of an operation on these inputs. It is a constant, and `backward` is dropped, when not recording or
  /// when nobody wants the gradient of any input.
  Var record(Tensor value, std::initializer_list<Wanted> inputs, Backward backward);
  /// Records a result that is cheap to compute `again` from what the node saves anyway.
  Var record_cheap(Tensor value, std::initializer_list<Wanted> inputs, Backward backward, Later again);

  /// What the rows of x draw random numbers by (dropout): i64, one for each token, those of all ranks that have slices
  /// of the tokens. Undefined: nothing is drawn. The body of a section sets it, so that running it again draws the
  /// same.
  void set_row_keys(Tensor keys) { row_keys_ = std::move(keys); }
  const Tensor& row_keys() const { return row_keys_; }
  /// Whether what an adapter adds is left out, where nothing is recorded. The body of a section sets it, too.
  void leave_out_adapters(bool leave_out) { leaves_out_adapters_ = leave_out; }
  bool leaves_out_adapters() const { return leaves_out_adapters_ && !recording_; }

  /// Which rows of what is computed have chosen which adapter, where nothing is recorded. The body of a section sets
  /// it, too.
  void set_adapter_rows(std::vector<AdapterRows> rows) { adapter_rows_ = std::move(rows); }
  const std::vector<AdapterRows>& adapter_rows() const { return adapter_rows_; }

  /// Brackets a Unit's operations: leases its parameters forward, and on the way back leases them again and reports
  /// that its gradients are final.
  void enter(Unit& unit);
  void leave(Unit& unit);

  using Body = std::function<Var(Tape&, const Var&)>;
  /// Runs `body` as the work of a Unit: y = body(x). With full recompute it is a checkpoint of its own. If y is a
  /// constant and the Unit has nothing to train, the walk back does not come here.
  Var run_unit(Unit& unit, const Var& x, const Body& body, Recompute recompute = Recompute::none);

  struct TileUse {
    bool unread = false;  // see result_is_unread(): y is zeros of the shape of x, and the body runs in the walk back
    bool shared = false;  // another Unit uses the tile too, and its walk back comes later: see after_shared_backward()
  };
  /// Runs, within the work of a Unit, a tile of it, or of another one.
  Var run_tile(Unit& tile, const Var& x, const Body& body, TileUse use);
  /// True in the body of a section that runs again: only the gradients of its result are asked for, and not its value.
  bool result_is_unread() const { return result_is_unread_; }

  /// y = body(x) in so many tiles of neighbouring rows, for a body that makes each row of y of the same row of x. Of
  /// its values x alone is kept: the walk back runs the body again tile by tile, and adds gradients in their order.
  /// trained: whether somebody wants the gradient of something else that the body reads.
  Var run_tiles(const Var& x, int64_t tiles, bool trained, const Body& body);

  /// Runs `body` as a part of a Unit's work that has a name: y = body(). The store hears of it in both passes.
  template <class PartBody>
  Var run_part(Unit& unit, const char* name, PartBody&& body) {
    enter_part(unit, name);
    Var y = body();
    leave_part(unit, name);
    return y;
  }

  struct Section {
    Unit* unit = nullptr;
    Body body;
  };
  /// Runs Units one after another, saving what `kept` gives back, x: the backward walk runs them again. One lease
  /// serves the replay and the backward of the last; the others are leased once more. Nothing is saved if x is a
  /// constant and no Unit has anything to train.
  Var run_checkpoint(std::vector<Section> sections, const Var& x, SavedInputs::Kept kept);

  /// Walks back from `root`, whose gradient is `seed` (ones if undefined). Consumes the tape.
  void backward(const Var& root, Tensor seed = {});
  /// After backward(): the gradient of an input; undefined if nothing depended on it.
  Tensor gradient(const Var& input) const;

 private:
  /// Leaves an effect for the walk back.
  template <class Event>
  void announce(Event event);
  void enter_part(Unit& unit, const char* name);
  void leave_part(Unit& unit, const char* name);
  UnitStore& store_of(const Unit& unit) const { return gradients_.store_of(unit); }
  /// Records a checkpoint with this result: the sections run again from what is kept of x when it is walked back.
  Var record_checkpoint(Tensor y, std::vector<Section> sections, const Var& x, SavedInputs::Kept kept);

  struct Node {
    Backward backward;
    int slot;  // its output's; kConstant for effects
  };
  Context context_;
  bool recording_;
  bool selective_ = false;  // cheap results are computed again
  bool result_is_unread_ = false;
  Tensor row_keys_;
  bool leaves_out_adapters_ = false;
  std::vector<AdapterRows> adapter_rows_;
  std::vector<Node> nodes_;
  Gradients gradients_;
};

}  // namespace nought
