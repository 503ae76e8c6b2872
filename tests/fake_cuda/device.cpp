// The memory and the GPUs of a "cuda" device that is the host in disguise.
//
// In a CPU build of torch the places of CUDA's allocator, device guard and hooks are empty. This
// file fills them: memory comes from the host, is counted per GPU, and is full of NaN until it is
// written. operators.cpp computes. Python reaches the functions at the end by ctypes.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
constexpr auto CUDA = c10::DeviceType::CUDA;

double from_environment(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atof(text) : otherwise;
}

constexpr int64_t LARGE = int64_t(1) << 26;  // bytes
const double local_ranks = from_environment("LOCAL_WORLD_SIZE", 1);
const int gpu_count = int(from_environment("FAKE_CUDA_DEVICES", local_ranks));
const auto gpu_bytes = int64_t(from_environment("FAKE_CUDA_GB", 80) * (int64_t(1) << 30));
thread_local DeviceIndex current_gpu = 0;

void select(Device device) {
  TORCH_CHECK(device.index() < gpu_count, "CUDA error: invalid device ordinal");
  if (device.index() >= 0) current_gpu = device.index();
}

struct Usage {
  int64_t live = 0, peak = 0;  // bytes
};
struct Block {
  int64_t bytes;
  DeviceIndex gpu;
};
std::mutex memory_lock;  // of both tables
std::array<Usage, 16> usage;
std::unordered_map<void*, Block> blocks;

void release(void* pointer) {
  if (!pointer) return;
  std::lock_guard<std::mutex> hold(memory_lock);
  auto found = blocks.find(pointer);
  usage[found->second.gpu].live -= found->second.bytes;
  blocks.erase(found);
  std::free(pointer);
}

struct HostMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t count) override {
    const Device here(CUDA, current_gpu);
    if (!count) return {nullptr, nullptr, &release, here};
    const auto bytes = int64_t((count + 511) / 512 * 512);  // CUDA's allocator rounds up so
    std::lock_guard<std::mutex> hold(memory_lock);
    auto& mine = usage[current_gpu];
    TORCH_CHECK_WITH(OutOfMemoryError, mine.live + bytes <= gpu_bytes,
        "CUDA out of memory. Tried to allocate ", bytes >> 20, " MiB. GPU ", int(current_gpu),
        " has a total capacity of ", gpu_bytes >> 20, " MiB of which ",
        (gpu_bytes - mine.live) >> 20, " MiB is free.");
    void* pointer = std::aligned_alloc(512, bytes);
    // NaN in each type of floats, -1 in integers. Large buffers stay untouched, for a page of the
    // host's memory is taken only when it is touched.
    if (bytes < LARGE) std::memset(pointer, 0xFF, bytes);
    blocks[pointer] = {bytes, current_gpu};
    mine.live += bytes;
    mine.peak = std::max(mine.peak, mine.live);
    return {pointer, pointer, &release, here};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    std::memcpy(to, from, count);
  }
};
HostMemory memory;
REGISTER_ALLOCATOR(CUDA, &memory);

// Nothing runs asynchronously: each stream is the default one, and each event has happened.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return CUDA; }
  DeviceIndex deviceCount() const noexcept override { return gpu_count; }
  Device getDevice() const override { return {CUDA, current_gpu}; }
  void setDevice(Device device) const override { select(device); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current_gpu = device.index();
  }
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    select(device);
    return before;
  }
  Stream getStream(Device device) const override {
    return Stream(Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  Stream getDefaultStream(Device device) const override { return getStream(device); }
  Stream getNewStream(Device device, int) const override { return getStream(device); }
  Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  Stream exchangeStream(Stream stream) const override { return getStream(stream.device()); }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void record(void**, const Stream&, DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void*, DeviceIndex) const noexcept override {}
  double elapsedTime(void*, void*, DeviceIndex) const override { return 0; }
  void synchronizeDevice(DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);

}  // namespace

namespace at {

struct FakeHooks final : CUDAHooksInterface {
  explicit FakeHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return gpu_count; }
  DeviceIndex deviceCount() const override { return gpu_count; }
  DeviceIndex current_device() const override { return current_gpu; }
  DeviceIndex getCurrentDevice() const override { return current_gpu; }
  void setCurrentDevice(DeviceIndex gpu) const override { select({CUDA, gpu}); }
  DeviceIndex exchangeDevice(DeviceIndex gpu) const override {
    const DeviceIndex before = current_gpu;
    select({CUDA, gpu});
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex gpu) const override { return exchangeDevice(gpu); }
  Allocator* getCUDADeviceAllocator() const override { return &memory; }
  Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(kCPU); }
  Device getDeviceFromPtr(void* pointer) const override {
    std::lock_guard<std::mutex> hold(memory_lock);
    return {CUDA, blocks.at(pointer).gpu};
  }
  void deviceSynchronize(DeviceIndex) const override {}
  std::string showConfig() const override { return "a fake of CUDA in host memory"; }
};
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", FakeHooks);

}  // namespace at

extern "C" {
int fake_has_cuda() { return at::detail::getCUDAHooks().hasCUDA(); }
int fake_gpu_count() { return gpu_count; }
int fake_current_gpu() { return current_gpu; }
void fake_select_gpu(int gpu) { current_gpu = DeviceIndex(gpu); }
int64_t fake_total_bytes() { return gpu_bytes; }
int64_t fake_live_bytes(int gpu) { return usage[gpu].live; }
int64_t fake_peak_bytes(int gpu) { return usage[gpu].peak; }
void fake_reset_peak(int gpu) { usage[gpu].peak = usage[gpu].live; }
}
