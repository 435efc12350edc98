#include <new>

#include "base/check.h"
#include "bindings/register.h"

namespace py = pybind11;

namespace oxibonsai::bindings {
namespace {

void raise(const char* class_name, const char* message) {
  const py::object type = py::module_::import("oxibonsai.errors").attr(class_name);
  PyErr_SetString(type.ptr(), message);
}

// The Python class of the same name for each C++ class.
void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const FormatError& e) {
    raise("FormatError", e.what());
  } catch (const UnsupportedError& e) {
    raise("UnsupportedError", e.what());
  } catch (const RequestError& e) {
    raise("RequestError", e.what());
  } catch (const CapacityError& e) {
    raise("CapacityError", e.what());
  } catch (const DeviceError& e) {
    raise("DeviceError", e.what());
  } catch (const Error& e) {
    raise("OxiBonsaiError", e.what());
  } catch (const std::bad_alloc&) {
    raise("CapacityError", "out of memory");
  }
}

}  // namespace

void register_errors(py::module_&) { py::register_exception_translator(&translate); }

}  // namespace oxibonsai::bindings
