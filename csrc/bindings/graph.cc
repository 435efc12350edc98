#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"
#include "bindings/register.h"
#include "format/gguf.h"
#include "graph/graph.h"
#include "graph/isolate.h"
#include "graph/stages.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using graph::Graph;
using graph::InputSums;
using graph::ValueId;
using graph::Weight;
using graph::WeightPtr;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Bytes = py::array_t<uint8_t, py::array::c_style>;

// A value as Python holds it.
struct PyValue {
  ValueId id;
  graph::Value value;
};

std::shared_ptr<Weight> load_weight(std::shared_ptr<format::GgufFile> file,
                                    const std::string& name) {
  const format::TensorInfo* t = file->find_tensor(name);
  if (t == nullptr) throw FormatError(file->path() + " has no tensor " + name);
  if (!t->type.has_value())
    throw UnsupportedError("tensor " + name + " of " + file->path() + " has type " + t->type_name +
                           ", which this version cannot run");
  const int64_t rows = t->dims.size() > 1 ? t->dims[1] : 1;
  int64_t experts = 1;
  for (size_t i = 2; i < t->dims.size(); ++i) experts *= t->dims[i];
  const uint8_t* data = file->data(*t);
  return std::make_shared<Weight>(name, *t->type, rows, t->dims[0], data, std::move(file), experts);
}

// Keeps an array of Python's while its bytes are used.
class ArrayOwner : public DataOwner {
 public:
  explicit ArrayOwner(Bytes array) : array_(std::move(array)) {}
  ~ArrayOwner() override {
    const py::gil_scoped_acquire gil;
    array_ = Bytes();
  }
  void release(const uint8_t*, int64_t) const override {}
  bool maps_file() const override { return false; }

 private:
  Bytes array_;
};

std::shared_ptr<Weight> weight_of_blocks(const std::string& name, const std::string& type_name,
                                         const Bytes& blocks, int64_t cols, int64_t experts) {
  const quant::QuantTraits* type = quant::find_by_name(type_name);
  if (type == nullptr) throw RequestError("no quant type is called " + type_name);
  if (cols < 1 || experts < 1 || blocks.ndim() != 2 || blocks.shape(0) < 1 ||
      blocks.shape(0) % experts != 0 || blocks.shape(1) != quant::row_bytes(type->type, cols))
    throw RequestError("the matrix " + name + " needs blocks [rows, bytes of " +
                       std::to_string(cols) + " weights in " + type->name + "]");
  return std::make_shared<Weight>(name, type->type, blocks.shape(0) / experts, cols, blocks.data(),
                                  std::make_shared<const ArrayOwner>(blocks), experts);
}

py::dict inspect_weight(const Weight& w) {
  const quant::BlockReport r = w.inspect();
  return py::dict(py::arg("blocks") = r.blocks, py::arg("not_finite") = r.not_finite,
                  py::arg("codes_of_three") = r.codes_of_three);
}

std::shared_ptr<InputSums> input_sums(int64_t cols) {
  if (cols < 1 || cols > std::numeric_limits<int32_t>::max())
    throw RequestError("sums of inputs need at least one column");
  return std::make_shared<InputSums>(cols);
}

py::array_t<double> squares(const InputSums& sums) {
  return py::array_t<double>(static_cast<py::ssize_t>(sums.cols()), sums.squares().data());
}

graph::Vector vector(const std::optional<Floats>& values) {
  if (!values.has_value()) return nullptr;
  return std::make_shared<const std::vector<float>>(values->data(),
                                                    values->data() + values->size());
}

std::vector<PyValue> add(Graph& g, graph::Op op) {
  std::vector<PyValue> made;
  for (const ValueId id : g.add(std::move(op))) made.push_back({id, g.value(id)});
  return made;
}

PyValue add_one(Graph& g, graph::Op op) { return add(g, std::move(op)).front(); }

void register_weight(py::module_& m) {
  py::class_<Weight, std::shared_ptr<Weight>>(m, "Weight")
      .def(py::init(&load_weight), py::arg("file"), py::arg("name"))
      .def_static(
          "from_blocks", &weight_of_blocks, py::arg("name"), py::arg("quant_type"),
          py::arg("blocks"), py::arg("cols"), py::arg("experts") = 1,
          "Matrices whose rows, those of one expert after the other, are an array of bytes; it "
          "is kept and not copied.")
      .def_property_readonly("name", &Weight::name)
      .def_property_readonly("experts", &Weight::experts, "Matrices in the tensor.")
      .def_property_readonly("rows", &Weight::rows, "Of one matrix.")
      .def_property_readonly("cols", &Weight::cols)
      .def_property_readonly("nbytes", &Weight::bytes, "Bytes in the file.")
      .def_property_readonly("integer", &Weight::integer,
                             "Whether linear layers round their input to int8 for it.")
      .def_property_readonly(
          "quant_type", [](const Weight& w) { return std::string(quant::traits(w.type()).name); })
      .def_property_readonly("first_row", &Weight::first_row,
                             "Where a slice begins in its tensor; else 0.")
      .def("slice", &Weight::slice, py::arg("first"), py::arg("last"),
           "Rows first to last - 1, under the same name.")
      .def("inspect", &inspect_weight,
           "What a look at every block finds: blocks, not_finite, codes_of_three.");
  py::class_<InputSums, std::shared_ptr<InputSums>>(m, "InputSums")
      .def(py::init(&input_sums), py::arg("cols"))
      .def_property_readonly("rows", &InputSums::rows, "Inputs that were summed.")
      .def_property_readonly("squares", &squares,
                             "A copy of the sums, float64 [cols]; not while a step runs.");
}

void register_value(py::module_& m) {
  py::class_<PyValue>(m, "Value", "A matrix that a graph computes: [rows of a row space, cols].")
      .def_property_readonly("cols", [](const PyValue& v) { return v.value.cols; })
      .def_property_readonly("rows", [](const PyValue& v) { return to_string(v.value.rows); })
      .def("__eq__", [](const PyValue& a, const PyValue& b) { return a.id == b.id; })
      .def("__hash__", [](const PyValue& v) { return v.id; });
}

graph::Activation activation(const std::string& name) {
  if (name == "silu") return graph::Activation::kSilu;
  if (name == "gelu") return graph::Activation::kGelu;
  if (name == "gelu_tanh") return graph::Activation::kGeluTanh;
  if (name == "relu") return graph::Activation::kRelu;
  if (name == "relu2") return graph::Activation::kRelu2;
  if (name == "sigmoid") return graph::Activation::kSigmoid;
  if (name == "identity") return graph::Activation::kIdentity;
  if (name == "swiglu_oai") return graph::Activation::kSwigluOai;
  throw RequestError("no activation is called " + name +
                     "; there are silu, gelu, gelu_tanh, relu2, sigmoid, identity and swiglu_oai");
}

graph::KeyPart key_part(const std::string& name) {
  if (name == "all") return graph::KeyPart::kAll;
  if (name == "encoded") return graph::KeyPart::kEncoded;
  if (name == "own") return graph::KeyPart::kOwn;
  throw RequestError("no part of the positions is called " + name +
                     "; known are all, encoded, own");
}

graph::Route::Scoring scoring(const std::string& name) {
  if (name == "softmax") return graph::Route::Scoring::kSoftmax;
  if (name == "softmax_of_chosen") return graph::Route::Scoring::kSoftmaxOfChosen;
  if (name == "sigmoid") return graph::Route::Scoring::kSigmoid;
  if (name == "sparse_mixer") return graph::Route::Scoring::kSparseMixer;
  throw RequestError("no scoring of experts is called " + name +
                     "; there are softmax, softmax_of_chosen, sigmoid and sparse_mixer");
}

ValueId id_or_none(const std::optional<PyValue>& v) { return v ? v->id : graph::kNoValue; }

// The rows of an input: those of the tokens, its own, one a sequence, or pixels of a grid.
PyValue input(Graph& g, const std::string& name, int64_t cols, bool own_rows, bool sequences,
              int pixels) {
  if (own_rows + sequences + (pixels > 1) > 1 || pixels < 1)
    throw RequestError("the input " + name + " has rows of one kind");
  graph::RowSpace rows = graph::pixels(pixels);
  if (own_rows) rows = graph::input_rows(name);
  if (sequences) rows = graph::sequences();
  return add_one(g, graph::Input{name, rows, cols});
}

using OptionalFloats = std::optional<Floats>;

PyValue conv2d(Graph& g, const PyValue& x, const Floats& weight, const OptionalFloats& bias,
               const std::optional<PyValue>& moments, const OptionalFloats& norm_weight,
               const OptionalFloats& norm_bias, bool silu, int stride, int upsample, int pad,
               const std::optional<PyValue>& sum) {
  if (weight.ndim() != 4 || weight.shape(1) != x.value.cols || weight.shape(2) != weight.shape(3))
    throw RequestError("the weight of a convolution is [out, columns of x, kernel, kernel]");
  graph::Conv2d op;
  op.x = x.id;
  op.moments = id_or_none(moments);
  op.add = id_or_none(sum);
  op.norm_weight = vector(norm_weight);
  op.norm_bias = vector(norm_bias);
  op.silu = silu;
  op.channels = weight.shape(0);
  op.kernel = static_cast<int>(weight.shape(2));
  op.weight = graph::blocked_weight(weight.data(), op.channels, weight.shape(1), op.kernel);
  op.bias = vector(bias);
  op.stride = stride;
  op.upsample = upsample;
  op.pad = pad;
  return add_one(g, std::move(op));
}

using GraphClass = py::class_<Graph, std::shared_ptr<Graph>>;
void register_row_ops(GraphClass& c) {
  c.def(
       "embed", [](Graph& g, const WeightPtr& w) { return add_one(g, graph::Embed{w}); },
       py::arg("weight"))
      .def(
          "embed_positions",
          [](Graph& g, const WeightPtr& w) { return add_one(g, graph::EmbedPositions{w}); },
          py::arg("weight"))
      .def("input", &input, py::arg("name"), py::arg("cols"), py::arg("own_rows") = false,
           py::arg("sequences") = false, py::arg("pixels") = 1)
      .def(
          "insert_rows",
          [](Graph& g, const PyValue& x, const PyValue& rows, int64_t first, bool added) {
            return add_one(g, graph::InsertRows{x.id, rows.id, first, added});
          },
          py::arg("x"), py::arg("rows"), py::arg("first") = 0, py::arg("added") = false)
      .def(
          "select_outputs",
          [](Graph& g, const PyValue& x) { return add_one(g, graph::SelectOutputs{x.id}); },
          py::arg("x"))
      .def(
          "select_columns",
          [](Graph& g, const PyValue& x, int64_t first, int64_t count, int64_t period) {
            return add_one(g, graph::SelectColumns{x.id, first, count, period});
          },
          py::arg("x"), py::arg("first"), py::arg("count"), py::arg("period"))
      .def(
          "join_heads",
          [](Graph& g, const PyValue& a, const PyValue& b, int heads) {
            return add_one(g, graph::JoinHeads{a.id, b.id, heads});
          },
          py::arg("a"), py::arg("b"), py::arg("heads"))
      .def(
          "transpose_heads",
          [](Graph& g, const PyValue& x, int outer, int inner) {
            return add_one(g, graph::TransposeHeads{x.id, outer, inner});
          },
          py::arg("x"), py::arg("outer"), py::arg("inner"));
}

void register_linear_ops(GraphClass& c) {
  c.def(
       "rms_norm",
       [](Graph& g, const PyValue& x, const Floats& weight, float eps, int groups) {
         return add_one(g, graph::RmsNorm{x.id, vector(weight), eps, groups});
       },
       py::arg("x"), py::arg("weight"), py::arg("eps"), py::arg("groups") = 1)
      .def(
          "layer_norm",
          [](Graph& g, const PyValue& x, const Floats& weight, const OptionalFloats& bias,
             float eps, int groups) {
            return add_one(g, graph::LayerNorm{x.id, vector(weight), vector(bias), eps, groups});
          },
          py::arg("x"), py::arg("weight"), py::arg("bias"), py::arg("eps"), py::arg("groups") = 1)
      .def(
          "linear",
          [](Graph& g, const PyValue& x, const graph::Weights& weights,
             const std::vector<OptionalFloats>& biases, const PyValue* sum) {
            graph::Linear op;
            op.x = x.id;
            op.add = sum != nullptr ? sum->id : graph::kNoValue;
            op.weights = weights;
            for (const OptionalFloats& b : biases) op.biases.push_back(vector(b));
            return add(g, std::move(op));
          },
          py::arg("x"), py::arg("weights"), py::arg("biases") = std::vector<OptionalFloats>{},
          py::arg("add") = nullptr)
      .def(
          "head_linear",
          [](Graph& g, const PyValue& x, const WeightPtr& weight) {
            return add_one(g, graph::HeadLinear{x.id, weight});
          },
          py::arg("x"), py::arg("weight"))
      .def(
          "hadamard",
          [](Graph& g, const PyValue& x, int64_t block, const OptionalFloats& before,
             const OptionalFloats& after) {
            return add_one(g, graph::Hadamard{x.id, block, vector(before), vector(after)});
          },
          py::arg("x"), py::arg("block"), py::arg("before") = py::none(),
          py::arg("after") = py::none())
      .def(
          "observe",
          [](Graph& g, const PyValue& x, std::shared_ptr<InputSums> sums) {
            add(g, graph::Observe{x.id, std::move(sums)});
          },
          py::arg("x"), py::arg("sums"));
}

void register_picture_ops(GraphClass& c) {
  c.def(
       "join_rows",
       [](Graph& g, const PyValue& a, const PyValue& b) {
         return add_one(g, graph::JoinRows{a.id, b.id});
       },
       py::arg("a"), py::arg("b"))
      .def(
          "split_rows",
          [](Graph& g, const PyValue& x, const PyValue& first, const PyValue& last) {
            const auto made = add(g, graph::SplitRows{x.id, first.value.rows, last.value.rows});
            return py::make_tuple(made[0], made[1]);
          },
          py::arg("x"), py::arg("first"), py::arg("last"),
          "Two values with the rows of `first` and of `last`.")
      .def(
          "sinusoids",
          [](Graph& g, const PyValue& x, const Floats& frequencies) {
            return add_one(g, graph::Sinusoids{x.id, vector(frequencies)});
          },
          py::arg("x"), py::arg("frequencies"))
      .def(
          "modulate",
          [](Graph& g, const PyValue& x, const PyValue& scale, const PyValue& shift) {
            return add_one(g, graph::Modulate{x.id, scale.id, shift.id});
          },
          py::arg("x"), py::arg("scale"), py::arg("shift"))
      .def(
          "add_gated",
          [](Graph& g, const PyValue& x, const PyValue& y, const PyValue& gate) {
            return add_one(g, graph::AddGated{x.id, y.id, gate.id});
          },
          py::arg("x"), py::arg("y"), py::arg("gate"))
      .def(
          "group_moments",
          [](Graph& g, const PyValue& x, int groups, float eps) {
            return add_one(g, graph::GroupMoments{x.id, groups, eps});
          },
          py::arg("x"), py::arg("groups"), py::arg("eps"))
      .def("conv2d", &conv2d, py::arg("x"), py::arg("weight"), py::arg("bias"), py::arg("moments"),
           py::arg("norm_weight"), py::arg("norm_bias"), py::arg("silu"), py::arg("stride"),
           py::arg("upsample"), py::arg("pad"), py::arg("add"));
}

void register_attention_ops(GraphClass& c) {
  c.def(
       "rope_table",
       [](Graph& g, const Floats& frequencies, float scale, float temperature, int step, int offset,
          std::vector<int32_t> axes) {
         return add_one(g, graph::RopeTable{vector(frequencies), scale, temperature, step, offset,
                                            std::move(axes)});
       },
       py::arg("frequencies"), py::arg("scale"), py::arg("temperature") = 0.0f,
       py::arg("temperature_step") = 0, py::arg("temperature_offset") = 0,
       py::arg("axes") = std::vector<int32_t>{})
      .def(
          "rope",
          [](Graph& g, const PyValue& x, const PyValue& table, int head_dim, bool interleaved) {
            return add_one(g, graph::Rope{x.id, table.id, head_dim, interleaved});
          },
          py::arg("x"), py::arg("table"), py::arg("head_dim"), py::arg("interleaved") = false)
      .def(
          "store_kv",
          [](Graph& g, const PyValue& k, const std::optional<PyValue>& v, int layer) {
            add(g, graph::StoreKv{k.id, v ? v->id : graph::kNoValue, layer});
          },
          py::arg("k"), py::arg("v"), py::arg("layer"))
      .def(
          "attend",
          [](Graph& g, const PyValue& q, int layer, int heads, float scale, int window,
             float softcap, const OptionalFloats& slopes, const OptionalFloats& sinks, int chunk,
             const OptionalFloats& position_bias, const std::string& part) {
            return add_one(
                g, graph::Attend{q.id, layer, heads, scale, window, softcap, vector(slopes),
                                 vector(sinks), chunk, vector(position_bias), key_part(part)});
          },
          py::arg("q"), py::arg("layer"), py::arg("heads"), py::arg("scale"), py::arg("window") = 0,
          py::arg("softcap") = 0.0f, py::arg("slopes") = py::none(), py::arg("sinks") = py::none(),
          py::arg("chunk") = 0, py::arg("position_bias") = py::none(), py::arg("part") = "all")
      .def(
          "attend_local",
          [](Graph& g, const PyValue& q, const PyValue& k, const PyValue& v, int head_dim,
             float scale, const std::string& segments, bool causal, int window,
             const OptionalFloats& slopes, const OptionalFloats& position_bias) {
            return add_one(
                g, graph::AttendLocal{q.id, k.id, v.id, head_dim, scale, segments, causal, window,
                                      vector(slopes), vector(position_bias)});
          },
          py::arg("q"), py::arg("k"), py::arg("v"), py::arg("head_dim"), py::arg("scale"),
          py::arg("segments") = "", py::arg("causal") = false, py::arg("window") = 0,
          py::arg("slopes") = py::none(), py::arg("position_bias") = py::none());
}

void register_elementwise_ops(GraphClass& c) {
  c.def(
       "gated",
       [](Graph& g, const PyValue& gate, const PyValue& up, const std::string& name) {
         return add_one(g, graph::Gated{gate.id, up.id, activation(name)});
       },
       py::arg("gate"), py::arg("up"), py::arg("activation"))
      .def(
          "mix_parts",
          [](Graph& g, const PyValue& x, const PyValue& weights, int parts) {
            return add_one(g, graph::MixParts{x.id, weights.id, parts});
          },
          py::arg("x"), py::arg("weights"), py::arg("parts"))
      .def(
          "match_rms",
          [](Graph& g, const PyValue& x, const PyValue& like, float floor) {
            return add_one(g, graph::MatchRms{x.id, like.id, floor});
          },
          py::arg("x"), py::arg("like"), py::arg("floor"))
      .def(
          "keep_largest",
          [](Graph& g, const PyValue& x, float deviations) {
            return add_one(g, graph::KeepLargest{x.id, deviations});
          },
          py::arg("x"), py::arg("deviations"))
      .def(
          "gate_rows",
          [](Graph& g, const PyValue& x, const PyValue& gate) {
            return add_one(g, graph::GateRows{x.id, gate.id});
          },
          py::arg("x"), py::arg("gate"))
      .def(
          "activate",
          [](Graph& g, const PyValue& x, const std::string& name) {
            return add_one(g, graph::Activate{x.id, activation(name)});
          },
          py::arg("x"), py::arg("activation"))
      .def(
          "add",
          [](Graph& g, const PyValue& a, const PyValue& b) {
            return add_one(g, graph::Add{a.id, b.id});
          },
          py::arg("a"), py::arg("b"))
      .def(
          "add_vector",
          [](Graph& g, const PyValue& x, const Floats& v) {
            return add_one(g, graph::AddVector{x.id, vector(v)});
          },
          py::arg("x"), py::arg("vector"))
      .def(
          "scale",
          [](Graph& g, const PyValue& x, float factor) {
            return add_one(g, graph::Scale{x.id, factor});
          },
          py::arg("x"), py::arg("factor"))
      .def(
          "xielu",
          [](Graph& g, const PyValue& x, float alpha_p, float alpha_n, float beta, float eps) {
            return add_one(g, graph::Xielu{x.id, alpha_p, alpha_n, beta, eps});
          },
          py::arg("x"), py::arg("alpha_p"), py::arg("alpha_n"), py::arg("beta"), py::arg("eps"))
      .def(
          "clamp",
          [](Graph& g, const PyValue& x, float limit) {
            return add_one(g, graph::Clamp{x.id, limit});
          },
          py::arg("x"), py::arg("limit"))
      .def(
          "softcap",
          [](Graph& g, const PyValue& x, float cap) {
            return add_one(g, graph::Softcap{x.id, cap});
          },
          py::arg("x"), py::arg("cap"));
}

void register_expert_ops(GraphClass& c) {
  c.def(
       "route",
       [](Graph& g, const PyValue& scores, int k, const std::string& scoring_name,
          const OptionalFloats& selection_bias, bool normalize, float scale, int groups,
          int kept_groups, int best_of_group, const OptionalFloats& expert_scale) {
         graph::Route op;
         op.scores = scores.id;
         op.k = k;
         op.scoring = scoring(scoring_name);
         op.selection_bias = vector(selection_bias);
         op.normalize = normalize;
         op.scale = scale;
         op.groups = groups;
         op.kept_groups = kept_groups;
         op.best_of_group = best_of_group;
         op.expert_scale = vector(expert_scale);
         const auto made = add(g, std::move(op));
         return py::make_tuple(made[0], made[1], made[2]);
       },
       py::arg("scores"), py::arg("k"), py::arg("scoring") = "softmax",
       py::arg("selection_bias") = py::none(), py::arg("normalize") = false,
       py::arg("scale") = 1.0f, py::arg("groups") = 1, py::arg("kept_groups") = 1,
       py::arg("best_of_group") = 1, py::arg("expert_scale") = py::none())
      .def(
          "dispatch",
          [](Graph& g, const PyValue& x, const PyValue& panels,
             const std::optional<PyValue>& weights) {
            return add_one(g, graph::Dispatch{x.id, panels.id, id_or_none(weights)});
          },
          py::arg("x"), py::arg("panels"), py::arg("weights") = py::none())
      .def(
          "expert_linear",
          [](Graph& g, const PyValue& x, const PyValue& panels, const WeightPtr& weight,
             const OptionalFloats& bias) {
            return add_one(g, graph::ExpertLinear{x.id, panels.id, weight, vector(bias)});
          },
          py::arg("x"), py::arg("panels"), py::arg("weight"), py::arg("bias") = py::none())
      .def(
          "combine",
          [](Graph& g, const PyValue& x, const PyValue& places,
             const std::optional<PyValue>& weights) {
            return add_one(g, graph::Combine{x.id, places.id, id_or_none(weights)});
          },
          py::arg("x"), py::arg("places"), py::arg("weights") = py::none());
}

void register_recurrent_ops(GraphClass& c) {
  c.def(
       "conv1d",
       [](Graph& g, const PyValue& x, const Floats& weight, const OptionalFloats& bias, int taps,
          int slot, bool silu) {
         return add_one(g, graph::Conv1d{x.id, vector(weight), vector(bias), taps, slot, silu});
       },
       py::arg("x"), py::arg("weight"), py::arg("bias"), py::arg("taps"), py::arg("slot"),
       py::arg("silu") = false)
      .def(
          "gated_delta",
          [](Graph& g, const PyValue& qkv, const PyValue& alpha, const PyValue& beta,
             const Floats& dt_bias, const Floats& decay, int key_heads, int key_dim, int value_dim,
             bool tiled, float eps, int slot) {
            return add_one(
                g, graph::GatedDelta{qkv.id, alpha.id, beta.id, vector(dt_bias), vector(decay),
                                     key_heads, key_dim, value_dim, tiled, eps, slot});
          },
          py::arg("qkv"), py::arg("alpha"), py::arg("beta"), py::arg("dt_bias"), py::arg("decay"),
          py::arg("key_heads"), py::arg("key_dim"), py::arg("value_dim"), py::arg("tiled"),
          py::arg("eps"), py::arg("slot"))
      .def(
          "mamba2_scan",
          [](Graph& g, const PyValue& xbc, const PyValue& time_step, const Floats& dt_bias,
             const Floats& decay, const Floats& skip, int groups, int state_dim, int slot) {
            return add_one(g,
                           graph::Mamba2Scan{xbc.id, time_step.id, vector(dt_bias), vector(decay),
                                             vector(skip), groups, state_dim, slot});
          },
          py::arg("xbc"), py::arg("time_step"), py::arg("dt_bias"), py::arg("decay"),
          py::arg("skip"), py::arg("groups"), py::arg("state_dim"), py::arg("slot"))
      .def(
          "mamba_scan",
          [](Graph& g, const PyValue& x, const PyValue& time_step, const PyValue& b,
             const PyValue& c, const Floats& dt_bias, const Floats& decay, const Floats& skip,
             int slot) {
            return add_one(g, graph::MambaScan{x.id, time_step.id, b.id, c.id, vector(dt_bias),
                                               vector(skip), vector(decay), slot});
          },
          py::arg("x"), py::arg("time_step"), py::arg("b"), py::arg("c"), py::arg("dt_bias"),
          py::arg("decay"), py::arg("skip"), py::arg("slot"))
      .def(
          "wkv7_scan",
          [](Graph& g, const PyValue& r, const PyValue& w, const PyValue& k, const PyValue& v,
             const PyValue& kk, const PyValue& a, int head_dim, int slot) {
            return add_one(g, graph::Wkv7Scan{r.id, w.id, k.id, v.id, kk.id, a.id, head_dim, slot});
          },
          py::arg("r"), py::arg("w"), py::arg("k"), py::arg("v"), py::arg("kk"), py::arg("a"),
          py::arg("head_dim"), py::arg("slot"))
      .def_static("scan_floats", &graph::scan_floats, py::arg("heads"), py::arg("key_dim"),
                  py::arg("value_dim"), "Floats of a scan's state.");
}

// (name, graph, its inputs as (name, row space, columns)) of each op.
py::list isolated(const Graph& g) {
  py::list all;
  for (const graph::IsolatedOp& op : graph::isolate_ops(g)) {
    py::list inputs;
    for (const graph::Op& o : op.graph.ops())
      if (const auto* input = std::get_if<graph::Input>(&o))
        inputs.append(py::make_tuple(
            input->name, input->rows.kind == graph::RowSpace::Kind::kRouted ? input->rows.k : 1,
            input->cols));
    all.append(py::make_tuple(op.name, std::make_shared<Graph>(op.graph), inputs));
  }
  return all;
}

// (graph, its layers of the cache, its entries of the slots) of each stage.
py::list cut(const Graph& g, const std::vector<size_t>& points) {
  py::list all;
  for (graph::Stage& s : graph::cut(g, points))
    all.append(py::make_tuple(std::make_shared<Graph>(std::move(s.graph)), s.paged, s.slots));
  return all;
}

std::vector<std::vector<std::string>> op_matrices(const Graph& g) {
  std::vector<std::vector<std::string>> all;
  for (const graph::Op& op : g.ops()) {
    std::vector<std::string> names;
    for (const WeightPtr& w : graph::matrices_of(op)) names.push_back(w->name());
    all.push_back(std::move(names));
  }
  return all;
}

// (name, row space, columns)
using Matrix = std::tuple<std::string, std::string, int64_t>;

std::vector<Matrix> inputs(const Graph& g) {
  std::vector<Matrix> all;
  for (const graph::Op& op : g.ops())
    if (const auto* input = std::get_if<graph::Input>(&op))
      all.emplace_back(input->name, to_string(input->rows), input->cols);
  return all;
}

std::vector<Matrix> results(const Graph& g) {
  std::vector<Matrix> all;
  for (const auto& [name, id] : g.outputs())
    all.emplace_back(name, to_string(g.value(id).rows), g.value(id).cols);
  return all;
}

std::vector<std::string> output_names(const Graph& g) {
  std::vector<std::string> all;
  for (const auto& [name, id] : g.outputs()) all.push_back(name);
  return all;
}

void register_paged_layer(py::module_& m) {
  using graph::PagedLayer;
  py::class_<PagedLayer>(m, "PagedLayer", "Keys and values that a layer keeps for each position.")
      .def(py::init([](int kv_heads, int key_dim, int value_dim, bool value_in_key) {
             return PagedLayer{kv_heads, key_dim, value_dim, value_in_key};
           }),
           py::arg("kv_heads"), py::arg("key_dim"), py::arg("value_dim"),
           py::arg("value_in_key") = false)
      .def_readonly("kv_heads", &PagedLayer::kv_heads)
      .def_readonly("key_dim", &PagedLayer::key_dim)
      .def_readonly("value_dim", &PagedLayer::value_dim)
      .def_readonly("value_in_key", &PagedLayer::value_in_key,
                    "A value is the first value_dim floats of its key.")
      .def("__eq__", &PagedLayer::operator==, py::is_operator());
}

void register_graph_class(py::module_& m) {
  GraphClass c(m, "Graph", "A forward pass; its ops are methods that check and return values.");
  c.def(py::init<>())
      .def("add_paged_layer", &Graph::add_paged_layer, py::arg("layer"),
           "Declares keys and values that are kept for each position; returns the layer's index.")
      .def("add_slot", &Graph::add_slot, py::arg("floats"),
           "Declares recurrent state; returns the entry's index.")
      .def(
          "set_output",
          [](Graph& g, const std::string& name, const PyValue& v) { g.set_output(name, v.id); },
          py::arg("name"), py::arg("value"))
      .def_property_readonly(
          "ops",
          [](const Graph& g) {
            std::vector<std::string> names;
            for (const graph::Op& op : g.ops()) names.emplace_back(graph::name_of(op));
            return names;
          },
          "Names of the ops, in order.")
      .def_property_readonly("matrices", &Graph::matrices,
                             "Weights of linear layers, each once, in the order of their use.")
      .def_property_readonly(
          "paged_layers", [](const Graph& g) { return g.state().paged; },
          "The layers of the cache.")
      .def_property_readonly(
          "position_axes",
          [](const Graph& g) {
            int32_t most = 0;
            for (const graph::Op& op : g.ops())
              if (const auto* table = std::get_if<graph::RopeTable>(&op))
                most = std::max(most, table->axis_count());
            return most;
          },
          "Axes of positions that rope reads; 0: none but the position in a sequence.")
      .def_property_readonly(
          "slot_entries", [](const Graph& g) { return g.state().slot; },
          "Floats of each entry of recurrent state.")
      .def_property_readonly("outputs", &output_names, "Names of the outputs.")
      .def_property_readonly("results", &results, "(name, row space, columns) of the outputs.")
      .def_property_readonly("inputs", &inputs, "(name, row space, columns) of the inputs.")
      .def_property_readonly("op_matrices", &op_matrices,
                             "Names of the matrices of each op, in order; most have none.")
      .def(
          "crossing_columns",
          [](const Graph& g, size_t at) -> std::optional<int64_t> {
            const int64_t columns = graph::crossing_columns(g, at);
            return columns < 0 ? std::nullopt : std::optional<int64_t>(columns);
          },
          py::arg("at"),
          "Floats a row that a cut before op `at` moves; None where something else would move.")
      .def("cut", &cut, py::arg("points"),
           "(graph, its layers of the cache, its entries of the slots) of each stage between cuts "
           "before the ops `points`.")
      .def("isolated", &isolated,
           "(name, graph, [(input, rows a token, columns)]) of one op of each kind and shape.");
  register_row_ops(c);
  register_linear_ops(c);
  register_attention_ops(c);
  register_picture_ops(c);
  register_elementwise_ops(c);
  register_expert_ops(c);
  register_recurrent_ops(c);
}

}  // namespace

void register_graph(py::module_& m) {
  register_weight(m);
  register_value(m);
  register_paged_layer(m);
  register_graph_class(m);
}

}  // namespace oxibonsai::bindings
