#include "sampling/sampling.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <limits>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/exp_log.h"
#include "base/threefry.h"
#include "bindings/register.h"
#include "sampling/candidates.h"
#include "sampling/normals.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using sampling::Candidates;
using sampling::Tokens;
using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Ids = py::array_t<int32_t, py::array::c_style>;
using Words = py::array_t<uint32_t, py::array::c_style>;

const Floats& non_empty(const Floats& logits) {
  if (logits.size() == 0) throw RequestError("no logits to choose from");
  return logits;
}

// Token ids out of an int32 array, in place, or out of any sequence of integers.
class History {
 public:
  explicit History(const py::object& source) : source_(source) {
    if (py::isinstance<Ids>(source)) {
      const auto ids = py::reinterpret_borrow<Ids>(source);
      tokens_ = {ids.data(), ids.size()};
      return;
    }
    const auto items = py::reinterpret_steal<py::object>(
        PySequence_Fast(source.ptr(), "token ids must be a sequence of integers"));
    if (!items) throw py::error_already_set();
    copy_.resize(static_cast<size_t>(PySequence_Fast_GET_SIZE(items.ptr())));
    for (size_t i = 0; i < copy_.size(); ++i) {
      const long id =
          PyLong_AsLong(PySequence_Fast_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)));
      if (id == -1 && PyErr_Occurred()) throw py::error_already_set();
      if (id < 0 || id > std::numeric_limits<int32_t>::max())
        throw RequestError("token " + std::to_string(id) + " is outside every vocabulary");
      copy_[i] = static_cast<int32_t>(id);
    }
    tokens_ = {copy_.data(), static_cast<int64_t>(copy_.size())};
  }
  Tokens tokens() const { return tokens_; }

 private:
  py::object source_;
  std::vector<int32_t> copy_;
  Tokens tokens_;
};

// Other Python threads run while a whole vocabulary is worked on; for a handful of candidates,
// handing the lock over costs more than the work.
class Unlocked {
 public:
  explicit Unlocked(int64_t candidates) {
    if (candidates > 4096) release_.emplace();
  }

 private:
  std::optional<py::gil_scoped_release> release_;
};

template <class... Args>
auto step(void (Candidates::*f)(Args...)) {
  return [f](Candidates& c, Args... args) {
    const Unlocked unlocked(c.size());
    (c.*f)(args...);
  };
}

void start(Candidates& c, const Floats& logits, const std::optional<Words>& mask) {
  const float* data = non_empty(logits).data();
  const int64_t n = logits.size();
  const uint32_t* words = mask ? mask->data() : nullptr;
  const int64_t count = mask ? mask->size() : 0;
  const Unlocked unlocked(n);
  c.start(data, n, words, count);
}

py::tuple logprobs(Candidates& c, int64_t token, int64_t top) {
  std::vector<sampling::TokenLogprob> entries;
  {
    const Unlocked unlocked(c.size());
    entries = c.logprobs(token, top);
  }
  py::list best;
  for (size_t i = 1; i < entries.size(); ++i)
    best.append(py::make_tuple(entries[i].token, entries[i].logprob));
  return py::make_tuple(entries[0].logprob, py::tuple(best));
}

void bind_candidates(py::module_& m) {
  py::class_<Candidates>(m, "Candidates", "The candidates for one token; see docs/sampling.md.")
      .def(py::init<>())
      .def("__len__", &Candidates::size)
      .def("start", &start, py::arg("logits"), py::arg("mask") = py::none())
      .def(
          "start_with",
          [](Candidates& c, const Ids& ids, const Floats& logits, int64_t vocabulary) {
            if (ids.size() == 0 || ids.size() != logits.size() || ids.size() > vocabulary)
              throw RequestError("start_with() takes one logit for each id, of some ids");
            c.start_with(ids.data(), logits.data(), ids.size(), vocabulary);
          },
          py::arg("ids"), py::arg("logits"), py::arg("vocabulary"))
      .def("add_bias",
           [](Candidates& c, const py::object& ids, const Floats& bias) {
             const History tokens(ids);
             if (tokens.tokens().size != bias.size())
               throw RequestError("add_bias() takes one bias for each id");
             c.add_bias(tokens.tokens(), bias.data());
           })
      .def("ban", [](Candidates& c, const py::object& ids) { c.ban(History(ids).tokens()); })
      .def("penalise_repetition",
           [](Candidates& c, const py::object& window, float penalty) {
             c.penalise_repetition(History(window).tokens(), penalty);
           })
      .def("penalise_presence",
           [](Candidates& c, const py::object& generated, float presence, float frequency) {
             c.penalise_presence(History(generated).tokens(), presence, frequency);
           })
      .def("penalise_dry",
           [](Candidates& c, const py::object& ids, double multiplier, double base, int64_t allowed,
              const Ids& breakers) {
             const History history(ids);
             const Tokens stops = {breakers.data(), breakers.size()};
             const Unlocked unlocked(history.tokens().size);
             c.penalise_dry(history.tokens(), multiplier, base, allowed, stops);
           })
      .def("drop_top_choices", step(&Candidates::drop_top_choices))
      .def("keep_typical", step(&Candidates::keep_typical))
      .def("keep_top_a", step(&Candidates::keep_top_a))
      .def("keep_eta", step(&Candidates::keep_eta))
      .def("keep_epsilon", step(&Candidates::keep_epsilon))
      .def("divide", step(&Candidates::divide))
      .def("divide_by_entropy", step(&Candidates::divide_by_entropy))
      .def("keep_top_k", step(&Candidates::keep_top_k))
      .def("keep_min_p", step(&Candidates::keep_min_p))
      .def("keep_top_p", step(&Candidates::keep_top_p))
      .def("keep_zipf", step(&Candidates::keep_zipf))
      .def("keep_below_surprisal", step(&Candidates::keep_below_surprisal))
      .def("greedy", &Candidates::greedy)
      .def("draw",
           [](Candidates& c, double u) {
             sampling::Drawn drawn;
             {
               const Unlocked unlocked(c.size());
               drawn = c.draw(u);
             }
             return py::make_tuple(drawn.token, drawn.surprisal);
           })
      .def("logprobs", &logprobs, py::arg("token"), py::arg("top"))
      .def("ids", &Candidates::ids)
      .def("probabilities", &Candidates::probabilities);
}

py::array_t<float> normals(void (*draw)(uint64_t, int64_t, float*), uint64_t seed, int64_t count) {
  if (count < 0) throw RequestError("a negative count of random numbers");
  py::array_t<float> out(count);
  float* data = out.mutable_data();
  const py::gil_scoped_release unlocked;
  draw(seed, count, data);
  return out;
}

}  // namespace

void register_sampling(py::module_& m) {
  bind_candidates(m);
  m.def(
      "argmax", [](const Floats& x) { return sampling::argmax(non_empty(x).data(), x.size()); },
      py::arg("logits"), "The lowest index of the largest logit.");
  m.def(
      "top_k",
      [](const Floats& x, int64_t k) {
        const std::vector<int32_t> best = sampling::top_k(non_empty(x).data(), x.size(), k);
        return py::array_t<int32_t>(static_cast<py::ssize_t>(best.size()), best.data());
      },
      py::arg("logits"), py::arg("k"), "Indices of the k largest, ties by lower index.");
  m.def(
      "exp",
      [](const Floats& x) {
        py::array_t<float> y(x.size());
        sampling::exp(x.data(), x.size(), y.mutable_data());
        return y;
      },
      py::arg("x"), "e^x of the one arithmetic, the same bits on every machine.");
  m.def("log", &exact_log, py::arg("x"), "ln x in double, the same bits on every machine.");
  m.def("uniform", &sampling::uniform, py::arg("seed"), py::arg("counter"),
        "Uniform in [0, 1), a function of (seed, counter) alone.");
  m.def(
      "threefry2x32",
      [](uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1) {
        const Words2 w = threefry2x32({k0, k1}, {c0, c1});
        return py::make_tuple(w.a, w.b);
      },
      py::arg("k0"), py::arg("k1"), py::arg("c0"), py::arg("c1"));
  m.def(
      "mlx_normals",
      [](uint64_t seed, int64_t count) { return normals(&sampling::mlx_normals, seed, count); },
      py::arg("seed"), py::arg("count"), "Standard normal float32 as MLX draws them from a key.");
  m.def(
      "torch_normals",
      [](uint64_t seed, int64_t count) { return normals(&sampling::torch_normals, seed, count); },
      py::arg("seed"), py::arg("count"),
      "Standard normal float32 as torch's generator gives them; at least 16.");
}

}  // namespace oxibonsai::bindings
