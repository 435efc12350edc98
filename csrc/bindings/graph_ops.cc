#include "base/check.h"
#include "bindings/graph_class.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using graph::Graph;
using graph::InputSums;
using graph::ValueId;
using graph::WeightPtr;

std::vector<PyValue> add(Graph& g, graph::Op op) {
  std::vector<PyValue> made;
  for (const ValueId id : g.add(std::move(op))) made.push_back({id, g.value(id)});
  return made;
}

PyValue add_one(Graph& g, graph::Op op) { return add(g, std::move(op)).front(); }

graph::Activation activation(const std::string& name) {
  if (name == "silu") return graph::Activation::kSilu;
  if (name == "gelu") return graph::Activation::kGelu;
  if (name == "gelu_tanh") return graph::Activation::kGeluTanh;
  if (name == "relu") return graph::Activation::kRelu;
  if (name == "relu2") return graph::Activation::kRelu2;
  if (name == "sigmoid") return graph::Activation::kSigmoid;
  if (name == "identity") return graph::Activation::kIdentity;
  if (name == "swiglu_oai") return graph::Activation::kSwigluOai;
  throw RequestError(
      "no activation is called " + name +
      "; there are silu, gelu, gelu_tanh, relu, relu2, sigmoid, identity and swiglu_oai");
}

graph::KeyPart key_part(const std::string& name) {
  if (name == "all") return graph::KeyPart::kAll;
  if (name == "encoded") return graph::KeyPart::kEncoded;
  if (name == "own") return graph::KeyPart::kOwn;
  throw RequestError("no part of the positions is called " + name +
                     "; known are all, encoded, own");
}

graph::QueryPart query_part(const std::string& name) {
  if (name == "all") return graph::QueryPart::kAll;
  if (name == "global") return graph::QueryPart::kGlobal;
  if (name == "others") return graph::QueryPart::kOthers;
  throw RequestError("no part of the queries is called " + name +
                     "; known are all, global, others");
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
             const OptionalFloats& slopes, const OptionalFloats& position_bias, int global_tokens,
             const std::string& queries, int block_size, int random_blocks) {
            const graph::LocalMask mask{
                causal, window, global_tokens, query_part(queries), block_size, random_blocks};
            return add_one(g, graph::AttendLocal{q.id, k.id, v.id, head_dim, scale, segments, mask,
                                                 vector(slopes), vector(position_bias)});
          },
          py::arg("q"), py::arg("k"), py::arg("v"), py::arg("head_dim"), py::arg("scale"),
          py::arg("segments") = "", py::arg("causal") = false, py::arg("window") = 0,
          py::arg("slopes") = py::none(), py::arg("position_bias") = py::none(),
          py::arg("global_tokens") = 0, py::arg("queries") = "all", py::arg("block_size") = 0,
          py::arg("random_blocks") = 0);
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
          "gaussian_top_k",
          [](Graph& g, const PyValue& x, float deviations) {
            return add_one(g, graph::GaussianTopK{x.id, deviations});
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

}  // namespace

void register_ops(GraphClass& c) {
  register_row_ops(c);
  register_linear_ops(c);
  register_attention_ops(c);
  register_picture_ops(c);
  register_elementwise_ops(c);
  register_expert_ops(c);
  register_recurrent_ops(c);
}

}  // namespace oxibonsai::bindings
