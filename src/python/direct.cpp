// mhla._direct: torch.ops.mhla.attention for eager Python. Matching twenty arguments against a schema takes torch.ops
// longer than a small call itself; this reads them by position. Whatever is out of the ordinary (a subclass of Tensor,
// a torch function mode, an argument of another type) is left to torch.ops: the answer is NotImplemented.
#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "mhla/types.hpp"
#include "torch/arguments.hpp"

namespace mhla::dispatch {
namespace {

// Arguments in their order. Once one is not as expected, ok() is false and the values mean nothing.
class Reader {
 public:
  Reader(PyObject* const* arguments, Py_ssize_t count) : next_(arguments), end_(arguments + count) {}

  bool ok() const { return ok_; }

  at::Tensor tensor() {
    PyObject* const object = take();
    return expect(THPVariable_CheckExact(object)) ? THPVariable_Unpack(object) : at::Tensor();
  }
  OptionalTensor optional_tensor() {
    if (next_ == end_ || *next_ != Py_None) return tensor();
    ++next_;
    return std::nullopt;
  }
  std::string_view text() {
    PyObject* const object = take();
    if (!expect(PyUnicode_CheckExact(object))) return {};
    Py_ssize_t size = 0;
    const char* const data = PyUnicode_AsUTF8AndSize(object, &size);
    if (expect(data != nullptr)) return {data, static_cast<std::size_t>(size)};
    PyErr_Clear();
    return {};
  }
  double number() {
    PyObject* const object = take();
    return expect(PyFloat_CheckExact(object)) ? PyFloat_AS_DOUBLE(object) : 0;
  }
  std::int64_t integer() { return integer(take()); }
  template <typename Integer>
  c10::SmallVector<Integer, 3> integers() {
    PyObject* const object = take();
    c10::SmallVector<Integer, 3> list;
    if (!expect(PyTuple_CheckExact(object))) return list;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(object); ++n) list.emplace_back(integer(PyTuple_GET_ITEM(object, n)));
    return list;
  }

 private:
  PyObject* take() { return expect(next_ != end_) ? *next_++ : Py_None; }
  bool expect(bool as_expected) { return ok_ = ok_ && as_expected; }
  std::int64_t integer(PyObject* object) {
    int overflow = 0;
    const std::int64_t value = expect(PyLong_CheckExact(object)) ? PyLong_AsLongLongAndOverflow(object, &overflow) : 0;
    expect(overflow == 0);
    return value;
  }

  PyObject* const* next_;
  PyObject* const* const end_;
  bool ok_ = true;
};

PyObject* attend(PyObject* const* arguments, Py_ssize_t count) {
  if (at::impl::torch_function_mode_enabled()) Py_RETURN_NOTIMPLEMENTED;
  Reader read(arguments, count);
  AttentionCall call;
  call.q = read.tensor(), call.k = read.tensor(), call.v = read.tensor(), call.mixing = read.tensor();
  const auto sizes = read.integers<c10::SymInt>();
  const auto extents = read.integers<std::int64_t>();
  call.sizes = sizes, call.extents = extents;
  call.feature_map = read.text(), call.normalizer = read.text(), call.masking = read.text();
  call.algorithm = read.text();
  call.scale = read.number(), call.eps = read.number(), call.feature_eps = read.number();
  call.q_den = read.optional_tensor(), call.k_den = read.optional_tensor();
  call.cu_seqlens = read.optional_tensor();
  call.initial_S = read.optional_tensor(), call.initial_z = read.optional_tensor();
  call.initial_tokens = read.integer();
  if (!read.ok()) Py_RETURN_NOTIMPLEMENTED;
  at::Tensor o;
  {
    const pybind11::gil_scoped_release other_threads_run;
    o = std::get<0>(call_forward(call));
  }
  return THPVariable_Wrap(std::move(o));
}

// attention(q, k, ..., initial_tokens) -> o: the arguments of torch.ops.mhla.attention but the last, state_blocks.
PyObject* attention(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  try {
    return attend(arguments, count);
  } catch (const Error& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
  END_HANDLE_TH_ERRORS
}

PyMethodDef functions[] = {
    // NOLINTNEXTLINE(bugprone-casting-through-void): METH_FASTCALL's type
    {"attention", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(attention)), METH_FASTCALL, nullptr},
    {}};
PyModuleDef definition{PyModuleDef_HEAD_INIT, "_direct", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace mhla::dispatch

// NOLINTNEXTLINE(bugprone-reserved-identifier): the name Python looks for
PyMODINIT_FUNC PyInit__direct() { return PyModule_Create(&mhla::dispatch::definition); }
