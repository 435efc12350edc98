#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "bindings/register.h"
#include "format/cursor.h"
#include "format/gguf.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

using format::Cursor;
using format::GgufFile;
using format::MetadataEntry;
using format::TensorInfo;
using format::ValueType;

// Text that is not valid UTF-8 keeps its bytes as surrogates.
py::object text(std::string_view bytes) {
  PyObject* s =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (s == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(s);
}

template <class T>
py::object numbers(Cursor* c, uint64_t count, const uint8_t* data) {
  py::array_t<T> out(static_cast<py::ssize_t>(count));
  if (count != 0) std::memcpy(out.mutable_data(), data + c->at(), count * sizeof(T));
  return std::move(out);
}

py::object read_value(Cursor* c, ValueType type, const uint8_t* data);

// Nested arrays and strings become lists, numbers numpy arrays. The file was checked when opened.
py::object read_array(Cursor* c, const uint8_t* data) {
  const ValueType element = c->value_type("array");
  const auto count = c->number<uint64_t>("array");
  switch (element) {
    case ValueType::kU8:
      return numbers<uint8_t>(c, count, data);
    case ValueType::kI8:
      return numbers<int8_t>(c, count, data);
    case ValueType::kU16:
      return numbers<uint16_t>(c, count, data);
    case ValueType::kI16:
      return numbers<int16_t>(c, count, data);
    case ValueType::kU32:
      return numbers<uint32_t>(c, count, data);
    case ValueType::kI32:
      return numbers<int32_t>(c, count, data);
    case ValueType::kF32:
      return numbers<float>(c, count, data);
    case ValueType::kU64:
      return numbers<uint64_t>(c, count, data);
    case ValueType::kI64:
      return numbers<int64_t>(c, count, data);
    case ValueType::kF64:
      return numbers<double>(c, count, data);
    default:
      break;
  }
  py::list out;
  for (uint64_t i = 0; i < count; ++i) out.append(read_value(c, element, data));
  return std::move(out);
}

py::object read_value(Cursor* c, ValueType type, const uint8_t* data) {
  switch (type) {
    case ValueType::kU8:
      return py::int_(c->number<uint8_t>(""));
    case ValueType::kI8:
      return py::int_(c->number<int8_t>(""));
    case ValueType::kU16:
      return py::int_(c->number<uint16_t>(""));
    case ValueType::kI16:
      return py::int_(c->number<int16_t>(""));
    case ValueType::kU32:
      return py::int_(c->number<uint32_t>(""));
    case ValueType::kI32:
      return py::int_(c->number<int32_t>(""));
    case ValueType::kF32:
      return py::float_(c->number<float>(""));
    case ValueType::kBool:
      return py::bool_(c->number<uint8_t>("") != 0);
    case ValueType::kString:
      return text(c->string(""));
    case ValueType::kU64:
      return py::int_(c->number<uint64_t>(""));
    case ValueType::kI64:
      return py::int_(c->number<int64_t>(""));
    case ValueType::kF64:
      return py::float_(c->number<double>(""));
    default:
      break;
  }
  Cursor start = *c;
  c->skip_value(ValueType::kArray, "");
  return read_array(&start, data);
}

py::object get(const GgufFile& file, const std::string& key, py::object fallback) {
  const MetadataEntry* e = file.find_key(key);
  if (e == nullptr) return fallback;
  Cursor c(file.bytes(), file.size(), e->offset);
  return read_value(&c, e->type, file.bytes());
}

const TensorInfo& tensor(const GgufFile& file, const std::string& name) {
  const TensorInfo* t = file.find_tensor(name);
  if (t == nullptr) throw FormatError(file.path() + " has no tensor " + name);
  return *t;
}

py::array tensor_bytes(const std::shared_ptr<const GgufFile>& file, const std::string& name) {
  const TensorInfo& t = tensor(*file, name);
  auto* owner = new std::shared_ptr<const GgufFile>(file);
  const py::capsule keep(owner,
                         [](void* p) { delete static_cast<std::shared_ptr<const GgufFile>*>(p); });
  py::array_t<uint8_t> view(static_cast<py::ssize_t>(t.bytes), file->data(t), keep);
  view.attr("setflags")(py::arg("write") = false);
  return std::move(view);
}

void release(const GgufFile& file, const std::string& name) {
  const TensorInfo& t = tensor(file, name);
  file.release(file.data(t), static_cast<int64_t>(t.bytes));
}

py::tuple shape(const TensorInfo& t) {
  py::tuple out(t.dims.size());
  for (size_t i = 0; i < t.dims.size(); ++i) out[i] = t.dims[t.dims.size() - 1 - i];
  return out;
}

std::vector<std::string> keys(const GgufFile& file) {
  std::vector<std::string> all;
  for (const MetadataEntry& e : file.metadata()) all.push_back(e.key);
  return all;
}

}  // namespace

void register_format(py::module_& m) {
  py::class_<TensorInfo>(m, "TensorInfo")
      .def_readonly("name", &TensorInfo::name)
      .def_property_readonly("shape", &shape, "Slowest dimension first, as numpy has it.")
      .def_property_readonly("quant_type",
                             [](const TensorInfo& t) { return std::string(t.type_name); })
      .def_property_readonly("decodable", [](const TensorInfo& t) { return t.type.has_value(); })
      .def_readonly("gguf_id", &TensorInfo::gguf_id)
      .def_readonly("offset", &TensorInfo::offset, "Bytes from the start of the file.")
      .def_readonly("nbytes", &TensorInfo::bytes);
  py::class_<MappedFile, std::shared_ptr<MappedFile>>(m, "MappedFile", py::buffer_protocol(),
                                                      "A whole file, mapped read-only.")
      .def(py::init<const std::string&>(), py::arg("path"))
      .def("__len__", &MappedFile::size)
      .def("check_unchanged", &MappedFile::check_unchanged,
           "Raises FormatError if the file has been written to since it was mapped.")
      .def(
          "release",
          [](const MappedFile& f, uint64_t first, std::optional<uint64_t> last) {
            const uint64_t end = std::min(last.value_or(f.size()), f.size());
            if (first < end) f.release(f.data() + first, static_cast<int64_t>(end - first));
          },
          py::arg("first") = 0, py::arg("last") = py::none(),
          "Takes bytes first to last - 1 out of memory; the next look at them reads the file "
          "again.")
      .def_buffer([](const MappedFile& f) {
        return py::buffer_info(f.data(), static_cast<py::ssize_t>(f.size()));
      });
  py::class_<GgufFile, std::shared_ptr<GgufFile>>(m, "GgufFile")
      .def(py::init([](const std::string& path, const std::string& quant_type) {
             return std::const_pointer_cast<GgufFile>(GgufFile::open(path, quant_type));
           }),
           py::arg("path"), py::arg("quant_type") = "")
      .def_property_readonly("path", &GgufFile::path)
      .def_property_readonly("version", &GgufFile::version)
      .def_property_readonly("alignment", &GgufFile::alignment)
      .def_property_readonly("size", &GgufFile::size)
      .def_property_readonly("tensors", &GgufFile::tensors)
      .def("keys", &keys)
      .def("get", &get, py::arg("key"), py::arg("default") = py::none())
      .def("metadata_type",
           [](const GgufFile& f, const std::string& key) -> py::object {
             const MetadataEntry* e = f.find_key(key);
             if (e == nullptr) return py::none();
             return py::str(format::value_type_name(e->type));
           })
      .def("tensor", &tensor, py::arg("name"), py::return_value_policy::reference_internal)
      .def("tensor_bytes", &tensor_bytes, py::arg("name"),
           "Read-only view of a tensor's stored bytes; keeps the file mapped.")
      .def("check_unchanged", &GgufFile::check_unchanged,
           "Raises FormatError if the file has been written to since it was opened.")
      .def("release", &release, py::arg("name"),
           "Takes a tensor's bytes out of memory; the next look at them reads the file again.");
}

}  // namespace oxibonsai::bindings
