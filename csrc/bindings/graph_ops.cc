#include "base/check.h"
#include "bindings/graph_class.h"
#include "graph/enum_names.h"

// The ops as methods of Graph, and what they are: both from the fields that each op lists
// (graph/op.h).

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using graph::Graph;
using graph::InputSums;
using graph::Need;
using graph::ValueId;

// A field as Python sees it: the name of its type, what is read from an argument, and what is
// shown as its default.
template <class T, class = void>
struct Field;

template <class T>
struct PlainField {
  static void read(py::handle h, T& field) { field = h.cast<T>(); }
};
template <>
struct Field<bool> : PlainField<bool> {
  static constexpr const char* kType = "bool";
  static py::object show(bool v) { return py::bool_(v); }
};
template <class T>
struct Field<T, std::enable_if_t<std::is_integral_v<T>>> : PlainField<T> {
  static constexpr const char* kType = "int";
  static py::object show(T v) { return py::int_(v); }
};
template <>
struct Field<float> : PlainField<float> {
  static constexpr const char* kType = "float";
  static py::object show(float v) { return py::float_(v); }
};
template <>
struct Field<std::string> : PlainField<std::string> {
  static constexpr const char* kType = "str";
  static py::object show(const std::string& v) { return py::str(v); }
};
template <>
struct Field<std::vector<int32_t>> : PlainField<std::vector<int32_t>> {
  static constexpr const char* kType = "Sequence[int]";
  static py::object show(const std::vector<int32_t>& v) { return py::tuple(py::cast(v)); }
};
template <>
struct Field<graph::Weights> : PlainField<graph::Weights> {
  static constexpr const char* kType = "Sequence[Weight]";
};
template <>
struct Field<graph::WeightPtr> : PlainField<graph::WeightPtr> {
  static constexpr const char* kType = "Weight";
};
template <>
struct Field<std::shared_ptr<InputSums>> : PlainField<std::shared_ptr<InputSums>> {
  static constexpr const char* kType = "InputSums";
};

template <class T>
struct Field<T, std::enable_if_t<std::is_enum_v<T>>> {
  static constexpr const char* kType = "str";
  static void read(py::handle h, T& field) { graph::set_by_name(h.cast<std::string>(), field); }
  static py::object show(T v) { return py::str(names_of(v).names[static_cast<size_t>(v)]); }
};

template <>
struct Field<graph::Vector> {
  static constexpr const char* kType = "_Floats";
  static void read(py::handle h, graph::Vector& field) { field = vector(h.cast<Floats>()); }
  static py::object show(const graph::Vector&) { return py::none(); }
};

template <>
struct Field<std::vector<graph::Vector>> {
  static constexpr const char* kType = "Sequence[_Floats | None]";
  static void read(py::handle h, std::vector<graph::Vector>& field) {
    for (const auto& v : h.cast<std::vector<std::optional<Floats>>>()) field.push_back(vector(v));
  }
  static py::object show(const std::vector<graph::Vector>&) { return py::tuple(); }
};

// The rows of a value.
template <>
struct Field<graph::RowSpace> {
  static constexpr const char* kType = "Value";
  static void read(py::handle h, graph::RowSpace& field) { field = h.cast<PyValue>().value.rows; }
};

template <>
struct Field<graph::ConvWeight> {
  static constexpr const char* kType = "_Floats";
  static void read(py::handle h, graph::ConvWeight& field) {
    const auto weight = h.cast<Floats>();
    if (weight.ndim() != 4 || weight.shape(2) != weight.shape(3))
      throw RequestError("the weight of a convolution is [out, columns of x, kernel, kernel]");
    field.channels = weight.shape(0);
    field.kernel = static_cast<int>(weight.shape(2));
    field.blocked =
        graph::blocked_weight(weight.data(), field.channels, weight.shape(1), field.kernel);
  }
};

// Fills an op's fields from the arguments of a call, which come in their order or by name.
class Arguments {
 public:
  Arguments(const char* method, py::args in_order, const py::kwargs& by_name)
      : method_(method), in_order_(std::move(in_order)), by_name_(by_name) {}

  Arguments& reads(const char* name, ValueId& id, Need need = graph::kRequired) {
    if (const py::handle h = next(name, need, true))
      cast(name, "Value", [&] { id = h.cast<PyValue>().id; });
    return *this;
  }
  template <class T>
  Arguments& takes(const char* name, T& field, Need need = graph::kRequired) {
    if (const py::handle h = next(name, need, std::is_same_v<T, graph::Vector>))
      cast(name, Field<T>::kType, [&] { Field<T>::read(h, field); });
    return *this;
  }
  Arguments& state(const char* name, int& index) { return takes(name, index); }
  template <class Ids>
  Arguments& makes(const char*, Ids&, size_t = 1) {
    return *this;
  }

  void finish() const {
    if (used_ < in_order_.size()) refuse("takes " + std::to_string(used_) + " arguments");
    if (found_by_name_ == by_name_.size()) return;
    for (const auto& [name, value] : by_name_)
      if (!names_.contains(name)) refuse("has no argument " + name.cast<std::string>());
    refuse("has an argument twice");
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw py::type_error(std::string(method_) + "() " + why);
  }

  template <class F>
  void cast(const char* name, const char* type, const F& read) const {
    try {
      read();
    } catch (const py::cast_error&) {
      refuse(std::string("takes a ") + type + " as " + name);
    }
  }

  // Null where the field stays as it is. A field that may be left out may be None if its type has
  // an empty value.
  py::handle next(const char* name, Need need, bool has_empty) {
    names_.add(py::str(name));
    py::handle found;
    if (used_ < in_order_.size()) {
      found = PyTuple_GET_ITEM(in_order_.ptr(), static_cast<py::ssize_t>(used_));
      ++used_;
    } else if (by_name_.contains(name)) {
      found = by_name_[name].ptr();
      ++found_by_name_;
    } else if (need != graph::kOptional) {
      refuse(std::string("lacks ") + name);
    }
    if (!found || !found.is_none()) return found;
    if (need == graph::kRequired || !has_empty) refuse(std::string("takes no None as ") + name);
    return {};
  }

  const char* const method_;
  const py::args in_order_;
  const py::kwargs& by_name_;
  py::set names_;
  size_t used_ = 0, found_by_name_ = 0;
};

template <class T, class = void>
constexpr bool kIsShown = false;
template <class T>
constexpr bool kIsShown<T, std::void_t<decltype(&Field<T>::show)>> = true;

// Lists an op's fields: (name, type, "required" or default) each, and what its method returns.
class FieldLister {
 public:
  py::list fields;
  std::vector<std::string> made;

  FieldLister& reads(const char* name, ValueId&, Need need = graph::kRequired) {
    return add(name, "Value", need, py::none());
  }
  template <class T>
  FieldLister& takes(const char* name, T& field, Need need = graph::kRequired) {
    py::object shown = py::none();
    if constexpr (kIsShown<T>) shown = Field<T>::show(field);
    return add(name, Field<T>::kType, need, std::move(shown));
  }
  FieldLister& state(const char* name, int& index) { return takes(name, index); }
  FieldLister& makes(const char*, ValueId&) {
    made.emplace_back("Value");
    return *this;
  }
  FieldLister& makes(const char*, std::vector<ValueId>&, size_t) {
    made.emplace_back("list[Value]");
    return *this;
  }

 private:
  FieldLister& add(const char* name, std::string type, Need need, py::object shown) {
    if (need == graph::kNullable || (need == graph::kOptional && shown.is_none()))
      type += " | None";
    fields.append(py::make_tuple(name, type, need == graph::kOptional, std::move(shown)));
    return *this;
  }
};

struct OpMethod {
  const char* name;
  const char* doc;
  graph::Op (*read)(Arguments&);
  void (*list)(FieldLister&);
};

template <class T>
OpMethod method() {
  return {T::kName, T::kDoc,
          [](Arguments& arguments) -> graph::Op {
            T op;
            op.fields(arguments);
            arguments.finish();
            return op;
          },
          [](FieldLister& lister) {
            T op;
            op.fields(lister);
          }};
}

template <class T, class = void>
constexpr bool kHasDoc = false;
template <class T>
constexpr bool kHasDoc<T, std::void_t<decltype(T::kDoc)>> = true;

template <class T>
void collect(std::vector<OpMethod>* methods) {
  if constexpr (kHasDoc<T>) methods->push_back(method<T>());
}

template <class... All>
std::vector<OpMethod> methods_of(const std::variant<All...>*) {
  std::vector<OpMethod> methods;
  (collect<All>(&methods), ...);
  return methods;
}

std::vector<OpMethod> op_methods() {
  return methods_of(static_cast<const graph::OpVariant*>(nullptr));
}

// What an op makes: nothing, a value, all of a number of values in a list, or a tuple.
py::object add(Graph& g, graph::Op op) {
  const bool many = std::holds_alternative<graph::Linear>(op);
  py::list made;
  for (const ValueId id : g.add(std::move(op))) made.append(PyValue{id, g.value(id)});
  if (many) return std::move(made);
  if (made.empty()) return py::none();
  return made.size() == 1 ? py::object(made[0]) : py::tuple(made);
}

// The rows of an input: those of the tokens, its own, one a sequence, or pixels of a grid.
py::object input(Graph& g, const std::string& name, int64_t cols, bool own_rows, bool sequences,
                 int pixels) {
  if (own_rows + sequences + (pixels > 1) > 1 || pixels < 1)
    throw RequestError("the input " + name + " has rows of one kind");
  graph::RowSpace rows = graph::pixels(pixels);
  if (own_rows) rows = graph::input_rows(name);
  if (sequences) rows = graph::sequences();
  return add(g, graph::Input{name, rows, cols});
}

// (name, docstring, [(argument, type, may be left out, default)], [what it makes]) of each method.
py::list list_ops() {
  py::list all;
  for (const OpMethod& m : op_methods()) {
    FieldLister lister;
    m.list(lister);
    all.append(py::make_tuple(m.name, m.doc, lister.fields, lister.made));
  }
  return all;
}

}  // namespace

void register_ops(py::module_& m, GraphClass& c) {
  c.def("input", &input, py::arg("name"), py::arg("cols"), py::arg("own_rows") = false,
        py::arg("sequences") = false, py::arg("pixels") = 1);
  for (const OpMethod& op : op_methods())
    c.def(
        op.name,
        [op](Graph& g, const py::args& in_order, const py::kwargs& by_name) {
          Arguments arguments(op.name, in_order, by_name);
          return add(g, op.read(arguments));
        },
        op.doc);
  c.def_static("scan_floats", &graph::scan_floats, py::arg("heads"), py::arg("key_dim"),
               py::arg("value_dim"), "Floats of a scan's state.");
  m.def("graph_ops", &list_ops,
        "(name, docstring, [(argument, type, may be left out, default)], [what it makes]) of the "
        "ops.");
}

}  // namespace oxibonsai::bindings
