// CPU builds of torch refuse to index tensors of a device that has no guard: this one does nothing.
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace {
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>);
}
