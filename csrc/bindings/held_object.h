#pragma once

#include <pybind11/pybind11.h>

#include <utility>

namespace oxibonsai::bindings {

// A Python object that any thread may give back, also one without the GIL. A member of C++ objects
// that may outlive the call from Python that made them.
template <class Object>
class HeldObject {
 public:
  explicit HeldObject(Object object) : object_(std::move(object)) {}
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  // Nothing is left for the member's own destructor, which runs when the GIL has been released.
  ~HeldObject() {
    const pybind11::gil_scoped_acquire gil;
    object_.release().dec_ref();
  }

  // Only with the GIL.
  const Object& operator*() const { return object_; }

 private:
  Object object_;
};

}  // namespace oxibonsai::bindings
