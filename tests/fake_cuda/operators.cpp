// The operators of the fake "cuda" device: the CPU's numbers behind a GPU's rules.
//
// What makes, copies and views memory is here. All else runs on the CPU, once it is certain that a
// CUDA kernel would take its tensors: all lie on one GPU, but for the few that may stay in host
// memory. device.cpp has the memory. The build writes no_check.h from torch's list of operators.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <set>

namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
const c10::DispatchKeySet CUDA_KEY(c10::DispatchKey::CUDA);

c10::IntArrayRef ints(SymIntArrayRef sizes) { return C10_AS_INTARRAYREF_SLOW(sizes); }

c10::Allocator* memory() { return c10::GetAllocator(c10::kCUDA); }

// ---- memory and views --------------------------------------------------------------------------

Tensor empty(SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  const auto type = c10::dtype_or_default(dtype);
  return at::detail::empty_generic(ints(size), memory(), CUDA_KEY, type, format);
}

Tensor empty_strided(SymIntArrayRef size, SymIntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  const auto type = c10::dtype_or_default(dtype);
  return at::detail::empty_strided_generic(ints(size), ints(stride), memory(), CUDA_KEY, type);
}

Tensor as_host(const Tensor& tensor) {  // the same memory under the CPU's name
  if (!tensor.is_cuda()) return tensor;
  void* start = tensor.numel() ? tensor.mutable_data_ptr() : nullptr;
  const auto options = tensor.options().device(c10::kCPU).requires_grad(false);
  return at::from_blob(start, tensor.sizes(), tensor.strides(), options);
}

Tensor& copy(Tensor& to, const Tensor& from, bool) {
  if (from.numel()) as_host(to).copy_(as_host(from));
  return to;
}

const Tensor& resize(const Tensor& self, SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(ints(size));
  const size_t bytes = (self.storage_offset() + self.numel()) * self.itemsize();
  auto storage = tensor->unsafe_storage();
  if (bytes > storage.nbytes()) {
    auto larger = memory()->allocate(bytes);
    std::memcpy(larger.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(larger));
    storage.set_nbytes(bytes);
  }
  return self;
}

Tensor copy_and_resize(const Tensor& from, const Tensor& to) {  // how results come from the CPU
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return to.copy_(from);
}

Tensor& set_view(Tensor& self, at::Storage storage, SymInt offset, SymIntArrayRef size,
                 SymIntArrayRef stride) {
  TORCH_CHECK(storage.device_type() == c10::kCUDA, "set_: the storage is not on the GPU");
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_keep_dtype(std::move(storage));
  tensor->set_storage_offset(offset.expect_int());
  if (stride.size() == size.size()) tensor->set_sizes_and_strides(ints(size), ints(stride));
  else tensor->set_sizes_contiguous(ints(size));
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage storage) {
  const SymInt count = int64_t(storage.nbytes() / self.itemsize());
  return set_view(self, std::move(storage), 0, {count}, {SymInt(1)});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  const auto offset = source.storage_offset();
  return set_view(self, source.storage(), offset, source.sym_sizes(), source.sym_strides());
}

Tensor& set_empty(Tensor& self) {
  at::Storage nothing(at::Storage::use_byte_size_t(), 0, memory()->allocate(0), memory(), true);
  return set_storage(self, std::move(nothing));
}

Tensor as_strided(const Tensor& self, SymIntArrayRef size, SymIntArrayRef stride,
                  std::optional<SymInt> offset) {
  std::optional<int64_t> start;
  if (offset) start = offset->expect_int();
  return at::native::as_strided_tensorimpl(self, ints(size), ints(stride), start);
}

Tensor view(const Tensor& self, SymIntArrayRef size) { return at::native::view(self, ints(size)); }

Tensor reshape_alias(const Tensor& self, SymIntArrayRef size, SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, ints(size), ints(stride));
}

void record_stream(Tensor&, at::Stream) {}

// The math implementation of scaled_dot_product_attention, the only one that has no kernel.
int64_t attention_kernel(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                         double, bool, std::optional<double>, bool) {
  return 0;
}

// ---- all other operators -----------------------------------------------------------------------

// TensorIterator compares the devices of these; it takes a number from host memory.
const std::set<std::string> TAKE_NUMBERS = {
#include "no_check.h"
};
// Their indices, or a learning rate, may lie in host memory.
const std::set<std::string> TAKE_INDICES = {
    "aten::index.Tensor", "aten::index.Tensor_out", "aten::_unsafe_index.Tensor",
    "aten::index_put_", "aten::_index_put_impl_", "aten::_fused_adamw_.tensor_lr"};

void refuse(const std::string& name, const Tensor& tensor) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two ",
              "devices, cuda:0 and cpu! (", name, ", a CPU tensor of shape ", tensor.sizes(), ")");
}

struct Operands {
  std::vector<Tensor> tensors;
  std::vector<bool> written;  // is it changed in place?
  bool host_generator = false, to_gpu = false;

  Operands(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto& value = values[i];
      const auto* alias = schema.arguments()[i].alias_info();
      const bool writes = alias && alias->isWrite();
      if (value.isTensor()) add(value.toTensor(), writes);
      else if (value.isTensorList()) for (const Tensor& t : value.toTensorVector()) add(t, writes);
      else if (value.isOptionalTensorList()) {
        for (const std::optional<Tensor>& t : value.toOptionalTensorVector()) if (t) add(*t, writes);
      }
      else if (value.isDevice()) to_gpu = value.toDevice().is_cuda();
      else if (value.isGenerator()) host_generator = value.toGenerator().device().is_cpu();
    }
  }

  void add(const Tensor& tensor, bool writes) {
    if (!tensor.defined()) return;
    tensors.push_back(tensor);
    written.push_back(writes);
  }
};

void check(const std::string& name, const Operands& operands) {
  const Tensor* on_gpu = nullptr;
  for (const Tensor& tensor : operands.tensors) if (tensor.is_cuda()) on_gpu = &tensor;
  TORCH_CHECK(!operands.host_generator || !(on_gpu || operands.to_gpu),
              "Expected a 'cuda' device type for generator but found 'cpu' (", name, ")");
  if (!on_gpu) return;
  for (size_t i = 0; i < operands.tensors.size(); ++i) {
    const Tensor& tensor = operands.tensors[i];
    if (tensor.is_cuda()) {
      TORCH_CHECK(tensor.device() == on_gpu->device(), "tensors on two GPUs in ", name);
      continue;
    }
    const bool number = tensor.dim() == 0 && TAKE_NUMBERS.count(name);
    if (operands.written[i] || !(number || TAKE_INDICES.count(name))) refuse(name, tensor);
  }
}

void check_put(const std::string& name, c10::ArrayRef<c10::IValue> values) {
  const auto& put = values[2].toTensor();
  if (!values[0].toTensor().is_cuda()) refuse(name, values[0].toTensor());
  if (!put.is_cuda() && put.dim()) refuse(name, put);
}

// A CPU without instructions for bf16 takes ten times longer for its products than for those of fp32.
// As a GPU does, this adds up in fp32 and rounds once.
const std::set<std::string> PRODUCTS = {"aten::mm", "aten::bmm", "aten::addmm"};

void multiply(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  const auto options = torch::jit::peek(*stack, 0, count).toTensor().options();
  for (size_t i = 0; i < count; ++i) {
    auto& value = torch::jit::peek(*stack, i, count);
    if (value.isTensor()) value = as_host(value.toTensor()).to(c10::kFloat);
  }
  op.callBoxed(stack);
  auto& product = stack->back();
  product = at::empty(product.toTensor().sizes(), options).copy_(product.toTensor());
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto name = c10::toString(op.schema().operator_name());
  const auto values = torch::jit::last(*stack, op.schema().arguments().size());
  check(name, Operands(op.schema(), values));
  if (name.find("index_put") != std::string::npos) check_put(name, values);
  const bool bf16 = PRODUCTS.count(name) && values[0].toTensor().scalar_type() == c10::kBFloat16;
  if (bf16) multiply(op, stack);
  else at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("copy_", copy);
  m.impl("_copy_from_and_resize", copy_and_resize);
  m.impl("resize_", resize);
  m.impl("set_", set_empty);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_.source_Storage_storage_offset", set_view);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("record_stream", record_stream);
  m.impl("_fused_sdp_choice", attention_kernel);
  // It would be composed of other operators, which take memory that its kernel does not take.
  m.impl("silu_backward", torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY(fake_cuda, m) { m.def("as_host", as_host); }

}  // namespace
